"""Which facts about watermarks go to another store now, and how often they are looked for.

A fact that a shard of this store told goes at once. One that came from another store goes only when all that
is known is sent again, now and then: its own store brings it everywhere, and each store would else hear each
fact from every other one, which at ten stores is most of a store's time. That everything goes now and then
helps where two stores do not reach each other, and gives back to a store what it lost. Facts may be repeated
and the newest counts, so nothing here has to be right to be safe. No I/O, no clock. Neighbour: `couriers`
reads and carries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.store.port import WatermarkFact

ALL_AGAIN_S = 5.0
"""Everything that is known goes to each store again after so long."""
_PACE_S = 0.025
_FACTS_AT_PACE = 256


def pause_s(facts: int) -> float:
    """For how long an operator is not looked at again of which so many facts are known."""
    return _PACE_S * max(1.0, facts / _FACTS_AT_PACE)


class Taken:
    """What one other store has taken of one operator's facts, as far as this agent knows."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._all_at_s = float("-inf")

    def news(
        self, told: Sequence[WatermarkFact], here: Collection[str], now_s: float
    ) -> tuple[WatermarkFact, ...]:
        """What is to be sent of all that is known. `here` has the shards of this agent's store."""
        if now_s >= self._all_at_s:
            return tuple(told)
        versions = self._versions
        return tuple(
            fact for fact in told if fact.shard in here and fact.version > versions.get(fact.shard, 0)
        )

    def took(self, facts: Sequence[WatermarkFact], now_s: float) -> None:
        """The other store has these, which were `news` at that time."""
        if now_s >= self._all_at_s:
            self._all_at_s = now_s + ALL_AGAIN_S
        self._versions.update((fact.shard, fact.version) for fact in facts)

    def forget(self) -> None:
        """The other store may be another one, or have lost what it took."""
        self._versions.clear()
        self._all_at_s = float("-inf")
