"""A Python data source of PySpark's as a source: one shard reads its ranges of offsets, one after the other.

A range is planned, then committed as what is to be read, then read; what follows a kill is the same range
again, of which what was committed is passed over and compared (decision 0040). The user's `commit` is called
when a position behind a range is committed. Neighbours: `offset_ranges` is the user's reader,
`range_position` what is committed.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs
from pyspark import cloudpickle

from penstock.connectors.data_source import DataSourceSource
from penstock.errors import PermanentError
from penstock_worker.sources.offset_ranges import BrokenPromise, Offset, OffsetRanges, ranges_of
from penstock_worker.sources.range_position import RangePosition, offset_text, range_position
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.user_code.data_sources import NoDataSource, data_source_class, made, reader_of
from penstock_worker.user_code.running import UserCodeError, raised, users_traceback
from penstock_worker.values.rows import OutputShape, no_unicode
from penstock_worker.values.spark_types import struct_type

_LOG = logging.getLogger(__name__)

PAUSE_US_MIN = 10_000
"""The first pause of a reader that has nothing new."""
PULL_US_MAX = 20_000
"""What came by then is committed, though the reader would give more."""
PASSED_OVER_AT_ONCE = 4096
"""Rows that are compared in one read, before others of the task have their turn."""


class _Read(NamedTuple):
    """A row that the reader gave."""

    partition: int
    packed: bytes
    row: tuple[Any, ...]
    at_us: int


@dataclass(slots=True)
class _Cursor:
    """Where an open range is read. `position` is that of the first of `rows`, which were read and perhaps not
    committed; the last answer took `given` of them, and `behind` is its position."""

    at: RangePosition
    position: bytes
    partitions: list[Any]
    number: int = 0
    """Of the partition that is read,"""
    source: Iterator[Any] | None = None
    """and what it still gives; None where it was not begun."""
    passed: RangePosition | None = None
    """While rows are passed over that are committed already: how far that is."""
    rows: list[_Read] = field(default_factory=list)
    given: int = 0
    behind: bytes = b""
    is_at_end: bool = False


@dataclass(slots=True)
class _Shard:
    """One open shard."""

    ranges: OffsetRanges | None = None
    cursor: _Cursor | None = None
    pause_us: int = PAUSE_US_MIN
    told: str | None = None
    """The offset that the user's `commit` was called with last."""


