"""One processor for many: what lets a single query of Spark run all cases of a group.

The first column of the key names the case. Each case has its state variables under its own name, is given
rows, key and times as it would be by itself, and what it puts out gets the case's name and nulls for the
columns of the others. Travels to Spark's workers by value, and imports nothing of Penstock.
"""

# ruff: noqa: N802, N803 - pyspark's own names
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


def name_of(processor: type[StatefulProcessor]) -> str:
    """What a case and its state are called: two processors may share a name, one after the other."""
    name: str = getattr(processor, "NAME", processor.__name__)
    return name


class OwnNames:
    """A handle whose state variables carry the name of a case."""

    def __init__(self, handle: Any, case: str) -> None:
        self._handle = handle
        self._case = case

    def getValueState(self, name: str, *schema: Any) -> Any:
        return self._handle.getValueState(self._case + name, *schema)

    def getListState(self, name: str, *schema: Any) -> Any:
        return self._handle.getListState(self._case + name, *schema)

    def getMapState(self, name: str, *schemas: Any) -> Any:
        return self._handle.getMapState(self._case + name, *schemas)

    def deleteIfExists(self, name: str) -> None:
        self._handle.deleteIfExists(self._case + name)

    def __getattr__(self, name: str) -> Any:
        """Timers are those of a key, and so of its case already."""
        return getattr(self._handle, name)


class Dispatcher(StatefulProcessor):
    """`columns` are those of all cases' outputs, without the one that names the case."""

    def __init__(
        self, processors: list[type[StatefulProcessor]], columns: list[str], *, pandas: bool
    ) -> None:
        self._processors = processors
        self._columns = columns
        self._pandas = pandas

    def init(self, handle: Any) -> None:
        self._made = {name_of(processor): processor() for processor in self._processors}
        for name, made in self._made.items():
            made.init(OwnNames(handle, name))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        case, *rest = key
        yield from self._named(case, self._made[case].handleInputRows(tuple(rest), rows, timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        case, *rest = key
        made = self._made[case]
        yield from self._named(case, made.handleExpiredTimer(tuple(rest), timerValues, expiredTimerInfo))

    def _named(self, case: str, outputs: Iterator[Any]) -> Iterator[Any]:
        for given in outputs:
            yield self._frame(case, given) if self._pandas else Row(case=case, **given.asDict())

    def _frame(self, case: str, given: Any) -> Any:
        if not len(given.columns):
            return given  # no row at all
        absent = {column: None for column in self._columns if column not in given.columns}
        return given.assign(case=case, **absent)

    def close(self) -> None:
        for made in self._made.values():
            made.close()
