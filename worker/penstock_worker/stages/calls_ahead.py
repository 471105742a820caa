"""An async processor's calls, for the keys of all shards at hand at once, before the first of them is worked.

Shard after shard then takes what its keys' calls came to, and commits it: so no commit is made before its
calls are done, and those of different keys wait together, whatever their shards. A key is called once for its
rows, in their order, or, where it has none, for the first of its timers that are due. What comes before that
(initial state, rows that wait for another try) leaves a key out here, and its further timers wait: its
shard's work calls for these, alone. Neighbours: `keyed_stage` offers parts and asks, `user_code.key_calls`
makes the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.store.ownership import OwnedShard
from penstock_worker.process.clock import Clock
from penstock_worker.stages.event_time import set_times
from penstock_worker.stages.failing_code import FailingCode
from penstock_worker.stages.keyed_part import Part
from penstock_worker.state.cache import ShardState
from penstock_worker.user_code.running import Asked, ProcessorRunner
from penstock_worker.values.held import Held, TooMuch


class Offer(NamedTuple):
    """A part of a shard's work that is to come."""

    owned: OwnedShard
    part: Part
    state: ShardState
    watermark_ms: int
    """What TimerValues tell while it is worked."""


class CallsAhead:
    """Of one task. `runner` calls for several keys at once."""

    def __init__(
        self, runner: ProcessorRunner, failing: FailingCode, held: Held, clock: Clock, *, by_event_time: bool
    ) -> None:
        self._runner = runner
        self._failing = failing
        self._held = held
        self._clock = clock
        self._by_event_time = by_event_time
        self._offers: dict[str, Offer] = {}
        self._called: dict[str, Offer] = {}
        """Shards whose calls were made, and whose work was not done since."""
        self._call_us = 0

    def offer(self, owned: OwnedShard, part: Part, state: ShardState, watermark_ms: int) -> None:
        """This part is worked soon, unless it is withdrawn."""
        self._offers[owned.shard] = Offer(owned, part, state, watermark_ms)

    def withdraw(self, shard: str) -> None:
        """The shard's part is not worked, or anew: what its calls came to is forgotten."""
        self._offers.pop(shard, None)
        offer = self._called.pop(shard, None)
        if offer is not None:
            offer.state.rollback()
            self._runner.forget_ahead(offer.state)

    def make(self, owned: OwnedShard, part: Part, state: ShardState, watermark_ms: int) -> None:
        """Have the calls of this part made, if they were not, and those of all that are offered. Raises
        TooMuch of this part, and UserCodeError where nobody is spared."""
        if owned.shard in self._called:
            return
        self.offer(owned, part, state, watermark_ms)
        offers, self._offers = self._offers, {}
        try:
            self._make(offers)
        except TooMuch:
            if len(offers) == 1:
                raise
            # All together are too much; each may do.
            self._make({owned.shard: offers[owned.shard]})

    def taken(self, shard: str) -> int:
        """The shard's part is worked: what its calls came to has gone into its commit. Answers how long a
        call took, about, in microseconds; 0 where that was told."""
        self._called.pop(shard, None)
        call_us, self._call_us = self._call_us, 0
        return call_us

    def _make(self, offers: dict[str, Offer]) -> None:
        now_us, wall_us = self._clock.now_us(), self._clock.wall_us()
        began_us = self._clock.monotonic_us()
        asked: list[Asked] = []
        for offer in offers.values():
            set_times(offer.state, now_us, wall_us, by_event_time=self._by_event_time)
            offer.state.alone = len(offer.part) < 2
            asked += self._asked(offer, wall_us // 1000)
        self._called |= offers
        if not asked:
            return
        try:
            self._runner.call_ahead(asked, self._held, spares=self._failing.spares_others)
        except BaseException:
            for shard in offers:
                self.withdraw(shard)
            raise
        after_each_other = -(-len(asked) // self._runner.concurrent)
        self._call_us = (self._clock.monotonic_us() - began_us) // after_each_other

    def _asked(self, offer: Offer, now_ms: int) -> Iterator[Asked]:
        owned, part, state, watermark_ms = offer
        if self._runner.waits_in("handleInputRows"):
            for key in self._failing.keys_ahead(owned, part):
                yield Asked(state, key, part.groups[key].rows, now_ms, watermark_ms)
        if part.due.fired and self._runner.waits_in("handleExpiredTimer"):
            for key, expiry_ms, _ in self._failing.timers_ahead(owned, part):
                fires_ms = now_ms if self._by_event_time else max(now_ms, expiry_ms)
                yield Asked(state, key, (), fires_ms, watermark_ms, expiry_ms)
