"""The processor of every bench: a running total per key, the same class on both sides.

Named by the topologies in `topologies/` and handed to Spark's own `transformWithState` by
`spark_peer`. It asks its state twice a key group (one read, one write), the least that counting can do.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

OUTPUT_SCHEMA = "key bigint, total bigint"


class Count(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """(key, ...) rows in, one (key, total) row out for each key group."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "value bigint")

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._total.get()
        total = (0 if before is None else before[0]) + sum(1 for _ in rows)
        self._total.update((total,))
        yield Row(key=key[0], total=total)

    def close(self) -> None:
        """Nothing is held open."""
