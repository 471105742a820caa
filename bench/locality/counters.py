"""The paper's application as a user would have written it: two operators that count, each by its own field.

Neighbours: `topology` names them; rows of the first go on to the second as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

STATE_SCHEMA = "total bigint"


class First(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """Counts the values of the first field, and passes each row on."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", STATE_SCHEMA)

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[Any],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._total.get()
        total = before[0] if before else 0
        for row in rows:
            total += 1
            yield row
        self._total.update((total,))

    def close(self) -> None:
        """Nothing is held open."""


class Second(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """Counts the values of the second field, and says of each group of rows how many they were, how many came
    in all, and when: the clock is one for all hosts, which are on one machine."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", STATE_SCHEMA)

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[Any],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._total.get()
        came = sum(1 for _ in rows)
        total = came + (before[0] if before else 0)
        self._total.update((total,))
        yield Row(key=str(key[0]), rows=came, total=total, at_us=time.time_ns() // 1000)

    def close(self) -> None:
        """Nothing is held open."""
