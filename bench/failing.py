"""The processor of `topologies/failing.yaml`: a running total for each key. It fails on a row that is bad."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class Count(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """(key, bad) rows in, one (key, total) row out for each key group."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "value bigint")

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._total.get()
        total = 0 if before is None else before[0]
        for row in rows:
            if row.bad:
                raise ValueError(f"a row of key {key[0]} is bad")
            total += 1
        self._total.update((total,))
        yield Row(key=key[0], total=total)

    def close(self) -> None:
        """Nothing is held open."""
