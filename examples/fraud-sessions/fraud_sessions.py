"""Payments of each card by sessions: one in which a thief tries a card out is told of when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

GAP_MS = 60_000
"""Payments no further apart than this are one session."""
SMALL_CENTS, SMALL_MIN, LARGE_CENTS = 200, 3, 50_000
"""Who tries a card out pays little, several times, and then much."""
COUNTRIES_MIN = 3
"""Nobody pays in so many countries within a session."""

Payment = tuple[int, str, int]
"""When (ms), where, how much (cents)."""


class FraudSessions(StatefulProcessor):
    """Payments in, in any order; a row for each session that is suspicious out.

    Each payment sets a timer to a gap behind it. When it fires, all payments up to there have come: if none
    is within the gap the session is over, and else a later timer will see to it.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._payments = handle.getListState("payments", "at_ms long, country string, cents long")

    def handleInputRows(
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        for payment in rows:
            at_ms = round(payment.at.timestamp() * 1000)
            self._payments.appendValue((at_ms, payment.country, payment.cents))
            self._handle.registerTimer(at_ms + GAP_MS)
        return iter(())

    def handleExpiredTimer(
        self,
        key: tuple[str],
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        now_ms = expiredTimerInfo.getExpiryTimeInMs()
        payments = sorted(tuple(payment) for payment in self._payments.get())
        over = [payment for payment in payments if payment[0] <= now_ms - GAP_MS]
        if not over or any(now_ms - GAP_MS < at_ms <= now_ms for at_ms, _, _ in payments):
            return
        later = payments[len(over) :]
        if later:
            self._payments.put(later)
        else:
            self._payments.clear()
        reasons = suspicions(over)
        if reasons:
            yield Row(
                card=key[0],
                started=datetime.fromtimestamp(over[0][0] / 1000),  # noqa: DTZ006 - as Spark gives timestamps
                ended=datetime.fromtimestamp(over[-1][0] / 1000),  # noqa: DTZ006
                payments=len(over),
                cents=sum(cents for _, _, cents in over),
                reasons=reasons,
            )

    def close(self) -> None:
        """Nothing is held open."""


def suspicions(payments: list[Payment]) -> list[str]:
    """Why this session, in the order of its times, looks like a fraud; empty if it does not."""
    found = []
    small = 0
    for _, _, cents in payments:
        if cents >= LARGE_CENTS and small >= SMALL_MIN:
            found.append("tried out")
            break
        small = small + 1 if cents <= SMALL_CENTS else 0
    if len({country for _, country, _ in payments}) >= COUNTRIES_MIN:
        found.append("many countries")
    return found
