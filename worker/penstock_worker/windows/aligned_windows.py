"""Tumbling and sliding windows: the processor.

A key's rows are put together by slices (`slices`) before state is asked for, and added to each slice at once.
A key has one timer: when the first of its open windows ends. What fires it closes all windows that the
watermark has passed, and sets the next one. A row in time is in no window that was closed: its slice ends
behind it, and so does each window of that slice. Neighbours: `open_slices` (state), `session_windows` (the
other kind), `processors` (who makes it).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from penstock.dataflow.schema import Schema
from penstock.dataflow.window import Sliding, Tumbling, WindowAggregation
from penstock_worker.windows.instants import instant, milliseconds
from penstock_worker.windows.making import aggregators_of
from penstock_worker.windows.open_slices import OpenSlices
from penstock_worker.windows.slices import Slicing

# pyspark's Row takes its time over an index: it looks whether that is a name.
_value = tuple.__getitem__
_NOTHING: list[Row] = []
"""What rows put out; a list is what Penstock reads quickest."""


class AlignedWindows(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """`aggregation` over rows of the schema `given`, whose key is at `key_columns`.

    Raises InvalidWindow and UserCodeMissing where those do not fit each other.
    """

    def __init__(
        self,
        aggregation: WindowAggregation,
        window: Tumbling | Sliding,
        given: Schema,
        key_columns: Sequence[int],
        base_dir: Path,
    ) -> None:
        self._time = given.names.index(aggregation.event_time)
        self._slicing = Slicing(window)
        self._aggregators = aggregators_of(aggregation.aggregates, given, base_dir)
        self._names = aggregation.output(given, key_columns).names

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = OpenSlices(handle, self._slicing, self._aggregators)
        self._row = Row(*self._names)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterable[Row]:
        time_place = self._time
        slice_of = self._slicing.slice_of
        gathered: dict[int, list[Row]] = {}
        for row in rows:
            time = _value(row, time_place)
            if time is None:
                continue
            start = slice_of(milliseconds(time))
            if start in gathered:
                gathered[start].append(row)
            else:
                gathered[start] = [row]
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
        slices = found.together | found.apart
        starts = sorted(slices)
        watermark_ms = max(timerValues.getCurrentWatermarkInMs(), expiredTimerInfo.getExpiryTimeInMs())
        closed, done, next_end_ms = self._slicing.closed(starts, found.next_end_ms, watermark_ms)
        made = []
        for window in closed:
            parts = [slices[start] for start in starts[window.first : window.behind]]
            results = self._aggregators.finish(self._aggregators.merge(parts))
            bounds = instant(window.start_ms * 1000), instant(window.end_ms * 1000)
            made.append(self._row(*key, *bounds, *results))
        # Nothing is closed by a timer behind which an earlier one was set: it is still to fire for its own.
        if closed:
            for start in starts[:done]:
                self._open.remove(found, start)
            found.next_end_ms = next_end_ms
            if next_end_ms is not None:
                self._handle.registerTimer(next_end_ms)
            self._open.write(found)
        return made
