"""Tumbling and sliding windows: the processor.

A key's rows are put together by slices (`slices`) before state is asked for, and added to each slice at once.
A key has one timer: when the first of its open windows ends. What fires it closes all windows that the
watermark has passed, and sets the next one. A row in time is in no window that was closed: its slice ends
behind it, and so does each window of that slice. Neighbours: `open_slices` (state), `instants` (times of rows
and of results), `session_windows` (the other kind), `processors` (who makes it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from penstock.dataflow.schema import Schema
from penstock.dataflow.window import Sliding, Tumbling, WindowAggregation
from penstock_worker.windows.instants import RowTimes, WireTimes
from penstock_worker.windows.making import aggregators_of
from penstock_worker.windows.open_slices import OpenSlices
from penstock_worker.windows.slices import Slicing

_NOTHING: list[Row] = []
"""What rows put out; a list is what Penstock reads quickest."""


class AlignedWindows(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """`aggregation` over rows of the schema `given`, whose key is at `key_columns`. With `wire` these and
    what comes out are wire rows, which none but Penstock has (`forms.WireForm`).

    Raises InvalidWindow and UserCodeMissing where those do not fit each other.
    """

    def __init__(
        self,
        aggregation: WindowAggregation,
        window: Tumbling | Sliding,
        given: Schema,
        key_columns: Sequence[int],
        base_dir: Path,
        *,
        wire: bool = False,
    ) -> None:
        self._times = (WireTimes if wire else RowTimes)(given.names.index(aggregation.event_time))
        self._slicing = Slicing(window)
        self._aggregators = aggregators_of(aggregation.aggregates, given, base_dir)
        self._row: Callable[..., Any] = (
            _wire_row if wire else Row(*aggregation.output(given, key_columns).names)
        )

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = OpenSlices(handle, self._slicing, self._aggregators)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterable[Row]:
        gathered: dict[int, list[Row]] = {}
        given = list(rows)
        unit = self._times.per_ms
        begin = behind = 0
        for row, time in zip(given, self._times.of(given), strict=True):
            if time is None:
                continue
            if not begin <= time < behind:
                start_ms, end_ms = self._slicing.span_of(time // unit)
                begin, behind = start_ms * unit, end_ms * unit
                add = gathered.setdefault(start_ms, []).append
            add(row)
        if gathered:
            self._add(gathered)
        return _NOTHING

    def _add(self, gathered: dict[int, list[Row]]) -> None:
        opened, reduce = self._open, self._aggregators.reduce
        found = opened.read()
        for start, rows in gathered.items():
            opened.put(found, start, reduce(opened.accumulators(found, start), rows))
        end_ms = self._slicing.first_end(min(gathered))
        if found.next_end_ms is None or end_ms < found.next_end_ms:
            found.next_end_ms = end_ms
            self._handle.registerTimer(end_ms)
        opened.write(found)

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterable[Row]:
        found = self._open.read_all()
        if found.next_end_ms is None:
            return _NOTHING
        slices = found.together | found.apart if found.apart else found.together
        starts = sorted(slices)
        watermark_ms = max(timerValues.getCurrentWatermarkInMs(), expiredTimerInfo.getExpiryTimeInMs())
        closed, done, next_end_ms = self._slicing.closed(starts, found.next_end_ms, watermark_ms)
        made = []
        instant, aggregators = self._times.instant, self._aggregators
        for window in closed:
            parts = [slices[start] for start in starts[window.first : window.behind]]
            results = aggregators.finish(aggregators.merge(parts))
            made.append(self._row(*key, instant(window.start_ms), instant(window.end_ms), *results))
        # Nothing is closed by a timer behind which an earlier one was set: it is still to fire for its own.
        if closed:
            for start in starts[:done]:
                self._open.remove(found, start)
            found.next_end_ms = next_end_ms
            if next_end_ms is not None:
                self._handle.registerTimer(next_end_ms)
            self._open.write(found)
        return made


def _wire_row(*values: Any) -> tuple[Any, ...]:
    return values
