"""The rows of one key that wait for partners: a map for each side, by buckets of time.

Beside the maps one value names the buckets that there are, so that none is asked for in vain, and when the
key's timer is set for. Neighbours: `interval_join` (who asks), `join_times` (which bucket).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming import StatefulProcessorHandle

from penstock_worker.windows.join_times import LEFT
from penstock_worker.windows.stored_types import pack, stored_type, tuple_type, unpacker

Waiting = tuple[int, bool, tuple[Any, ...]]
"""A row that waits: when it happened, in microseconds, whether it met one, and what comes out of it."""


@dataclass(slots=True)
class Held:
    """Of one key: when its timer is set for, the buckets of each side, and the rows of those looked at."""

    timer_ms: int | None = None
    buckets: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    rows: dict[tuple[int, int], list[Waiting]] = field(default_factory=dict)
    changed: set[tuple[int, int]] = field(default_factory=set)


class JoinBuffers:
    """`types` are the types of what comes out of each side's rows."""

    def __init__(self, handle: StatefulProcessorHandle, types: Sequence[Sequence[str]]) -> None:
        self._value = handle.getValueState("join", "packed binary")
        self._maps = [
            handle.getMapState("left" if side == LEFT else "right", "bucket bigint", "packed binary")
            for side in range(len(types))
        ]
        self._unpack = unpacker(tuple[int | None, tuple[list[int], list[int]]])
        self._unpack_rows = [unpacker(_rows_type(each)) for each in types]

    def read(self) -> Held:
        """The key's, without any rows."""
        found = self._value.get()
        return Held() if found is None else Held(*self._unpack(found[0]))

    def rows(self, held: Held, side: int, bucket: int) -> list[Waiting]:
        """Those of a bucket that there is."""
        place = side, bucket
        if place not in held.rows:
            (packed,) = self._maps[side].getValue((bucket,))
            held.rows[place] = self._unpack_rows[side](packed)
        return held.rows[place]

    def add(self, held: Held, side: int, bucket: int, row: Waiting) -> None:
        """One more row, in a bucket that may be new."""
        place = side, bucket
        held.changed.add(place)
        if bucket in held.buckets[side]:
            self.rows(held, side, bucket).append(row)
            return
        held.buckets[side].append(bucket)
        held.buckets[side].sort()
        held.rows[place] = [row]

    def remove(self, held: Held, side: int, bucket: int) -> None:
        """A bucket with its rows."""
        held.buckets[side].remove(bucket)
        self._maps[side].removeKey((bucket,))

    def write(self, held: Held) -> None:
        """Keep what was done to it."""
        for side, bucket in sorted(held.changed):
            self._maps[side].updateValue((bucket,), (pack(held.rows[side, bucket]),))
        if any(held.buckets):
            self._value.update((pack((held.timer_ms, held.buckets)),))
        else:
            self._value.clear()


def _rows_type(types: Sequence[str]) -> Any:
    row = tuple_type([int, bool, tuple_type(list(map(stored_type, types)))])
    return list[row]  # type: ignore[valid-type]  # a type made at run time
