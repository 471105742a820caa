"""An SLA's loop that carries moves of shards out the resource-centric way (Elasticutor, sections 1 and 2.2).

Whoever is upstream is paused; what is queued at the operator is worked off; the shards go to their executors,
and their owners claim them; then it goes on upstream. Everything else is the product's loop: how shards and
executors are looked at, how a decision becomes schedules. Neighbours: `repartitioned_run` puts it in the
place of the product's, `omega` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.control.policy import Policy
from penstock.schedule.record import OperatorSchedule
from penstock.sla.decision_record import DecisionKeeper
from penstock.sla.look import SlaLook
from penstock.sla.loop import SlaLoop
from penstock.sla.promise import Promise
from penstock.sla.turn import SlaEvent, SlaTurn, Ways

STILL_US = 60_000
"""Upstream has stopped when it has committed nothing for so long, under a load of several records in it."""
MOVE_US_MAX = 600_000_000
"""A pause takes as long as the longest queue."""
TOLD = "repartitioned: "
"""What the event of each repartitioning begins with, after the SLA's name."""


@dataclass(slots=True)
class _Repartitioning:
    """One under way. `moved` is the schedule that waits for the pause; `paused` are the upstream schedules as
    they were."""

    moved: OperatorSchedule
    paused: Mapping[str, OperatorSchedule]
    begun_us: int
    commits: int = -1
    still_since_us: int = 0
    drained_us: int = 0


class RepartitioningLoop(SlaLoop):
    """For an SLA about one operator. Its upstream operators are paused by taking their tasks."""

    def __init__(
        self,
        promise: Promise,
        policy: Policy,
        shards: Mapping[str, Sequence[str]],
        edges: Sequence[tuple[str, str]],
        log: DecisionKeeper,
    ) -> None:
        super().__init__(promise, policy, shards, edges, log, Ways(move_us_max=MOVE_US_MAX))
        self._upstream = tuple(upstream for upstream, operator in edges if operator == promise.operator)
        self._now: _Repartitioning | None = None

    @property
    def awaits_tasks(self) -> bool:
        """Each step comes as soon as the one before is done."""
        return self._now is not None or super().awaits_tasks

    def examine(self, look: SlaLook) -> SlaTurn:
        return self._go_on(super().examine(self._as_decided(look)), look)

    def follow(self, look: SlaLook) -> SlaTurn:
        return self._go_on(super().follow(self._as_decided(look)), look)

    def _as_decided(self, look: SlaLook) -> SlaLook:
        """To the product's loop the shards are on their way from when they are to move."""
        now = self._now
        if now is None or self._is_published(now, look):
            return look
        schedules = {**look.places.schedules, self.promise.operator: now.moved}
        return replace(look, places=replace(look.places, schedules=schedules))

    def _is_published(self, now: _Repartitioning, look: SlaLook) -> bool:
        return look.places.schedules[self.promise.operator].version > now.moved.version

    def _go_on(self, turn: SlaTurn, look: SlaLook) -> SlaTurn:
        now = self._now
        if now is None:
            return self._hold_back(turn, look)
        if not self._is_published(now, look):
            if not self._is_drained(now, look):
                return turn
            now.drained_us = look.at_us
            return replace(turn, schedules=(*turn.schedules, now.moved))
        if not self._is_claimed(now, look):
            return turn
        self._now = None
        resumed = [
            replace(look.places.schedules[name], executors=before.executors)
            for name, before in now.paused.items()
        ]
        return replace(
            turn, schedules=(*turn.schedules, *resumed), events=(*turn.events, self._told(now, look))
        )

    def _hold_back(self, turn: SlaTurn, look: SlaLook) -> SlaTurn:
        """Hold a schedule that moves shards back, and pause those upstream in its place."""
        operator = self.promise.operator
        before = look.places.schedules[operator].shards
        moved = next(
            (one for one in turn.schedules if one.operator == operator and one.shards != before), None
        )
        if moved is None:
            return turn
        paused = {name: look.places.schedules[name] for name in self._upstream}
        self._now = _Repartitioning(moved, paused, look.at_us)
        halted = [
            replace(
                schedule,
                executors=tuple(replace(executor, tasks=0) for executor in schedule.executors),
            )
            for schedule in paused.values()
        ]
        others = [one for one in turn.schedules if one is not moved]
        return replace(turn, schedules=(*others, *halted))

    def _is_drained(self, now: _Repartitioning, look: SlaLook) -> bool:
        """Nobody upstream works, and nothing waits to be sent or worked."""
        upstream = [known for name in self._upstream for known in look.samples.counters[name].values()]
        here = list(look.samples.counters[self.promise.operator].values())
        commits = sum(-1 if known is None else known.commit for known in upstream)
        if commits != now.commits:
            now.commits, now.still_since_us = commits, look.at_us
        return (
            look.at_us - now.still_since_us >= STILL_US
            and all(known is not None and known.outbox_entries == 0 for known in upstream)
            and all(known is not None and known.inbox_entries == 0 for known in here)
        )

    def _is_claimed(self, now: _Repartitioning, look: SlaLook) -> bool:
        return all(
            known is not None and known.executor == now.moved.shards[shard].executor
            for shard, known in look.samples.counters[self.promise.operator].items()
        )

    def _told(self, now: _Repartitioning, look: SlaLook) -> SlaEvent:
        drained_ms, paused_ms = (now.drained_us - now.begun_us) // 1000, (look.at_us - now.begun_us) // 1000
        text = f"drained for {drained_ms} ms, paused for {paused_ms} ms"
        return SlaEvent(f"{self.promise.name}: {TOLD}{text}")
