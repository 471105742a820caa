"""Sensors that fall silent: a row when nothing came for 30 seconds, and one when the sensor speaks again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

SILENT_MS = 30_000


class SilentSensor(StatefulProcessor):
    """Readings in, in any order; what happened to each sensor out, in the order of the readings' own times.

    A timer at a reading's time fires when no earlier reading comes any more: so readings are taken in their
    order, whichever came first. A second timer, `SILENT_MS` later, looks whether another has followed.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._waiting = handle.getMapState("waiting", "at_ms long", "celsius double")
        self._last = handle.getValueState("last", "at_ms long, celsius double, silent boolean")

    def handleInputRows(
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        for reading in rows:
            at_ms = round(reading.at.timestamp() * 1000)
            self._waiting.updateValue((at_ms,), (reading.celsius,))
            self._handle.registerTimer(at_ms)
            self._handle.registerTimer(at_ms + SILENT_MS)
        return iter(())

    def handleExpiredTimer(
        self,
        key: tuple[int],
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        now_ms = expiredTimerInfo.getExpiryTimeInMs()
        before_ms, before_celsius, silent = self._last.get() if self._last.exists() else (None, None, False)
        if self._waiting.containsKey((now_ms,)):
            (celsius,) = self._waiting.getValue((now_ms,))
            self._waiting.removeKey((now_ms,))
            self._last.update((now_ms, celsius, False))
            if silent:
                yield told(key, "back", now_ms, celsius)
        elif now_ms == before_ms + SILENT_MS:
            self._last.update((before_ms, before_celsius, True))
            yield told(key, "silent", before_ms, before_celsius)

    def close(self) -> None:
        """Nothing is held open."""


def told(key: tuple[int], what: str, at_ms: int, celsius: float) -> Row:
    """`at` and `celsius` are those of the last reading before the silence, or of the first one behind it."""
    return Row(sensor=key[0], what=what, at=datetime.fromtimestamp(at_ms / 1000), celsius=celsius)  # noqa: DTZ006 - as Spark
