"""`counting` with code that fails on every thousandth key: about 3 of 10 000 records of `counting.yaml`.

`make bench-latency` runs it where `BENCH_ON_ERROR` says what becomes of these.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

FAILING_OF = 1000


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
        if key[0] % FAILING_OF == FAILING_OF - 1:
            raise ValueError(f"key {key[0]} is not counted")
        yield Row(key=key[0], total=total)

    def close(self) -> None:
        """Nothing is held open."""
