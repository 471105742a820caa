"""What a user would have written of the topology `src -> mid -> end` (`counting_plan`): rows counted by key.

A row that is lost, doubled or out of order shows at once, as user code raises then, or in the counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming import StatefulProcessor


class End(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """Counts the rows of a key, which come in order from each source."""

    ballast = 0
    """So many fields of state come with a key's first row."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint")
        self.last = handle.getMapState("last", "source string", "number bigint")
        self.more = handle.getMapState("more", "number int", "number int")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:  # noqa: N802 - pyspark's
        before = self.total.get()
        total = before[0] if before else 0
        if not before:
            for number in range(self.ballast):
                self.more.updateValue((number,), (number,))
        for row in rows:
            last = self.last.getValue((row.source,))
            if last is not None and row.number <= last[0]:
                raise ValueError(f"row {row.number} of {row.source} after {last[0]}")
            self.last.updateValue((row.source,), (row.number,))
            total += 1
            yield from self.out(row)
        self.total.update((total,))

    def out(self, row: Any) -> Iterator[Any]:
        """What follows from a row."""
        yield from ()

    def close(self) -> None:
        """Nothing is open."""


class Mid(End):
    """Passes each row on."""

    def out(self, row: Any) -> Iterator[Any]:
        yield row
