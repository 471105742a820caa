"""Accounts that take money in and pay it out, as long as there is some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

OPENING_CENTS = 10_000


class Account(StatefulProcessor):
    """Payments of an account in, in their order; for each one whether it is accepted, and the balance."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._balance = handle.getValueState("balance", "cents long")

    def handleInputRows(  # the signature is pyspark's
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        known = self._balance.get()
        balance = OPENING_CENTS if known is None else known[0]
        for payment in rows:
            accepted = balance + payment.cents >= 0
            if accepted:
                balance += payment.cents
            yield Row(account=key[0], number=payment.number, accepted=accepted, balance=balance)
        self._balance.update((balance,))

    def close(self) -> None:
        """Nothing is held open."""
