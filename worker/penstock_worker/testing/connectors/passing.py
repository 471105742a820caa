"""User code of the suite's own runs: rows that pass as they are, and rows that take their time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

ROW_S_VARIABLE = "PENSTOCK_TESTED_ROW_S"
"""Says what a row takes behind a source under test, so that some are left to read when it is killed."""


class Passed(StatefulProcessor):  # type: ignore[misc]
    """Puts out what it is given, by key."""

    def init(self, handle: Any) -> None:
        """It keeps no state."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield from rows

    def close(self) -> None:
        """It holds nothing."""


def slowly(row: Row) -> tuple[Row]:
    """The row, a while later."""
    time.sleep(float(os.environ[ROW_S_VARIABLE]))
    return (row,)
