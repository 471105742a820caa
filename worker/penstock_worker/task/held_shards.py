"""Shards that a task holds: what the executor's task map gives it is claimed, what it may not keep is let go.

A shard that another task is to run is kept until that one claims it, or `LINGER_US` have passed: nobody waits
for a handover (N-Storm's delayed kill). Neighbours: `task_map` says whose a shard is,
`penstock.store.stranding` which of them the ready list has lost; `task.loop` works on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from penstock.dataflow.plan import Processor
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Claim, Claimed, Measure, NodeStore, ShardCounters, Tasks
from penstock.store.stranding import StrandingWatch
from penstock_worker.process.clock import Clock
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.resting_shards import RestingShards
from penstock_worker.task.store_pressure import StorePressure
from penstock_worker.task.task_map import lingering, told_of

REFRESH_US = 1_000_000
"""The task map is read this often even when no control token came."""
NAMED_WITHIN_US = 600_000_000
"""A task that no map names within this time retires: its main process has no use for it."""
RECLAIM_US = 50_000
AWAITED_MAX = 16
"""So many shards that are on their way here are claimed along with a fetch."""


class HeldShards:
    """Of one task. `adopted` is called with each shard once it is among `owned`, `released` with each once it
    is not."""

    def __init__(
        self,
        launch: TaskLaunch,
        store: NodeStore,
        clock: Clock,
        resting: RestingShards,
        pressure: StorePressure,
        adopted: Callable[[OwnedShard], None],
        released: Callable[[str], None],
    ) -> None:
        self._launch = launch
        self._store = store
        self._clock = clock
        self._resting = resting
        self._pressure = pressure
        self._adopted = adopted
        self._released = released
        self._is_source = not isinstance(launch.stage.head, Processor)
        self._stranding = StrandingWatch(launch.bounds, source=self._is_source)
        self._awaited: list[Claim] = []
        """Claims of shards that were on their way here when they were last tried."""
        self._refresh_us = 0
        self._started_us = clock.monotonic_us()
        self.owned: dict[str, OwnedShard] = {}
        self.leaving: dict[str, int] = {}
        """Owned shards that others are to run, and until when they are worked on here."""
        self.is_named = False
        """Whether the map has named the task."""
        self.is_dismissed = False
        """Whether it names it no longer, or another incarnation: there is nothing more to do."""

    # --- the map ----------------------------------------------------------------------------

    @property
    def is_refresh_due(self) -> bool:
        return self._clock.monotonic_us() >= self._refresh_us

    @property
    def refresh_us(self) -> int:
        """When the map is read next, by the monotonic clock."""
        return self._refresh_us

    def refresh_soon(self) -> None:
        self._refresh_us = min(self._refresh_us, self._clock.monotonic_us() + RECLAIM_US)

    def refresh_at_once(self) -> None:
        self._refresh_us = 0

    def refresh(self, in_hand: Collection[str], *, halted: bool) -> bool:
        """Read the task map; claim what is ours, release what fell off the ready list or is another task's.

        `in_hand` names shards that were fetched and not worked yet; one that is `halted` gives nothing away
        and claims nothing. True when some were claimed.
        """
        now_us = self._clock.monotonic_us()
        self._refresh_us = now_us + REFRESH_US
        owner, shards = self._launch.owner, tuple(self.owned)
        answer, counters = self._store.pipeline(
            [Tasks(self._launch.executor, self._launch.stage.operator), Measure(shards)]
        )
        told = told_of(answer, owner)
        given = () if halted else told.given_away(shards)
        self.leaving = lingering(self.leaving, given, now_us)
        if not told.is_named and not self.leaving:
            is_late = now_us - self._started_us > NAMED_WITHIN_US
            self.is_dismissed = self.is_named or told.is_replaced or is_late
            return False
        self.is_named = True
        for shard, seen in zip(shards, counters, strict=True):
            is_ours = shard in told.mine or shard in self.leaving
            if not is_ours or self._needs_a_new_claim(shard, seen, now_us, is_in_hand=shard in in_hand):
                self.release(shard)
        if not told.is_named and not self.leaving:
            self.is_dismissed = True
            return False
        if halted:
            return False
        claims = [Claim(shard, owner, answer.version) for shard in sorted(told.mine - self.owned.keys())]
        return self.take_up(claims, self._store.pipeline(claims))

    def _needs_a_new_claim(
        self, shard: str, seen: ShardCounters | None, now_us: int, *, is_in_hand: bool
    ) -> bool:
        """Whether no list has the shard though there is work for it: a claim lists it anew."""
        rests = shard in self._resting
        if rests and self._is_source and seen and seen.inbox_entries:
            # Orders about dead letters come to a source's inbox while the shard rests here.
            return True
        is_held = is_in_hand or rests or self._pressure.holds_source
        return self._stranding.is_stranded(
            self.owned[shard], seen, now_us, in_hand=is_held, pressed=self._pressure.is_on
        )

    # --- claims -----------------------------------------------------------------------------

    @property
    def awaits_claims(self) -> bool:
        """Whether `take_awaited` has any."""
        return bool(self._awaited)

    def take_awaited(self) -> list[Claim]:
        """Claims of shards that may have come by now, to be sent along with a fetch."""
        claims, self._awaited = self._awaited[:AWAITED_MAX], []
        return claims

    def take_up(self, claims: Sequence[Claim], answers: Sequence[Any]) -> bool:
        """Adopt what was granted; True when something was."""
        self._awaited = []
        for claim, answer in zip(claims, answers, strict=True):
            if isinstance(answer, Claimed):
                self.adopt(OwnedShard(claim.shard, answer))
                continue
            # The schedule or a move is ahead of the map that we read; the next one will fit.
            self.refresh_soon()
            if answer is not Answer.STALE:
                self._awaited.append(claim)
        return any(isinstance(answer, Claimed) for answer in answers)

    def adopt(self, owned: OwnedShard) -> None:
        self.owned[owned.shard] = owned
        self._adopted(owned)

    def handed_out(self, shard: str) -> None:
        """It came with a fetch, so the list has it."""
        self._stranding.handed_out(shard)

    # --- letting go -------------------------------------------------------------------------

    def release(self, shard: str) -> None:
        self.owned.pop(shard, None)
        self.leaving.pop(shard, None)
        self._resting.forget(shard)
        self._released(shard)

    def release_all(self) -> None:
        for shard in list(self.owned):
            self.release(shard)

    def drop_all(self) -> None:
        """After any doubt: what is still ours is claimed anew."""
        self.release_all()
        self._awaited = []
        self.refresh_at_once()
