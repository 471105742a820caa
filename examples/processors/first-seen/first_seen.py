"""When a (host, status) was first seen: several columns in the state of each key of two columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


def parse(line: Row) -> Iterator[dict[str, Any]]:
    """ "number,host,status,day" -> a request; host and status may be empty."""
    number, host, status, day = line.value.split(",")
    yield {
        "number": int(number),
        "host": host or None,
        "status": int(status) if status else None,
        "day": date.fromisoformat(day),
    }


class FirstSeen(StatefulProcessor):
    """Requests in; for each one when its (host, status) came first, and how often it has come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "first long, day date, hits long")

    def handleInputRows(
        self,
        key: tuple[str | None, int | None],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        for request in sorted(rows, key=lambda row: row.number):
            new = not self._seen.exists()
            first, day, hits = (request.number, request.day, 0) if new else self._seen.get()
            self._seen.update((first, day, hits + 1))
            yield Row(
                host=key[0],
                status=key[1],
                number=request.number,
                first=first,
                day=day,
                hits=hits + 1,
                new=new,
            )

    def close(self) -> None:
        """Nothing is held open."""
