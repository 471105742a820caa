"""Session windows: the processor.

A key's open sessions lie in one value; there are few at once. The timer of a session that goes on stays where
it is: when it fires, the session's end is looked at, and the timer set for that. So a session
costs a timer for each gap of time, not for each of its rows. Neighbours: `sessions` (which rows are one),
`aligned_windows` (the other kinds), `processors` (who makes it).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from penstock.dataflow.schema import Schema
from penstock.dataflow.window import Session, WindowAggregation
from penstock_worker.windows.instants import instant, microseconds
from penstock_worker.windows.making import aggregators_of
from penstock_worker.windows.sessions import Span, merged, spans_of
from penstock_worker.windows.stored_types import pack, tuple_type, unpacker

# pyspark's Row takes its time over an index: it looks whether that is a name.
_value = tuple.__getitem__


class SessionWindows(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """`aggregation` over rows of the schema `given`, whose key is at `key_columns`.

    Raises InvalidWindow and UserCodeMissing where those do not fit each other.
    """

    def __init__(
        self,
        aggregation: WindowAggregation,
        window: Session,
        given: Schema,
        key_columns: Sequence[int],
        base_dir: Path,
    ) -> None:
        self._time = given.names.index(aggregation.event_time)
        self._gap_us = window.gap_ms * 1000
        self._aggregators = aggregators_of(aggregation.aggregates, given, base_dir)
        self._names = aggregation.output(given, key_columns).names

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._value = handle.getValueState("sessions", "packed binary")
        span = tuple_type([int, int, self._aggregators.stored])
        self._unpack = unpacker(tuple_type([int, list[span]]))  # type: ignore[valid-type]  # made at run time
        self._row = Row(*self._names)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        place = self._time
        timed = [(microseconds(time), row) for row in rows if (time := _value(row, place)) is not None]
        if not timed:
            return iter(())
        timer_ms, spans = self._read()
        fresh = spans_of(timed, self._gap_us)
        sessions = [self._joined(parts) for parts in merged([*spans, *fresh], self._gap_us)]
        first_ms = min(map(self._over_ms, sessions))
        if timer_ms is None or first_ms < timer_ms:
            timer_ms = first_ms
            self._handle.registerTimer(timer_ms)
        self._write(timer_ms, sessions)
        return iter(())

    def _joined(self, parts: list[Span]) -> Span:
        """One span of those of one session, with its rows worked on."""
        known = [part.accumulators for part in parts if part.accumulators is not None]
        accumulators = self._aggregators.merge(known) if known else None
        rows = [row for part in parts for row in part.rows]
        if rows or accumulators is None:
            accumulators = self._aggregators.reduce(accumulators, rows)
        return Span(parts[0].first_us, max(part.last_us for part in parts), accumulators)

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        timer_ms, spans = self._read()
        if timer_ms is None or timer_ms > fired_ms:
            return iter(())
        watermark_ms = max(timerValues.getCurrentWatermarkInMs(), fired_ms)
        made = []
        still = []
        for span in spans:
            if self._over_ms(span) > watermark_ms:
                still.append(span)
                continue
            bounds = instant(span.first_us), instant(span.last_us + self._gap_us)
            results = self._aggregators.finish(span.accumulators or ())
            made.append(self._row(*key, *bounds, *results))
        if still:
            timer_ms = min(map(self._over_ms, still))
            self._handle.registerTimer(timer_ms)
            self._write(timer_ms, still)
        else:
            self._value.clear()
        return iter(made)

    def _over_ms(self, span: Span) -> int:
        """The watermark at which it is over: behind its end, at which a row would still belong."""
        return (span.last_us + self._gap_us) // 1000 + 1

    def _read(self) -> tuple[int | None, list[Span]]:
        """When the key's timer is set for, and its sessions, in order of time."""
        found = self._value.get()
        if found is None:
            return None, []
        timer_ms, spans = self._unpack(found[0])
        return timer_ms, [Span(*span) for span in spans]

    def _write(self, timer_ms: int, sessions: list[Span]) -> None:
        spans = [(one.first_us, one.last_us, one.accumulators) for one in sessions]
        self._value.update((pack((timer_ms, spans)),))
