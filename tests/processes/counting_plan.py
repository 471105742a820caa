"""The topology `src -> mid -> end`, for tests whose workers have no Spark: numbered rows of a few keys are
counted by key, twice in a row (`counting_code`). `counted` is what a shard has counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import overload

import msgspec

from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import NO_TIME, Fanout, KeyedEdge, Plan, Processor, Stage, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.state import encoding

UID = "state-1"
KEYS = ("0", "2", "3", "6", "1", "7", "4", "11", "8", "12", "5", "14")
"""Each of four shards has three of them, each of two shards six."""
BATCH_ROWS = 5
PAUSE_US = 20_000

Row = tuple[str, str, int]
"""Source shard, key, number of the row in its source."""

_ROW = Schema((Column("source", "string"), Column("key", "string"), Column("number", "bigint")))
_TOTAL = encoding.field_prefix(encoding.VALUE, "total")


def counting_plan(shards: int, *, tables: bool = False) -> Plan:
    """So many shards for each keyed stage; with `tables` keys may go to others."""
    one = Tasks(1, 1, 1)

    def edge(operator: str) -> KeyedEdge:
        return KeyedEdge(operator, (1,), shards, locality=tables)

    def keyed(operator: str, name: str, edges: tuple[KeyedEdge, ...]) -> Stage:
        processor = Processor(
            f"processes.counting_code:{name}", _ROW, (1,), shards, time_mode=NO_TIME, locality=tables
        )
        return Stage(operator, processor, one, Fanout(_ROW, (), (), edges))

    # Only says that it is a source: `CountedRows` reads.
    source = ZipfSource(1, 1.0, 1, 0, None, None, 0.0, 2, 0)
    return Plan(
        "words",
        "processes.counting_code",
        "Process",
        2,
        1 << 31,
        (
            Stage("src", source, one, Fanout(_ROW, (), (), (edge("mid"),))),
            keyed("mid", "Mid", (edge("end"),)),
            keyed("end", "End", ()),
        ),
    )


def row_of(source: str, number: int) -> Row:
    """Rows are numbered from 1 on."""
    return source, KEYS[number * 7 % len(KEYS)], number


class EndlessRows(Sequence[Row]):
    """A source that never ends."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __len__(self) -> int:
        return 1 << 40

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, int):
            return row_of(self._source, at + 1)
        return [row_of(self._source, n + 1) for n in range(*at.indices(len(self)))]


class CountedRows:
    """Reads a few rows at a time, one batch every `gap_s`, of the `part` of each source that is let through.
    Keeps the port `SourceReader`."""

    paced = True

    def __init__(
        self, rows: Mapping[str, Sequence[Row]], part: Callable[[], float], gap_s: Callable[[], float]
    ) -> None:
        self._rows = rows
        self._part = part
        self._gap_s = gap_s
        self._due_us: dict[str, int] = {}

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        self._due_us[shard] = now_us

    def release(self, shard: str) -> None:
        self._due_us.pop(shard, None)

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        rows = self._rows[shard]
        start = int(position or b"0")
        due_us = self._due_us[shard]
        end = min(start + min(rows_max, BATCH_ROWS), int(self._part() * len(rows)))
        if now_us < due_us or (end <= start < len(rows)):
            return SourceBatch([], [], position, False, max(due_us, now_us + PAUSE_US))
        due_us = self._due_us[shard] = now_us + int(self._gap_s() * 1e6)
        batch = list(rows[start:end])
        finished = end == len(rows)
        return SourceBatch(batch, [now_us] * len(batch), b"%d" % end, finished, None if finished else due_us)

    def grew(self, shard: str, position: bytes) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


def counted(state: Mapping[tuple[bytes, bytes], bytes]) -> Counter[str]:
    """Key -> rows, by the state of a keyed shard (`StateSnapshot`)."""
    return Counter(
        {
            msgspec.msgpack.decode(field.removeprefix(_TOTAL))[0]: msgspec.msgpack.decode(value)[0]
            for (collection, field), value in state.items()
            if not collection and field.startswith(_TOTAL)
        }
    )
