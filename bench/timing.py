"""The processor of `event_time`'s timers: each record sets one, and what fires comes out.

A row is as old as its timer is late (the worker stamps it with when it was due), so the ages at the sink are
lateness. Named by `topologies/timers.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

AHEAD_MS = 500


class Timed(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """(key, ...) rows in, a timer for each of them, one (key, expiry) row out for each timer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        due_ms = timerValues.getCurrentProcessingTimeInMs() + AHEAD_MS
        for number, _ in enumerate(rows):
            self._handle.registerTimer(due_ms + number)
        return iter(())

    def handleExpiredTimer(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        yield Row(key=key[0], expiry_ms=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        """Nothing is held open."""
