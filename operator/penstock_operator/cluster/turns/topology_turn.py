"""One turn of a topology's loop: look at everything, ask the pure decision, carry it out.

Neighbours: `reconcile` says when; `cluster_picture`, `observe` and `store_reader` look, `decide` decides,
`apply`, `topology_status` and `schedule_status` write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError
from penstock.store.keys import kept_schedule
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.carrying_out.schedule_status import ScheduleStatusWriter
from penstock_operator.cluster.carrying_out.side_by_side import side_by_side
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.decisions.actions import Decision, Event
from penstock_operator.cluster.decisions.decide import decide
from penstock_operator.cluster.decisions.identity import state_identity
from penstock_operator.cluster.decisions.recovery import newer_in_stores
from penstock_operator.cluster.kubernetes_api.lease import TermBehind
from penstock_operator.cluster.kubernetes_api.names import disruption_budget_name, schedule_name
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    TOPOLOGIES,
    Object,
    name_of,
)
from penstock_operator.cluster.locality.keeper import TablesKeeper
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.observing.kept_schedules import KeptSchedules
from penstock_operator.cluster.observing.observe import disruption_budget_min
from penstock_operator.cluster.observing.observed import (
    KeptThere,
    LocalityView,
    Need,
    Observed,
    ObservedNode,
    ObservedSchedule,
    ObservedStore,
    ObservedTopology,
    SlaControl,
    StoreReading,
    TopologyKey,
)
from penstock_operator.cluster.observing.pairs_reader import PairsReader
from penstock_operator.cluster.observing.store_reader import StoreReader
from penstock_operator.cluster.stores.node_stores import as_left
from penstock_operator.cluster.stores.store_renewal import as_cordoned, as_to_be_left
from penstock_operator.cluster.turns.rest import looks_every_s, own_pace, rest_after, rests_s
from penstock_operator.cluster.turns.served_namespace import ServedNamespace
from penstock_operator.cluster.turns.work import Clocks, Leadership, Work
from penstock_operator.cluster.workers.schedule_figures import ScheduleFigures

_SOME = object()
_COUNTS_EVERY_S = 1.0
_STOPS_AT_ONCE = 5
"""So many turns in a row may end early and be followed by another one at once."""


class WorkersLogins(Protocol):
    """By which user workers log in to the stores, and that they can."""

    def own_users_in(self, namespace: str) -> bool:
        """Whether those of a namespace as their topology's own. Raises StoreUnreachable while that is not
        known."""

    async def admit(self, namespace: str, topology_uid: str) -> None:
        """Before pods of a topology are made. Raises errors of the cluster."""


class TopologyTurns:
    """The turns of the loops of one namespace's topologies. `works` are those of all namespaces; `control`
    answers what LatencySLAs control of a topology of this one, `renewing` the id of the store that is being
    renewed ("" for none), `lost` which stores are gone for good (id -> why); `wake_all` wakes all loops:
    there may be room now."""

    def __init__(
        self,
        served: ServedNamespace,
        picture: ClusterPicture,
        reader: StoreReader,
        kept: KeptSchedules,
        pairs: PairsReader,
        config: OperatorConfig,
        leadership: Leadership,
        clocks: Clocks,
        metrics: OperatorMetrics,
        works: Mapping[TopologyKey, Work],
        logins: WorkersLogins,
        *,
        control: Callable[[str], SlaControl],
        renewing: Callable[[], str],
        lost: Callable[[], Mapping[str, str]],
        wake_all: Callable[[], None],
        now_us: Callable[[], int],
    ) -> None:
        self._cluster = served.cluster
        self._mirror = served.mirror
        self._own = served.picture
        self._applier = served.applier
        self._namespace = served.name
        self._picture = picture
        self._reader = reader
        self._kept = kept
        self._pairs = pairs
        self._config = config
        self._leadership = leadership
        self._clocks = clocks
        self._metrics = metrics
        self._works = works
        self._logins = logins
        self._control = control
        self._renewing = renewing
        self._lost = lost
        self._wake_all = wake_all
        self._now_us = now_us
        self._counted = (-math.inf, 0)
        """When those that rest were counted, and how many they were."""
        self._nodes: tuple[tuple[object, ...], tuple[ObservedNode, ...]] | None = None
        """Of the last look: all nodes, all stores, which one is being renewed; how topologies are to see the
        nodes then."""
        self._seen_stores: tuple[tuple[ObservedStore, ...], tuple[ObservedStore, ...]] = ((), ())
        """Of the last look: all stores, how topologies of a further namespace are to see them."""

    async def turn(self, name: str, work: Work) -> float:
        """One look at a topology and what follows; seconds to the next one."""
        manifest = self._mirror.get(TOPOLOGIES, name)
        if manifest is None:
            return math.inf
        topology = self._own.parse(work.look, manifest)
        code = await self._own.code(work.look)
        readings = await self._read(topology)
        strays = await self._read_strays(topology, readings)
        kept = await self._read_kept(work, topology)
        self._check_term(kept)
        await self._look_at_tables(work, topology, readings)
        has_login = self._logins.own_users_in(self._namespace)
        if has_login and topology.plan is not None and not topology.is_deleting:
            await self._logins.admit(self._namespace, _state_uid(topology, self._own.schedules_of(name)))
        # From here to the writes nothing is awaited: one picture.
        observed = replace(self._observe(work, topology, code, readings), kept=kept, strays=strays)
        now_s = self._clocks.monotonic_s()
        if work.rest is not None and work.rest.lasts(observed, now_s, rests_s(self._resting())):
            return self._looks_every_s(name)
        work.rest = None
        before, decision = work.memory, decide(observed, work.memory, now_s)
        self._metrics.decided()
        if await self._carry_out(work, manifest, decision):
            work.rest = rest_after(observed, before, decision, now_s)
        return decision.next_look_s if work.rest is None else self._looks_every_s(name)

    async def _look_at_tables(
        self, work: Work, topology: ObservedTopology, readings: Mapping[str, StoreReading | None]
    ) -> None:
        schedules = self._own.schedules_of(topology.name)
        if work.tables is None:
            work.tables = TablesKeeper(self._pairs, self._now_us)
        await work.tables.look(topology, _state_uid(topology, schedules), schedules, readings, work.leeway)

    def _looks_every_s(self, name: str) -> float:
        return looks_every_s(self._resting()) * own_pace(name)

    def _resting(self) -> int:
        """How many do, as counted within the last second."""
        now_s = self._clocks.monotonic_s()
        if now_s - self._counted[0] >= _COUNTS_EVERY_S:
            self._counted = (now_s, sum(work.rest is not None for work in self._works.values()))
        return self._counted[1]

    async def _carry_out(self, work: Work, manifest: Object, decision: Decision) -> bool:
        """Whether all of it was: figures are written now and then only."""
        work.memory = decision.memory
        work.leeway = decision.leeway
        if work.need != decision.need:
            work.need = decision.need
            self._wake_all()
        work.phase = str(decision.status.get("phase", work.phase))
        conditions = {one["type"]: one["status"] for one in decision.status.get("conditions", ())}
        self._metrics.held_by_quota(
            self._key(name_of(manifest)), is_held=conditions.get("QuotaExceeded") == "True"
        )
        status, schedules = self._writers(work)
        try:
            outcome = await self._applier.carry_out(decision.actions)
        except PermanentError as error:
            told = _with_refusal(decision, work, str(error))
            await work.telling.ended()
            await status.write(manifest, told.status, told.events)
            raise
        work.refusal = ""
        is_news = work.tries.tried(
            outcome.refused,
            decision.awaited,
            int(manifest["metadata"].get("generation", 0)),
            self._clocks.monotonic_s(),
            is_complete=not outcome.stopped,
        )
        work.stops = work.stops + 1 if outcome.stopped else 0
        # What another writer changed is looked at anew at once; if that does not help, in its time.
        if is_news or 0 < work.stops <= _STOPS_AT_ONCE:
            work.wake.set()
        await work.telling.ended()
        figures = () if outcome.stopped else decision.schedules
        writing = _tell(manifest, decision, status, schedules, figures)
        is_told = await work.telling.begin(writing, work.wake)
        return is_told and not outcome.stopped

    def _writers(self, work: Work) -> tuple[StatusWriter, ScheduleStatusWriter]:
        if work.status is None:
            work.status = StatusWriter(
                self._cluster, self._clocks.monotonic_s, self._clocks.wall_s, self._leadership.reporter
            )
        if work.schedules is None:
            work.schedules = ScheduleStatusWriter(self._cluster, self._mirror, self._clocks.monotonic_s)
        return work.status, work.schedules

    async def _read(self, topology: ObservedTopology) -> dict[str, StoreReading | None]:
        """A reading of every store that this topology has something in."""
        schedules = self._own.schedules_of(topology.name)
        homes: dict[str, list[str]] = {}
        wanted: set[str] = set()
        for one in schedules:
            wanted |= {store.id for store in one.schedule.stores}
            for shard, place in one.schedule.shards.items():
                homes.setdefault(place.home, []).append(shard)
        wanted |= {pod.store for pod in self._own.workers_of(topology.name)} | homes.keys()
        addresses = {store.id: store.address for store in self._picture.stores() if store.id in wanted}
        uid = _state_uid(topology, schedules)
        readings = await self._reader.read(uid, addresses, homes)
        unreadable = self._reader.unreadable(uid, addresses)
        for store, reading in readings.items():
            if reading is None and store not in unreadable:  # which is nothing about the store
                self._metrics.unread(store)
        return readings

    def _stores(self) -> tuple[ObservedStore, ...]:
        stores, lost = self._picture.stores(), self._lost()
        if self._namespace != self._config.namespace:
            stores = self._for_others(stores)
        stores = as_to_be_left(self._picture.nodes(), stores, self._config, self._renewing())
        if not lost:
            return stores
        return tuple(replace(one, lost=lost[one.id]) if one.id in lost else one for one in stores)

    def _for_others(self, stores: tuple[ObservedStore, ...]) -> tuple[ObservedStore, ...]:
        if self._seen_stores[0] is not stores:
            self._seen_stores = (stores, tuple(one.for_others() for one in stores))
        return self._seen_stores[1]

    async def _read_strays(
        self, topology: ObservedTopology, readings: Mapping[str, StoreReading | None]
    ) -> dict[str, str]:
        """Who has the shards that are not at home, while a store is lost: one that has yet to go there is
        where it was."""
        schedules, lost = self._own.schedules_of(topology.name), self._lost()
        if not lost:
            return {}
        missed = [
            shard
            for one in schedules
            if any(store.id in lost for store in one.schedule.stores)
            for shard, place in one.schedule.shards.items()
            if place.home in lost
            or ((reading := readings.get(place.home)) is not None and reading.shards.get(shard) is None)
        ]
        if not missed:
            return {}
        # one that was taken for lost may answer, from a machine that is only cut off
        asked = {
            one.id: one.address
            for one in self._picture.stores()
            if readings.get(one.id) is not None and one.id not in lost
        }
        told = await self._reader.read(_state_uid(topology, schedules), asked, dict.fromkeys(asked, missed))
        return {
            shard: store
            for store, reading in told.items()
            if reading is not None
            for shard, counters in reading.shards.items()
            if counters is not None
        }

    def _check_term(self, kept: Mapping[str, KeptThere | None]) -> None:
        """Stores take nothing of an earlier term than they have seen."""
        schedules = (one.schedule for there in kept.values() if there is not None for one in there.values())
        latest = max((schedule.term for schedule in schedules if schedule is not None), default=0)
        if latest > self._leadership.term:
            told = f"a store has seen term {latest}, a later one than {self._leadership.term}"
            raise TermBehind(told, latest)

    async def _read_kept(self, work: Work, topology: ObservedTopology) -> dict[str, KeptThere | None]:
        """What the stores know of Schedules that are not there; and, once, of those that are: they may be
        older than what the stores work by, where an older state of the cluster was restored."""
        if topology.plan is None or topology.is_deleting:
            return {}
        seen = {one.schedule.operator: one for one in self._own.schedules_of(topology.name)}
        missing = [s.operator for s in topology.plan.stages if s.operator not in seen]
        unknown = [one for one in seen.values() if one.uid not in work.compared]
        uid = _state_uid(topology, tuple(seen.values()))
        everywhere = {store.id: store.address for store in self._picture.stores() if store.ready}
        if not missing:
            if not unknown:
                return {}
            homes = {store.id for one in unknown for store in one.schedule.stores}
            names = {one.schedule.operator: self._kept_name(one.name) for one in unknown}
            kept = await self._kept.read(uid, names, {i: a for i, a in everywhere.items() if i in homes})
            if not newer_in_stores(unknown, kept):
                if homes == {store for store, there in kept.items() if there is not None}:
                    work.compared |= {one.uid for one in unknown}
                return {}
        stages = (stage.operator for stage in topology.plan.stages)
        names = {operator: self._kept_name(schedule_name(topology.name, operator)) for operator in stages}
        return await self._kept.read(uid, names, everywhere)

    def _kept_name(self, schedule: str) -> str:
        return kept_schedule(self._namespace, schedule, self._config.namespace)

    def _observe(
        self,
        work: Work,
        topology: ObservedTopology,
        code: Mapping[str, str] | None,
        readings: Mapping[str, StoreReading | None],
    ) -> Observed:
        name = topology.name
        budget = self._mirror.get(DISRUPTION_BUDGETS, disruption_budget_name(name))
        return Observed(
            topology=topology,
            config=self._config,
            term=self._leadership.term,
            wall_time=self._clocks.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            pods=self._own.workers_of(name),
            schedules=self._own.schedules_of(name),
            nodes=self._nodes_for(name),
            stores=self._stores(),
            readings=readings,
            unreadable=self._unreadable(topology, readings),
            config_maps=tuple(name_of(one) for one in self._mirror.of(CONFIG_MAPS, name)),
            disruption_budget_min=disruption_budget_min(budget),
            code=code,
            needs=self._needs_beside(name),
            refused=work.tries.seen(topology.generation, self._clocks.monotonic_s()),
            sla=self._control(name),
            locality=work.tables.view(self._own.schedules_of(name)) if work.tables else LocalityView(),
            spark_workers=self._own.spark_workers_of(name),
            own_users=self._logins.own_users_in(self._namespace),
        )

    def _unreadable(
        self, topology: ObservedTopology, readings: Mapping[str, StoreReading | None]
    ) -> Mapping[str, str]:
        silent = {
            one.id: one.address for one in self._picture.stores() if readings.get(one.id, _SOME) is None
        }
        if not silent:
            return {}
        uid = _state_uid(topology, self._own.schedules_of(topology.name))
        return self._reader.unreadable(uid, silent)

    def _nodes_for(self, topology: str) -> tuple[ObservedNode, ...]:
        """As topologies are to see them."""
        nodes, renewing = self._picture.nodes(self._key(topology)), self._renewing()
        stores = self._picture.stores() if renewing else ()
        seen = (nodes, stores, renewing)
        if self._nodes is None or any(a is not b for a, b in zip(self._nodes[0], seen, strict=True)):
            self._nodes = (seen, as_cordoned(as_left(nodes, self._config), stores, self._config, renewing))
        return self._nodes[1]

    def _needs_beside(self, topology: str) -> tuple[Need, ...]:
        """What the others have no room for."""
        own = self._key(topology)
        found = [(key, one.need) for key, one in self._works.items() if one.need is not None and key != own]
        return tuple(need for _, need in sorted(found, key=lambda of: of[0]))

    def _key(self, topology: str) -> TopologyKey:
        return TopologyKey(self._namespace, topology)


async def _tell(
    manifest: Object,
    decision: Decision,
    status: StatusWriter,
    schedules: ScheduleStatusWriter,
    figures: Sequence[ScheduleFigures],
) -> bool:
    """Whether all of it stands there."""
    writing = status.write(manifest, decision.status, decision.events)
    _, are_told = await side_by_side(writing, schedules.write(figures))
    return are_told and status.has_told(decision.status)


def _with_refusal(decision: Decision, work: Work, message: str) -> Decision:
    """The status is written all the same, and people are told once."""
    if message == work.refusal:
        return decision
    work.refusal = message
    return replace(decision, events=(*decision.events, Event("Warning", "WriteRefused", message)))


def _state_uid(topology: ObservedTopology, schedules: tuple[ObservedSchedule, ...]) -> str:
    if topology.plan is None:
        return topology.uid
    return state_identity(topology, topology.plan, schedules).uid
