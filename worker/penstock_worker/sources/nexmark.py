"""Reads one stream of the NEXMark benchmark's generator (`nexmark_events`).

Partition p of n has the stream's rows p, p + n, p + 2n, ... A row is a function of the settings and its
index, so a position is an index within the partition. The rate counts events of the whole generator: a row
is due when its event is, so that sources of one generator keep to each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from penstock.connectors.nexmark import NexmarkSource, Stream
from penstock.dataflow.partitions import part_of
from penstock_worker.sources.nexmark_events import NexmarkEvents, Numbers, Row
from penstock_worker.sources.pace import AnyPace, pace_of, rate_of
from penstock_worker.sources.reader import SourceBatch

BLOCK_ROWS = 1024
_ROW_BYTES: Mapping[Stream, int] = {"Persons": 200, "Auctions": 500, "Bids": 170}
"""About what a row takes."""


@dataclass(slots=True)
class _Partition:
    """One open shard. Its pace counts events. `block` is a cache: the rows of the `block_number`-th 1024."""

    number: int
    pace: AnyPace | None
    block_number: int = -1
    block: list[Row] | None = None


class NexmarkReader:
    """Generates the partitions of one source. `base_dir` is where a relative rate trace begins.

    Raises PermanentError for a trace that cannot be read.
    """

    def __init__(self, operator: str, source: NexmarkSource, base_dir: Path = Path()) -> None:
        self._rate = rate_of(operator, source, base_dir)
        self._source = source
        self._events = NexmarkEvents(source)
        self._partitions: dict[str, _Partition] = {}

    @property
    def paced(self) -> bool:
        return self._rate is not None

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        """Counts from what the first partition has at the same index, so that partitions take turns, and from
        the stream's first event, so that streams do."""
        number = int(part_of(shard))
        pace = None
        if self._rate is not None:
            first = self._events.place(_index(position) * self._source.partitions) - self._events.place(0)
            pace = pace_of(self._rate, 1.0, 0.0, first, now_us)
        self._partitions[shard] = _Partition(number, pace)

    def release(self, shard: str) -> None:
        self._partitions.pop(shard, None)

    def grew(self, shard: str, position: bytes) -> bool:
        """By a rate trace that was made longer."""
        return self._rows_in_all(self._partitions[shard]) > _index(position)

    def close(self) -> None:
        self._partitions.clear()

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        partition = self._partitions[shard]
        pace = partition.pace
        index = _index(position)
        rows_max = min(rows_max, max(1, bytes_max // _ROW_BYTES[self._source.stream]))
        if pace is not None:
            place = self._place(partition, index)
            due_before = place + pace.due_rows(place, now_us)
            rows_max = min(rows_max, self._rows_before(partition, due_before) - index)
        left = max(0, self._rows_in_all(partition) - index)  # below 0: a trace that was cut short since
        rows = self._rows(partition, index, min(rows_max, left))
        finished = len(rows) == left
        after = index + len(rows)
        return SourceBatch(
            rows=rows,
            timestamps_us=[now_us] * len(rows)
            if pace is None
            else pace.times_us(self._events.places_of(self._indexes(partition, index, len(rows)))).tolist(),
            position=msgspec.msgpack.encode(after) if rows else position,
            finished=finished,
            next_due_us=None if pace is None or finished else pace.due_us(self._place(partition, after)),
        )

    def _indexes(self, partition: _Partition, index: int, count: int) -> Numbers:
        """Of so many rows of a partition, those in the stream."""
        return np.arange(index, index + count, dtype=np.int64) * self._source.partitions + partition.number

    def _place(self, partition: _Partition, index: int) -> int:
        """Where a row of a partition stands among all events."""
        return self._events.place(index * self._source.partitions + partition.number)

    def _rows_before(self, partition: _Partition, place: int) -> int:
        """How many rows of a partition stand before a place; partitions differ by one at most."""
        return max(0, -((partition.number - self._events.rows_before(place)) // self._source.partitions))

    def _rows_in_all(self, partition: _Partition) -> int:
        due = partition.pace.rows if partition.pace is not None else math.inf
        return self._rows_before(partition, int(min(self._events.places, due)))

    def _rows(self, partition: _Partition, index: int, count: int) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < count:
            number, begin = divmod(index + len(rows), BLOCK_ROWS)
            if partition.block is None or partition.block_number != number:
                partition.block = self._events.rows(self._indexes(partition, number * BLOCK_ROWS, BLOCK_ROWS))
                partition.block_number = number
            rows += partition.block[begin : begin + count - len(rows)]
        return rows


def _index(position: bytes) -> int:
    return msgspec.msgpack.decode(position, type=int) if position else 0
