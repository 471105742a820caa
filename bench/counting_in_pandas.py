"""`counting` in the pandas form: the same totals from the same state, of a key's rows as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class Count(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """(key, ...) rows in, one (key, total) row out for each key group."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "value bigint")

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        before = self._total.get()
        total = (0 if before is None else before[0]) + sum(len(frame) for frame in rows)
        self._total.update((total,))
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    def close(self) -> None:
        """Nothing is held open."""
