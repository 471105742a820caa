"""What a user would have written of the topology `orders -> count -> shown`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming import StatefulProcessor


class Count(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """Passes each row on; `failing` has it raise."""

    failing = False

    def init(self, handle: Any) -> None:
        self.rows = handle.getValueState("rows", "n int")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:  # noqa: N802 - pyspark's
        for row in rows:
            if self.failing:
                raise ValueError("no")
            self.rows.update((1,))
            yield row

    def close(self) -> None:
        """Nothing is open."""
