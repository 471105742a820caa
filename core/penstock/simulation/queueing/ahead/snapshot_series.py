"""Many snapshots in a row as arrays, for policies that can look at them at once.

Nothing is decided at most moments: in virtual time they need not be looked at one by one. Neighbours:
`penstock.control.snapshot` is the same for one moment, `sample_columns` and `sample_table` beside it are how
its samples are given; `looking` takes these in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.control.samples.sample_columns import SampleColumns
from penstock.control.samples.sample_table import ROWS, SampleTable, Shards
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, ShardSample, TopologySnapshot

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OperatorSeries:
    """One operator over `moments` snapshots, with the same executors, assignment and treatment in all of
    them.

    The counters are `ShardSample`'s, cumulative, [moments, shards], whole numbers in `arrived` and
    `completed`; none is missing, and all are of one writer. `bytes_per_row` is (in, out), `state_bytes` a
    shard's, None where an operator does not tell.
    """

    operator: str
    executors: tuple[ExecutorSeen, ...]
    shards: Shards
    assignment: Mapping[str, str]
    arrived: Floats
    completed: Floats
    waited_us: Floats
    served_us: Floats
    busy_us: Floats
    treatment: bool = False
    bytes_per_row: tuple[float, float] | None = None
    state_bytes: float | None = None

    def snapshot(self, moment: int) -> OperatorSnapshot:
        """What `decide` is shown."""
        return OperatorSnapshot(
            self.operator, self.executors, self.assignment, self._samples(moment), self.treatment
        )

    def since(self, moment: int) -> OperatorSeries:
        """Without the snapshots before `moment`."""
        return self.part(slice(moment, None))

    def part(self, moments: slice) -> OperatorSeries:
        """Only the snapshots at `moments`."""
        return OperatorSeries(
            self.operator,
            self.executors,
            self.shards,
            self.assignment,
            self.arrived[moments],
            self.completed[moments],
            self.waited_us[moments],
            self.served_us[moments],
            self.busy_us[moments],
            self.treatment,
            self.bytes_per_row,
            self.state_bytes,
        )

    def _samples(self, moment: int) -> Mapping[str, ShardSample | None]:
        if self.bytes_per_row is None and self.state_bytes is None:
            return SampleColumns(
                self.shards.names,
                self.arrived[moment],
                self.completed[moment],
                self.waited_us[moment],
                self.served_us[moment],
                self.busy_us[moment],
            )
        bytes_in, bytes_out = self.bytes_per_row or (np.nan, np.nan)
        values = np.empty((ROWS, len(self.shards.names)))
        # In the order of `sample_table`'s rows.
        values[0] = self.arrived[moment]
        values[1] = self.completed[moment]
        values[2] = self.busy_us[moment]
        values[3] = self.arrived[moment] * bytes_in
        values[4] = self.completed[moment] * bytes_out
        values[5] = self.waited_us[moment]
        values[6] = self.served_us[moment]
        values[7] = np.nan if self.state_bytes is None else self.state_bytes
        return SampleTable(self.shards, values, np.zeros(len(self.shards.names), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class SnapshotSeries:
    """All operators in scope at `at_us` [moments], in the order of time, an interval apart."""

    at_us: npt.NDArray[np.int64]
    operators: Mapping[str, OperatorSeries]
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.at_us)

    def since(self, moment: int) -> SnapshotSeries:
        """Without the snapshots before `moment`."""
        return self.part(slice(moment, None))

    def part(self, moments: slice) -> SnapshotSeries:
        """Only the snapshots at `moments`."""
        parts = {name: operator.part(moments) for name, operator in self.operators.items()}
        return SnapshotSeries(self.at_us[moments], parts, self.nodes, self.edges)

    def snapshot(self, moment: int) -> TopologySnapshot:
        return TopologySnapshot(
            at_us=int(self.at_us[moment]),
            operators={name: operator.snapshot(moment) for name, operator in self.operators.items()},
            nodes=self.nodes,
            edges=self.edges,
        )
