"""Keeps the LatencySLAs of one topology: looks, has their loops decide, writes Schedules and statuses.

It runs beside the topology's own loop, as often as the most frequent SLA looks. Both write the same
Schedules, each on condition of the resourceVersion that it has seen: whose write is refused looks again. What
it controls (`SlaControl`) that loop leaves alone, what that loop leaves it (`SlaLeeway`) it works within. All
but the objects may be lost at any time. Neighbours: `sla.objects` judges what is asked, `sla.look` makes
looks, `penstock.sla.loop` decides, `reconcile` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from penstock.api.specs.sizes_spec import WORKERS_MAX
from penstock.schedule.record import OperatorSchedule, StorePlace
from penstock.sla.promise import Promise, keyed_edges
from penstock.supervision.settled import TREATMENT_DEADLINE_S
from penstock_operator.cluster.carrying_out.topology_schedules import TopologySchedules
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.decisions.identity import state_identity
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.observing.core_budget import CoreBudget
from penstock_operator.cluster.observing.observed import (
    ObservedSchedule,
    ObservedTopology,
    SlaControl,
    SlaMet,
    StoreReading,
)
from penstock_operator.cluster.observing.store_reader import StoreReader
from penstock_operator.cluster.sla.decisions import RecentDecisions
from penstock_operator.cluster.sla.look import HeardTasks, homes_of, look_of, places_of, silent_stores
from penstock_operator.cluster.sla.objects import AskedOfTopology, JudgedSla, ObservedSla
from penstock_operator.cluster.sla.status import SlaMemory, Standing, met_in, sla_status

if TYPE_CHECKING:
    from penstock.sla.look import SlaLook
    from penstock.sla.loop import SlaLoop
    from penstock.sla.standing import SlaLine
    from penstock.sla.turn import SlaEvent

IDLE_LOOK_S = 5.0
"""Without an SLA that can be kept."""
ASKED_WITHIN_US = 60_000_000
"""A worker is asked for as long after a decision has found no room."""


class TopologyLoop(Protocol):
    """The topology's own loop, as far as its SLAs know it."""

    def asked(self) -> AskedOfTopology:
        """What is asked now, and of what."""
        ...

    def leeway(self) -> SlaLeeway:
        """What it leaves to the SLAs now."""
        ...

    def ready_stores(self) -> Mapping[str, StorePlace]:
        """By id, those that are there."""
        ...

    def unread(self, store: str) -> None:
        """A store gave no answer."""
        ...

    def measured(self, sla: str, line: SlaLine | None, cores: float) -> None:
        """How an SLA stands, and the cores that the tasks in its scope ask for; None: it is not kept."""
        ...

    def wake(self) -> None:
        """Something that it goes by is another: it is to look."""
        ...


@dataclass(slots=True)
class _Shown:
    """One LatencySLA object: its status, and its loop while it is kept."""

    name: str
    writer: StatusWriter
    decisions: RecentDecisions
    former: Mapping[str, Any]
    memory: SlaMemory = field(default_factory=SlaMemory)
    loop: SlaLoop | None = None
    made_of: tuple[Any, ...] = ()
    told: list[SlaEvent] = field(default_factory=list)
    lacked_us: int | None = None
    """When a decision last found no worker with room, until one has found some."""

    def asks_worker(self, now_us: int) -> bool:
        return self.lacked_us is not None and now_us - self.lacked_us < ASKED_WITHIN_US