class DataSourceRangeReader:
    """Reads one data source. `monotonic_us` tells how long a read takes. Raises UserCodeMissing and
    NoDataSource."""

    def __init__(
        self,
        operator: str,
        source: DataSourceSource,
        base_dir: Path,
        monotonic_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self._operator = operator
        self._source = source
        self._kind = data_source_class(source.target, base_dir)
        self._shape = OutputShape(source.schema)
        self._packed = msgspec.msgpack.Encoder().encode
        self._monotonic_us = monotonic_us
        self._shards: dict[str, _Shard] = {}

    @property
    def paced(self) -> bool:
        return False

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        self._shards[shard] = _Shard()

    def release(self, shard: str) -> None:
        released = self._shards.pop(shard, None)
        if released is not None and released.ranges is not None and (said := released.ranges.stop()):
            _LOG.warning("source %s: stop raised\n%s", self._operator, said)

    def close(self) -> None:
        for shard in list(self._shards):
            self.release(shard)

    def grew(self, shard: str, position: bytes) -> bool:
        return False

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        of = self._shards[shard]
        if of.ranges is None:
            of.ranges = self._made()
        if not position:
            # Noted before anything is read: where "now" is must not move while nothing comes.
            return _noted(RangePosition(offset_text(of.ranges.initial())))
        at = range_position(position)
        self._tell(of, of.ranges, at)
        if at.end is None:
            return self._next_range(of, of.ranges, at, position, now_us)
        cursor = self._cursor(of, of.ranges, at, position)
        began_us = self._monotonic_us()
        while not cursor.is_at_end and len(cursor.rows) < rows_max:
            self._pull(of.ranges, cursor, rows_max - len(cursor.rows), now_us - began_us)
            if self._monotonic_us() - began_us >= PULL_US_MAX:
                break
        return _batch(of.ranges, cursor, rows_max, bytes_max)

    def _made(self) -> OffsetRanges:
        target = self._source.target
        try:
            source = made(self._kind, dict(self._source.options))
            schema = struct_type(self._source.schema)
            return ranges_of(self._operator, reader_of(source, schema, bounded=self._source.bounded))
        except NoDataSource:
            raise
        except BaseException as error:
            text = users_traceback(error)
            raise UserCodeError(self._operator, f"{target} raised before it gave a reader", text) from error

    def _tell(self, of: _Shard, ranges: OffsetRanges, at: RangePosition) -> None:
        """All before an open range, or behind the last one, is committed: the user's reader may let go of
        it."""
        if at.ranges and of.told != at.start:
            ranges.commit(_offset(at.start))
            of.told = at.start

    def _next_range(
        self, of: _Shard, ranges: OffsetRanges, at: RangePosition, position: bytes, now_us: int
    ) -> SourceBatch:
        start = _offset(at.start)
        end = ranges.latest(start)
        if offset_text(end) == at.start:
            due_us = now_us + of.pause_us
            of.pause_us = min(2 * of.pause_us, max(self._source.poll_us, PAUSE_US_MIN))
            return SourceBatch([], [], position, finished=False, next_due_us=due_us)
        of.pause_us = PAUSE_US_MIN
        partitions = ranges.partitions(start, end)
        opened = at.opened(end, self._digest(partitions))
        of.cursor = _Cursor(opened, opened.packed(), partitions)
        return _noted(opened)

    def _cursor(self, of: _Shard, ranges: OffsetRanges, at: RangePosition, position: bytes) -> _Cursor:
        """What reads on at `position`: the cursor that there is, or one that begins the range anew."""
        cursor = of.cursor
        if cursor is not None and position == cursor.behind:
            del cursor.rows[: cursor.given]
            cursor.at, cursor.position, cursor.given, cursor.behind = at, position, 0, b""
        elif cursor is None or position != cursor.position:
            cursor = of.cursor = self._begun_anew(ranges, at, position)
        return cursor

    def _begun_anew(self, ranges: OffsetRanges, at: RangePosition, position: bytes) -> _Cursor:
        """Another task read the range before. Partitions that are as they were then need not be read again
        where all of their rows are committed; of others the rows themselves are compared."""
        partitions = ranges.partitions(_offset(at.start), _offset(at.end or ""))
        plan = self._digest(partitions)
        cursor = _Cursor(structs.replace(at, plan=plan), position, partitions)
        if at.total:
            begun = RangePosition(at.start, at.end, plan, ranges=at.ranges)
            if plan == at.plan:
                begun = structs.replace(
                    begun,
                    partition=at.partition,
                    digest=at.digest_before,
                    rows_before=at.rows_before,
                    digest_before=at.digest_before,
                )
            cursor.passed, cursor.number = begun, begun.partition
        return cursor

    def _pull(self, ranges: OffsetRanges, cursor: _Cursor, wanted: int, clock_us: int) -> None:
        """Take more out of the reader: about so many rows, or what comes soon."""
        if cursor.passed is not None:
            wanted = min(PASSED_OVER_AT_ONCE, cursor.at.total - cursor.passed.total)
        if cursor.source is None:
            if cursor.number >= len(cursor.partitions):
                if cursor.passed is not None:
                    raise self._other_rows(cursor.at)
                cursor.is_at_end = True
                return
            cursor.source = ranges.rows(cursor.partitions[cursor.number])
        given, is_over = self._given(cursor.source, wanted)
        at_us = clock_us + self._monotonic_us()
        read = [_Read(cursor.number, packed, row, at_us) for packed, row in self._wire(ranges, given)]
        if is_over:
            cursor.source = None
            cursor.number += 1
        cursor.rows += read if cursor.passed is None else self._behind_committed(cursor, cursor.passed, read)

    def _behind_committed(self, cursor: _Cursor, passed: RangePosition, read: list[_Read]) -> list[_Read]:
        """Those of `read` that are not committed; the others have to be the ones that are."""
        left = cursor.at.total - passed.total
        passed = passed.behind((each.partition, each.packed) for each in read[:left])
        cursor.passed = passed
        if passed.total < cursor.at.total:
            return []
        if passed.digest != cursor.at.digest:
            raise self._other_rows(cursor.at)
        cursor.at, cursor.passed = passed, None
        return read[left:]

    def _given(self, source: Iterator[Any], wanted: int) -> tuple[list[Any], bool]:
        """Rows as the user's reader gives them, and whether it is at its end."""
        until_us = self._monotonic_us() + PULL_US_MAX
        given: list[Any] = []
        for item in source:
            if type(item).__name__ == "RecordBatch":
                given += self._rows_of(item)
            else:
                given.append(item)
            if len(given) >= wanted or self._monotonic_us() >= until_us:
                return given, False
        return given, True

    def _rows_of(self, batch: Any) -> Sequence[tuple[Any, ...]]:
        names = list(self._source.schema.names)
        if batch.schema.names != names:
            raise BrokenPromise(
                f"{self._source.target} gave a RecordBatch with the columns "
                f"{', '.join(batch.schema.names)}; its schema has {', '.join(names)}"
            )
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def _wire(self, ranges: OffsetRanges, given: list[Any]) -> list[tuple[bytes, tuple[Any, ...]]]:
        try:
            rows = self._shape.wire_rows(given)
        except BaseException as error:
            raise ranges.misfit(error) from error
        try:
            return [(self._packed(row), row) for row in rows]
        except UnicodeEncodeError:
            raise PermanentError(no_unicode(rows, self._source.schema.names)) from None

    def _digest(self, partitions: Sequence[Any]) -> int:
        try:
            return zlib.crc32(cloudpickle.dumps(list(partitions)), len(partitions))
        except BaseException as error:
            what = "as its partitions were pickled"
            raise raised(self._operator, self._kind, self._source.target, what, error) from error

    def _other_rows(self, at: RangePosition) -> BrokenPromise:
        between = "" if self._source.bounded or at.start == "null" else f" from {at.start} to {at.end}"
        return BrokenPromise(
            f"{self._source.target} gave other rows for the same range{between}: {at.total} of them are "
            "committed, and the first as many are not the same now. A reader has to give the same rows in "
            "the same order for the same offsets; mend it and go on, or start anew"
        )


def _noted(position: RangePosition) -> SourceBatch:
    return SourceBatch([], [], position.packed(), finished=False, next_due_us=None)


def _batch(ranges: OffsetRanges, cursor: _Cursor, rows_max: int, bytes_max: int) -> SourceBatch:
    """Of what was read, as much as is wanted; one row at the least."""
    rows = cursor.rows[:rows_max]
    sizes = accumulate(len(each.packed) for each in rows)
    count = max(min(1, len(rows)), sum(1 for size in sizes if size <= bytes_max))
    rows = rows[:count]
    after = cursor.at.behind((each.partition, each.packed) for each in rows)
    is_read = cursor.is_at_end and count == len(cursor.rows)
    if is_read:
        after = after.closed()
    if not rows and not is_read:
        return SourceBatch([], [], cursor.position, finished=False, next_due_us=None)
    cursor.given, cursor.behind = count, after.packed()
    return SourceBatch(
        rows=[each.row for each in rows],
        timestamps_us=[each.at_us for each in rows],
        position=cursor.behind,
        finished=is_read and ranges.bounded,
        next_due_us=None,
    )


def _offset(text: str) -> Offset:
    return json.loads(text)
