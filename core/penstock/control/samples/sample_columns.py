"""Samples of all shards of an operator as columns, behind the mapping that a snapshot holds.

Who has counts in arrays, as the simulator, gives them without building an object a shard; `examine` takes the
arrays as they are. To anyone else it is a mapping like any other. Neighbour: `snapshot` says what the counts
mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from penstock.control.snapshot import ShardSample

Floats = NDArray[np.float64]


class SampleColumns(Mapping[str, ShardSample | None]):
    """All arrays have one entry a shard, in the order of `shards`, and are not written to any more.

    NaN in `arrived` or `completed` is a sample that was not read; NaN in the others, or None for one as a
    whole, is a sum that is not known. `writer` is the same for all shards. ValueError for arrays of another
    length.
    """

    __slots__ = ("_index", "arrived", "busy_us", "completed", "served_us", "shards", "waited_us", "writer")

    def __init__(
        self,
        shards: tuple[str, ...],
        arrived: Floats,
        completed: Floats,
        waited_us: Floats | None = None,
        served_us: Floats | None = None,
        busy_us: Floats | None = None,
        writer: object = None,
    ) -> None:
        for column in (arrived, completed, waited_us, served_us, busy_us):
            if column is not None and column.shape != (len(shards),):
                raise ValueError(f"a column of shape {column.shape} for {len(shards)} shards")
        self.shards = shards
        self.arrived = arrived
        self.completed = completed
        self.waited_us = waited_us
        self.served_us = served_us
        self.busy_us = busy_us
        self.writer = writer
        self._index: dict[str, int] | None = None

    def table(self) -> Floats:
        """(4, shards): arrived, completed, waited + served, busy; NaN is not known."""
        table = np.empty((4, len(self.shards)))
        table[0] = self.arrived
        table[1] = self.completed
        if self.waited_us is not None and self.served_us is not None:
            np.add(self.waited_us, self.served_us, out=table[2])
        else:
            table[2] = np.nan
        table[3] = np.nan if self.busy_us is None else self.busy_us
        return table

    def __getitem__(self, shard: str) -> ShardSample | None:
        if self._index is None:
            self._index = {name: index for index, name in enumerate(self.shards)}
        index = self._index[shard]
        arrived, completed = self.arrived[index], self.completed[index]
        if np.isnan(arrived) or np.isnan(completed):
            return None
        return ShardSample(
            arrived=int(arrived),
            completed=int(completed),
            waited_us=_known(self.waited_us, index),
            served_us=_known(self.served_us, index),
            busy_us=_known(self.busy_us, index),
            writer=self.writer,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.shards)

    def __len__(self) -> int:
        return len(self.shards)


def _known(column: Floats | None, index: int) -> float | None:
    return None if column is None or np.isnan(column[index]) else float(column[index])