class SlaKeeper:
    """For one topology, by name. `now_us` is a clock that is never set."""

    def __init__(
        self,
        topology: TopologyLoop,
        reader: StoreReader,
        schedules: TopologySchedules,
        budget: CoreBudget,
        new_writer: Callable[[], StatusWriter],
        now_us: Callable[[], int],
    ) -> None:
        self._topology = topology
        self._reader = reader
        self._schedules = schedules
        self._budget = budget
        self._new_writer = new_writer
        self._now_us = now_us
        self._shown: dict[str, _Shown] = {}
        self._heard = HeardTasks()
        self._asked = False

    @property
    def control(self) -> SlaControl:
        """What the topology's own decisions leave alone: it follows from the objects before anything was
        looked at, so that a new leader undoes nothing."""
        judged = self._topology.asked().judged()
        promises = [one.promise for one in judged if one.promise is not None and not one.promise.dry_run]
        loops = [one.loop for one in self._shown.values() if one.loop is not None]
        acting = [loop for loop in loops if not loop.promise.dry_run]
        return SlaControl(
            limits={name: given for one in promises for name, given in one.scope.limits.items()},
            treated=frozenset(name for loop in acting for name in loop.treatments),
            asks_worker=self._asks_worker(),
            workers_min=max((one.workers_min for one in promises), default=0),
            workers_max=min((one.workers_max for one in promises), default=WORKERS_MAX),
            met=tuple(self._met(one.seen) for one in judged),
        )

    def _met(self, seen: ObservedSla) -> SlaMet:
        shown = self._shown.get(seen.uid)
        status = shown.former if shown is not None else seen.manifest.get("status") or {}
        return met_in(seen.name, status)

    async def turn(self) -> float:
        """One look at all SLAs of the topology; seconds to the next one. Raises the cluster's errors."""
        asked = self._topology.asked()
        judged = asked.judged()
        self._forget({one.seen.uid for one in judged})
        schedules = self._schedules.seen()
        for one in judged:
            self._renew(one, asked.topology, schedules)
        loops = [shown.loop for one in judged if (shown := self._shown[one.seen.uid]).loop is not None]
        due = [loop for loop in loops if loop is not None and loop.due(self._now_us())]
        if due and asked.topology is not None:
            await self._look(due, asked.topology, schedules)
        leeway = self._topology.leeway()
        for one in judged:
            await self._show(one, leeway)
        asks_worker = self._asks_worker()
        if asks_worker != self._asked:
            self._asked = asks_worker
            self._topology.wake()
        return min((loop.interval_s for loop in loops if loop is not None), default=IDLE_LOOK_S)

    def _asks_worker(self) -> bool:
        now_us = self._now_us()
        return any(one.loop is not None and one.asks_worker(now_us) for one in self._shown.values())

    # --- which SLAs there are ---------------------------------------------------------------------

    def _forget(self, uids: set[str]) -> None:
        gone = self._shown.keys() - uids
        for uid in gone:
            self._topology.measured(self._shown.pop(uid).name, None, 0.0)
        if gone:
            self._topology.wake()

    def _renew(
        self,
        judged: JudgedSla,
        topology: ObservedTopology | None,
        schedules: Sequence[ObservedSchedule],
    ) -> None:
        """A loop for each SLA that can be kept; another one when something that it rests on is another."""
        seen = judged.seen
        shown = self._shown.get(seen.uid)
        if shown is None:
            former = seen.manifest.get("status") or {}
            shown = self._shown[seen.uid] = _Shown(
                seen.name, self._new_writer(), RecentDecisions(former), former
            )
        shards = {one.schedule.operator: tuple(sorted(one.schedule.shards)) for one in schedules}
        promise = judged.promise
        is_ready = promise is not None and promise.scope.targets.keys() <= shards.keys()
        if promise is None or topology is None or topology.plan is None or not is_ready:
            shown.loop, shown.made_of = None, ()
            return
        edges = keyed_edges(topology.plan)
        shards = {name: shards[name] for name in promise.scope.targets}
        made_of = (topology.uid, promise, edges, shards)
        if shown.loop is None or shown.made_of != made_of:
            shown.loop, shown.made_of = _loop(promise, edges, shards, shown.decisions), made_of
            self._topology.wake()

    # --- a look -----------------------------------------------------------------------------------

    async def _look(
        self,
        due: Sequence[SlaLoop],
        topology: ObservedTopology,
        schedules: Sequence[ObservedSchedule],
    ) -> None:
        scope = sorted({name for loop in due for name in loop.promise.scope.targets})
        in_scope = [seen.schedule for seen in schedules if seen.schedule.operator in scope]
        stores = self._topology.ready_stores()
        sources = {name for loop in due for name in loop.promise.sources}
        upstream = [seen.schedule for seen in schedules if seen.schedule.operator in sources]
        readings = await self._read(stores, topology, schedules, in_scope, upstream)
        now_us = self._now_us()
        spoke = self._heard.take(readings, now_us)
        silent = silent_stores(in_scope, readings)
        if silent:
            for loop in due:
                loop.away(now_us, f"no answer from the stores of {', '.join(silent)}")
            return
        # Others may have written while the stores were read: what is decided now is decided on what is now.
        schedules = self._schedules.seen()
        look = look_of(now_us, scope, schedules, self._topology.leeway(), readings, spoke)
        for loop in due:
            look = await self._examine(loop, look, topology, stores)

    async def _read(
        self,
        stores: Mapping[str, StorePlace],
        topology: ObservedTopology,
        schedules: Sequence[ObservedSchedule],
        in_scope: Sequence[OperatorSchedule],
        upstream: Sequence[OperatorSchedule],
    ) -> Mapping[str, StoreReading | None]:
        """One call to each store that is home of a shard in scope, or beside a worker that may run some, or
        some of a source whose lag is asked."""
        homes = homes_of(in_scope)
        wanted = homes.keys() | {
            worker.store for schedule in (*in_scope, *upstream) for worker in schedule.workers
        }
        addresses = {store.id: store.address for store in stores.values() if store.id in wanted}
        uid = _state_uid(topology, schedules)
        readings = await self._reader.read(uid, addresses, homes)
        unreadable = self._reader.unreadable(uid, addresses)
        for store, reading in readings.items():
            if reading is None and store not in unreadable:  # which is nothing about the store
                self._topology.unread(store)
        return readings

    async def _examine(
        self,
        loop: SlaLoop,
        look: SlaLook,
        topology: ObservedTopology,
        stores: Mapping[str, StorePlace],
    ) -> SlaLook:
        scope, key = loop.promise.scope, topology.key
        # Nothing is awaited from here until what is asked for is promised.
        cores_max = self._budget.left_to(key, scope.targets)
        turn = loop.examine(replace(look, leeway=replace(look.leeway, cores_max=cores_max)))
        shown = next(one for one in self._shown.values() if one.loop is loop)
        shown.told += turn.events
        if turn.lacks_room:
            shown.lacked_us = look.at_us
        elif turn.schedules:
            shown.lacked_us = None
        asked = {one.operator: one.tasks * scope.cores_of(one.operator) for one in turn.schedules}
        with self._budget.promised(key, asked):
            for schedule in turn.schedules:
                if not await self._schedules.write(schedule, topology, stores):
                    loop.refused(schedule.operator)
        if not turn.schedules:
            return look
        return replace(look, places=places_of(self._schedules.seen(), self._topology.leeway()))

    # --- showing ----------------------------------------------------------------------------------

    async def _show(self, judged: JudgedSla, leeway: SlaLeeway) -> None:
        shown, seen = self._shown[judged.seen.uid], judged.seen
        line = shown.loop.line() if shown.loop is not None else None
        self._topology.measured(seen.name, line, _cores(shown.loop, line))
        reason, message = judged.reason, judged.message
        if line is None and judged.promise is not None:
            reason, message = "Held", leeway.held or "the topology is starting"
        standing = Standing(
            at_us=self._now_us(),
            generation=seen.generation,
            reason=reason,
            message=message,
            line=line,
            treatment="; ".join(shown.loop.treatments.values()) if shown.loop is not None else "",
            decisions=shown.decisions.entries,
            last_scaled=shown.decisions.last_scaled,
            told=shown.told,
            is_at_rest=leeway.is_at_rest,
        )
        status, events, shown.memory = sla_status(standing, shown.former, shown.memory)
        was_met, is_met = (met_in(seen.name, one).status for one in (shown.former, status))
        shown.former, shown.told = status, []
        if is_met != was_met:
            self._topology.wake()
        await shown.writer.write(dict(seen.manifest), status, events)


def _loop(
    promise: Promise,
    edges: Sequence[tuple[str, str]],
    shards: Mapping[str, Sequence[str]],
    decisions: RecentDecisions,
) -> SlaLoop:
    # Loaded where there is an SLA: policies need numpy, and take a while.
    from penstock.sla.loop import SlaLoop
    from penstock.sla.policies import has_single_tasks, policy_of
    from penstock.sla.turn import Ways

    ways = Ways(
        move_us_max=int(TREATMENT_DEADLINE_S * 1e6),
        are_tasks_single=has_single_tasks(promise.policy),
        has_remote_cores=False,
        keeps_timeline=False,
    )
    return SlaLoop(promise, policy_of(promise, edges), shards, edges, decisions, ways)


def _cores(loop: SlaLoop | None, line: SlaLine | None) -> float:
    """What the tasks in its scope ask for: all tasks of a topology ask for the same."""
    if loop is None or line is None:
        return 0.0
    scope = loop.promise.scope
    return line.tasks * scope.cores_of(next(iter(scope.targets)))


def _state_uid(topology: ObservedTopology, schedules: Sequence[ObservedSchedule]) -> str:
    if topology.plan is None:
        return topology.uid
    return state_identity(topology, topology.plan, schedules).uid
