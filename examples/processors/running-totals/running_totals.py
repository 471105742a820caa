"""What each user spent per category so far: a map in the state of each user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


def parse(line: Row) -> Iterator[tuple[int, str, str, int]]:
    """ "number,user,category,amount" -> an order."""
    number, user, category, amount = line.value.split(",")
    yield int(number), user, category, int(amount)


class RunningTotals(StatefulProcessor):
    """Orders in; for each one the category's total and how many categories the user has bought in.

    An order of 0 is a refund: the category is forgotten.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._totals = handle.getMapState("totals", "category string", "total long")

    def handleInputRows(
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        for order in sorted(rows, key=lambda row: row.number):
            category = (order.category,)
            if order.amount == 0:
                self._totals.removeKey(category)
                total = 0
            else:
                before = self._totals.getValue(category) if self._totals.containsKey(category) else None
                total = order.amount + (before.total if before is not None else 0)
                self._totals.updateValue(category, (total,))
            bought_in = len(list(self._totals.keys())) if self._totals.exists() else 0
            yield Row(
                user=key[0],
                number=order.number,
                category=order.category,
                total=total,
                categories=bought_in,
            )

    def close(self) -> None:
        """Nothing is held open."""
