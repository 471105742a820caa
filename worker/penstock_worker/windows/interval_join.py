"""The interval join of two inputs: the processor.

Each row meets those of the other side that wait, and waits itself as long as the watermark says that partners
may come; so each pair comes out once, with its later row. A key has one timer: when its first bucket
is over. Of a left outer join a row without a partner comes out when its bucket is over, at most an eighth of
the interval, or a second, behind the moment from which it is certain. Neighbours: `join_times` (who meets),
`join_buffers` (state), `processors` (who makes it).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from penstock.dataflow import interval_join
from penstock.dataflow.interval_join import LEFT_OUTER, IntervalJoin, JoinSide, side_schema
from penstock.dataflow.schema import Schema
from penstock_worker.windows.instants import microseconds
from penstock_worker.windows.join_buffers import Held, JoinBuffers
from penstock_worker.windows.join_times import LEFT, RIGHT, JoinTimes

# pyspark's Row takes its time over an index: it looks whether that is a name.
_value = tuple.__getitem__


class IntervalJoinProcessor(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """`join` over rows of the schema `given`. Raises InvalidWindow where they do not fit each other."""

    def __init__(self, join: IntervalJoin, given: Schema) -> None:
        self._times = JoinTimes(join)
        self._is_outer = join.how == LEFT_OUTER
        self._names = join.output(given).names
        self._places = given.names.index(interval_join.LEFT), given.names.index(interval_join.RIGHT)
        self._sides = join.left, join.right
        schemas = side_schema(given, interval_join.LEFT), side_schema(given, interval_join.RIGHT)
        self._types = [
            [column.type for column in side.output(schema, "")]
            for side, schema in zip(self._sides, schemas, strict=True)
        ]
        self._no_right = (None,) * len(join.right.columns)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._buffers = JoinBuffers(handle, self._types)
        self._row = Row(*self._names)
        self._time_of = [itemgetter(side.event_time) for side in self._sides]
        self._values_of = [_values_of(side) for side in self._sides]

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        may_meet = None not in key  # null equals nothing, in Spark too
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        held: Held | None = None
        made: list[Row] = []
        for row in rows:
            side = RIGHT if _value(row, self._places[LEFT]) is None else LEFT
            given = _value(row, self._places[side])
            if given is None:
                continue
            values, time = self._values_of[side](given), self._time_of[side](given)
            if may_meet and time is not None:
                if held is None:
                    held = self._buffers.read()
                self._take(held, side, microseconds(time), values, watermark_ms, made)
            elif side == LEFT and self._is_outer:
                made.append(self._row(*values, *self._no_right))
        if held is not None and held.changed:
            self._set_timer(held)
            self._buffers.write(held)
        return iter(made)

    def _take(
        self,
        held: Held,
        side: int,
        time_us: int,
        values: tuple[Any, ...],
        watermark_ms: int,
        made: list[Row],
    ) -> None:
        """Have a row meet those that wait, and wait for others."""
        has_met = False
        first_us, last_us = self._times.partners(side, time_us)
        for bucket in _within(held.buckets[1 - side], *self._times.buckets(first_us, last_us)):
            waiting = self._buffers.rows(held, 1 - side, bucket)
            for place, (other_us, other_met, other) in enumerate(waiting):
                if not first_us <= other_us <= last_us:
                    continue
                has_met = True
                made.append(self._row(*values, *other) if side == LEFT else self._row(*other, *values))
                if side == RIGHT and self._is_outer and not other_met:
                    waiting[place] = other_us, True, other
                    held.changed.add((LEFT, bucket))
        bucket = self._times.bucket_of(time_us)
        if self._times.over_ms(side, bucket) > watermark_ms:
            self._buffers.add(held, side, bucket, (time_us, has_met, values))
        elif side == LEFT and self._is_outer and not has_met:
            made.append(self._row(*values, *self._no_right))

    def _set_timer(self, held: Held) -> None:
        """Unless one is set that is as early."""
        over_ms = self._times.first_over_ms(held.buckets)
        if over_ms is not None and (held.timer_ms is None or over_ms < held.timer_ms):
            held.timer_ms = over_ms
            self._handle.registerTimer(over_ms)

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        held = self._buffers.read()
        if held.timer_ms is None or held.timer_ms > fired_ms:
            return iter(())
        watermark_ms = max(timerValues.getCurrentWatermarkInMs(), fired_ms)
        made = []
        for side in (LEFT, RIGHT):
            over = [one for one in held.buckets[side] if self._times.over_ms(side, one) <= watermark_ms]
            for bucket in over:
                if side == LEFT and self._is_outer:
                    waited = self._buffers.rows(held, side, bucket)
                    made += [self._row(*values, *self._no_right) for _, met, values in waited if not met]
                self._buffers.remove(held, side, bucket)
        held.timer_ms = None
        self._set_timer(held)
        self._buffers.write(held)
        return iter(made)


def _within(buckets: Sequence[int], first: int, last: int) -> Sequence[int]:
    """Those of the sorted `buckets` that are from `first` to `last`."""
    return buckets[bisect_left(buckets, first) : bisect_right(buckets, last)]


def _values_of(side: JoinSide) -> Callable[[Any], tuple[Any, ...]]:
    """What comes out of a row of one side, which is a struct: a dict or a Row."""
    names = [name for name, _ in side.columns]
    return lambda given: tuple([given[name] for name in names])
