"""The last readings of each sensor: a list in the state of each sensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

KEPT = 5


def parse(line: Row) -> Iterator[tuple[int, int, float | None]]:
    """ "number,sensor,celsius" -> a reading; without a value it says that the sensor was replaced."""
    number, sensor, celsius = line.value.split(",")
    yield int(number), int(sensor), float(celsius) if celsius else None


class LastValues(StatefulProcessor):
    """Readings in; for each one the mean and the highest of the sensor's last `KEPT`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getListState("last", "number long, celsius double")

    def handleInputRows(
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        for reading in sorted(rows, key=lambda row: row.number):
            if reading.celsius is None:
                self._last.clear()
            else:
                self._last.appendValue((reading.number, reading.celsius))
            last = list(self._last.get()) if self._last.exists() else []
            if len(last) > KEPT:
                last = last[-KEPT:]
                self._last.put(last)
            values = [celsius for _, celsius in last]
            yield Row(
                sensor=key[0],
                number=reading.number,
                mean=sum(values) / len(values) if values else None,
                highest=max(values, default=None),
                readings=len(values),
            )

    def close(self) -> None:
        """Nothing is held open."""
