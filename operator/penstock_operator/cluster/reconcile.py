"""The operator's loops: for each Topology one, and one for the node stores. Level-based.

A turn looks at everything (mirror and stores), asks the pure decision, and carries it out. It runs when
something that it looks at has changed, when the decision said so, and every few seconds anyway; nothing rests
on an event. Each loop is a task of its own, so that one whose stores hang holds up no other. What a turn
learned is in `_Work`; it may be lost at any time. Neighbours: `mirror` wakes, `cluster_picture`, `observe`
and `store_reader` look, `decide` and `node_stores` decide, `apply` and `topology_status` write, `health`
watches the watchman.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError, RetryError, SkipTickError
from penstock.schedule.record import StorePlace
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.carrying_out.events import event_object
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.carrying_out.schedule_status import ScheduleStatusWriter
from penstock_operator.cluster.carrying_out.topology_schedules import TopologySchedules
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.decisions.actions import Decision, Event, StoresDecision
from penstock_operator.cluster.decisions.decide import decide
from penstock_operator.cluster.decisions.identity import state_identity
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.kubernetes_api.lease import LeaseLost
from penstock_operator.cluster.kubernetes_api.mirror import WATCHED, Mirror
from penstock_operator.cluster.kubernetes_api.names import disruption_budget_name
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LATENCY_SLAS,
    NODES,
    SCHEDULES,
    STATEFUL_SETS,
    TOPOLOGIES,
    ClusterApi,
    Kind,
    Object,
    name_of,
    uid_of,
)
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture, TopologyLook, code_map
from penstock_operator.cluster.observing.core_budget import CoreBudget
from penstock_operator.cluster.observing.observe import (
    disruption_budget_min,
    is_of,
    is_store,
)
from penstock_operator.cluster.observing.observed import (
    Need,
    Observed,
    ObservedSchedule,
    ObservedTopology,
    Refused,
    SlaControl,
    StoreReading,
)
from penstock_operator.cluster.observing.store_reader import StoreReader
from penstock_operator.cluster.sla.keeper import SlaKeeper
from penstock_operator.cluster.sla.objects import AskedOfTopology, ObservedSla, observe_sla, topology_of
from penstock_operator.cluster.stores.node_stores import decide_stores
from penstock_operator.cluster.stores.store_renewal import RenewalMemory, as_cordoned, decide_renewal

_LOG = logging.getLogger(__name__)

STALLED_S = 60.0
"""A loop without the end of a turn for so long does not work."""
_GAP_S = 0.05
"""Between two turns of a loop: what changes together is looked at together."""
_LOOK_S_MAX = 5.0
_RELIST_S = 60.0
_BACKOFF_S_MIN = 0.5
_BACKOFF_S_MAX = 15.0
_STORES = "stores"
_TOPOLOGY = "topology"
_SLA = "sla"
_LEEWAY_AGE_S = 15.0
"""What a topology's loop has left to its SLAs holds no longer without another turn."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """`monotonic_s` is what decisions reckon with, `wall_s` what people read."""

    monotonic_s: Callable[[], float]
    wall_s: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Leadership:
    """What this process leads by: its term, and its name in events."""

    term: int
    reporter: str


@dataclass(slots=True)
class _Work:
    """One loop, and what its last turn left. All but `task` may be lost."""

    wake: asyncio.Event
    turned_s: float
    task: asyncio.Task[None] | None = None
    keeper: SlaKeeper | None = None
    """Of a loop that keeps the LatencySLAs of a topology."""
    leeway: SlaLeeway = SlaLeeway()  # noqa: RUF009 - frozen
    memory: Memory = field(default_factory=Memory)
    status: StatusWriter | None = None
    schedules: ScheduleStatusWriter | None = None
    look: TopologyLook = field(default_factory=TopologyLook)
    refused: dict[str, Refused] = field(default_factory=dict)
    need: Need | None = None
    phase: str = "Pending"
    refusal: str = ""
    """What the API server said to the last turn's write that it will never take."""


@dataclass(slots=True)
class _OwnLoop:
    """A topology's own loop, as its SLAs know it (`TopologyLoop`). `loops` are those of all topologies."""

    name: str
    loops: Mapping[str, _Work]
    picture: ClusterPicture
    mirror: Mirror
    monotonic_s: Callable[[], float]
    metrics: OperatorMetrics
    read: dict[str, tuple[str, ObservedSla]] = field(default_factory=dict)
    """LatencySLA's uid -> (generation, what it means)."""

    def asked(self) -> AskedOfTopology:
        work, manifest = self.loops.get(self.name), self.mirror.get(TOPOLOGIES, self.name)
        slas = [one for one in self.mirror.all(LATENCY_SLAS) if topology_of(one) == self.name]
        read: dict[str, tuple[str, ObservedSla]] = {}
        for one in slas:
            version, known = str(one["metadata"].get("generation", 0)), self.read.get(uid_of(one))
            meaning = known[1] if known is not None and known[0] == version else observe_sla(one)
            read[uid_of(one)] = (version, replace(meaning, manifest=one))
        self.read = read
        return AskedOfTopology(
            topology=self.picture.parse(work.look, manifest) if work and manifest else None,
            names=tuple(self.loops),
            slas=tuple(meaning for _, meaning in read.values()),
        )

    def leeway(self) -> SlaLeeway:
        work = self.loops.get(self.name)
        if work is None:
            return SlaLeeway()
        if self.monotonic_s() - work.turned_s > _LEEWAY_AGE_S:
            return SlaLeeway(held="the operator has not looked at the topology for a while")
        return work.leeway

    def ready_stores(self) -> Mapping[str, StorePlace]:
        return {
            store.node: StorePlace(store.id, store.node, store.address)
            for store in self.picture.stores()
            if store.ready
        }

    def unread(self, store: str) -> None:
        self.metrics.unread(store)

    def wake(self) -> None:
        work = self.loops.get(self.name)
        if work is not None:
            work.wake.set()


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads the stores: for the topologies' loops, and, apart and often, `samples` for their SLAs."""

    stores: StoreReader
    samples: StoreReader


class Reconciler:
    """Runs until cancelled, or until a write says that this process leads no more (LeaseLost)."""

    def __init__(
        self,
        cluster: ClusterApi,
        readers: Readers,
        config: OperatorConfig,
        leadership: Leadership,
        clocks: Clocks,
        metrics: OperatorMetrics,
    ) -> None:
        self._cluster = cluster
        self._readers = readers
        self._config = config
        self._leadership = leadership
        self._clocks = clocks
        self._ahead_s = clocks.wall_s() - clocks.monotonic_s()
        self._metrics = metrics
        self.mirror = Mirror(self._changed)
        self._budget = CoreBudget(config.cores_max, self.mirror)
        self._picture = ClusterPicture(cluster, self.mirror, config)
        self._applier = Applier(cluster, self.mirror, leadership.term, metrics)
        self._topologies: dict[str, _Work] = {}
        self._slas: dict[str, _Work] = {}
        """By the name of the topology that they are about, be it there or not."""
        self._stores = self._new_work()
        self._renewal = RenewalMemory()
        self._told: dict[str, Event] = {}
        self._names_changed = asyncio.Event()

    async def run(self) -> None:
        """Raises LeaseLost, PermanentError when the cluster cannot be looked at (in an ExceptionGroup)."""
        await self._first_list()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relist_forever())
            group.create_task(self._picture.foreign_forever())
            self._stores.task = group.create_task(self._loop(_STORES, "node stores", self._stores))
            while True:
                self._names_changed.clear()
                self._start_and_end_loops(group)
                await self._names_changed.wait()

    def stalled(self) -> str:
        """Which loop does not come to the end of its turn, in a sentence; "" when all do."""
        now_s = self._clocks.monotonic_s()
        loops = {"the node stores": self._stores, **{f"topology {k}": v for k, v in self._topologies.items()}}
        loops |= {f"the SLAs of topology {name}": work for name, work in self._slas.items()}
        for what, work in loops.items():
            if now_s - work.turned_s > STALLED_S:
                return f"the loop of {what} has not ended a turn for {now_s - work.turned_s:.0f} s"
        return ""

    # --- loops

    async def _first_list(self) -> None:
        while not self.mirror.is_complete():
            try:
                await self._relist()
            except RetryError as error:
                _LOG.warning("objects could not be listed: %s", error)
                await asyncio.sleep(_BACKOFF_S_MIN)

    async def _relist(self) -> None:
        for kind in WATCHED:
            self.mirror.relisted(kind, await self._cluster.list(kind))

    async def _relist_forever(self) -> None:
        """What a watch lost is found here."""
        while True:
            await asyncio.sleep(_RELIST_S)
            try:
                await self._relist()
            except (RetryError, SkipTickError) as error:
                _LOG.warning("objects could not be listed: %s", error)
            except PermanentError as error:
                _LOG.error("objects cannot be listed: %s", error)

    def _start_and_end_loops(self, group: asyncio.TaskGroup) -> None:
        there = {name_of(one) for one in self.mirror.all(TOPOLOGIES)}
        for name in there - self._topologies.keys():
            work = self._topologies[name] = self._new_work()
            work.task = group.create_task(self._loop(_TOPOLOGY, name, work))
        for name in self._topologies.keys() - there:
            work = self._topologies.pop(name)
            if work.task is not None:
                work.task.cancel()
            self._wake_all()  # there may be room now
        uids = self._picture.topology_uids() | {uid_of(one) for one in self.mirror.all(TOPOLOGIES)}
        for reader in (self._readers.stores, self._readers.samples):
            reader.keep_only({store.address for store in self._picture.stores()}, uids)
        self._start_and_end_sla_loops(group)

    def _start_and_end_sla_loops(self, group: asyncio.TaskGroup) -> None:
        named = {topology_of(one) for one in self.mirror.all(LATENCY_SLAS)}
        for name in named - self._slas.keys():
            work = self._slas[name] = self._new_work()
            work.keeper = self._new_keeper(name)
            work.task = group.create_task(self._loop(_SLA, name, work))
        for name in self._slas.keys() - named:
            work = self._slas.pop(name)
            if work.task is not None:
                work.task.cancel()
            self._wake(name)

    async def _loop(self, loop: str, name: str, work: _Work) -> None:
        """Turn after turn. Only LeaseLost ends it."""
        failures = 0
        while True:
            work.wake.clear()
            began_s = self._clocks.monotonic_s()
            try:
                look_s = await self._one_turn(loop, name, work)
                failures = 0
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001 - the edge of a turn: a bug in one must not end the others
                failures += 1
                look_s = min(_BACKOFF_S_MIN * 2 ** (failures - 1), _BACKOFF_S_MAX)
                self._tell(loop, name, error, failures)
            work.turned_s = self._clocks.monotonic_s()
            self._metrics.turned(loop, work.turned_s - began_s)
            self._metrics.phases({of: one.phase for of, one in self._topologies.items()})
            if loop == _SLA and not failures:
                # What an interval is measured from is its begin.
                look_s = max(0.0, look_s - _GAP_S - (work.turned_s - began_s))
            await asyncio.sleep(_GAP_S if not failures else look_s)
            # Not wait_for: before Python 3.12 it forgets a cancellation that comes as it is woken.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(look_s, _LOOK_S_MAX)):
                    await work.wake.wait()

    async def _one_turn(self, loop: str, name: str, work: _Work) -> float:
        if loop == _STORES:
            return await self._turn_stores()
        if work.keeper is not None:
            return await work.keeper.turn()
        return await self._turn(name, work)

    def _tell(self, loop: str, name: str, error: Exception, failures: int) -> None:
        kinds = ((RetryError, "retry"), (PermanentError, "permanent"), (SkipTickError, "skip"))
        kind = next((word for type_, word in kinds if isinstance(error, type_)), "bug")
        self._metrics.erred(loop, kind)
        if kind == "bug":
            _LOG.error("%s: a bug ended the turn", name, exc_info=error)
        elif failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, ... in a row
            _LOG.warning("%s: the turn ended: %s", name, error)

    # --- turns

    async def _turn(self, name: str, work: _Work) -> float:
        """One look at a topology and what follows; seconds to the next one."""
        manifest = self.mirror.get(TOPOLOGIES, name)
        if manifest is None:
            return _LOOK_S_MAX
        topology = self._picture.parse(work.look, manifest)
        code = await self._picture.code(work.look)
        readings = await self._read(topology)
        # From here to the writes nothing is awaited: one picture.
        observed = self._observe(work, topology, code, readings)
        decision = decide(observed, work.memory, self._clocks.monotonic_s())
        await self._carry_out(work, manifest, decision)
        return decision.next_look_s

    async def _carry_out(self, work: _Work, manifest: Object, decision: Decision) -> None:
        work.memory = decision.memory
        work.leeway = decision.leeway
        if work.need != decision.need:
            work.need = decision.need
            self._wake_all()
        work.phase = str(decision.status.get("phase", work.phase))
        if work.status is None:
            work.status = StatusWriter(
                self._cluster, self._clocks.monotonic_s, self._clocks.wall_s, self._leadership.reporter
            )
        if work.schedules is None:
            work.schedules = ScheduleStatusWriter(self._cluster, self.mirror, self._clocks.monotonic_s)
        try:
            outcome = await self._applier.carry_out(decision.actions)
        except PermanentError as error:
            told = _with_refusal(decision, work, str(error))
            await work.status.write(manifest, told.status, told.events)
            raise
        work.refusal = ""
        refused = {one.name: one for one in outcome.refused}
        if outcome.stopped or refused.keys() - work.refused.keys():
            work.wake.set()
        # One that was not tried again is not wanted any more, unless the turn has not come to it.
        kept = work.refused if outcome.stopped else {}
        work.refused = {name: why for name, why in (kept | refused).items() if name not in outcome.created}
        await work.status.write(manifest, decision.status, decision.events)
        if not outcome.stopped:
            await work.schedules.write(decision.schedules)

    async def _turn_stores(self) -> float:
        schedules = list(self.mirror.all(SCHEDULES))
        named = {store for one in schedules for store in _stores_named(one)}
        decision: StoresDecision = decide_stores(
            self._config,
            self._picture.nodes(""),
            self._picture.stores(),
            named if self.mirror.is_complete() else None,
        )
        await self._applier.carry_out(decision.actions)
        await self._renew_stores(named if self.mirror.is_complete() else None)
        return _LOOK_S_MAX

    async def _renew_stores(self, named: set[str] | None) -> None:
        """Bring stores to their newest template, one after the other."""
        renewal = decide_renewal(
            self._picture.nodes(""),
            self._picture.stores(),
            named,
            self._renewal,
            self._clocks.monotonic_s(),
        )
        if renewal.memory.node != self._renewal.node:
            _LOG.info("the store that is being renewed is %s", renewal.memory.node or "none")
            self._wake_all()
        self._renewal = renewal.memory
        if renewal.restart is not None:
            await self._applier.carry_out([renewal.restart])
        for name, event in renewal.notices:
            held = self.mirror.get(STATEFUL_SETS, name)
            if held is not None and self._told.get(name) != event:
                now = datetime.fromtimestamp(self._clocks.wall_s(), UTC)
                _LOG.info("%s", event.message)
                regarding = {"apiVersion": STATEFUL_SETS.api_version, "kind": STATEFUL_SETS.kind, **held}
                await self._cluster.create(
                    EVENTS, event_object(event, regarding, now, self._leadership.reporter)
                )
        self._told = dict(renewal.notices)

    # --- looking

    async def _read(self, topology: ObservedTopology) -> dict[str, StoreReading | None]:
        """A reading of every store that this topology has something in."""
        schedules = self._picture.schedules_of(topology.name)
        homes: dict[str, list[str]] = {}
        wanted: set[str] = set()
        for one in schedules:
            wanted |= {store.id for store in one.schedule.stores}
            for shard, place in one.schedule.shards.items():
                homes.setdefault(place.home, []).append(shard)
        wanted |= {pod.node for pod in self._picture.workers_of(topology.name)} | homes.keys()
        addresses = {store.id: store.address for store in self._picture.stores() if store.id in wanted}
        readings = await self._readers.stores.read(_state_uid(topology, schedules), addresses, homes)
        for store, reading in readings.items():
            if reading is None:
                self._metrics.unread(store)
        return readings

    def _observe(
        self,
        work: _Work,
        topology: ObservedTopology,
        code: Mapping[str, str] | None,
        readings: Mapping[str, StoreReading | None],
    ) -> Observed:
        nodes = as_cordoned(self._picture.nodes(topology.name), self._renewal.node)
        budget = self.mirror.get(DISRUPTION_BUDGETS, disruption_budget_name(topology.name))
        return Observed(
            topology=topology,
            config=self._config,
            term=self._leadership.term,
            wall_time=datetime.fromtimestamp(self._clocks.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            pods=self._picture.workers_of(topology.name),
            schedules=self._picture.schedules_of(topology.name),
            nodes=nodes,
            stores=self._picture.stores(),
            readings=readings,
            config_maps=tuple(
                name_of(one) for one in self.mirror.all(CONFIG_MAPS) if is_of(one, topology.name)
            ),
            disruption_budget_min=disruption_budget_min(budget),
            code=code,
            needs=tuple(
                one.need
                for name, one in sorted(self._topologies.items())
                if name != topology.name and one.need is not None
            ),
            refused=tuple(work.refused.values()),
            sla=sla.keeper.control
            if (sla := self._slas.get(topology.name)) is not None and sla.keeper is not None
            else SlaControl(),
            spark_workers=self._picture.spark_workers_of(topology.name),
        )

    # --- latency SLAs

    def _new_keeper(self, name: str) -> SlaKeeper:
        return SlaKeeper(
            _OwnLoop(
                name,
                self._topologies,
                self._picture,
                self.mirror,
                self._clocks.monotonic_s,
                self._metrics,
            ),
            self._readers.samples,
            TopologySchedules(
                self._applier,
                lambda: self._picture.schedules_of(name),
                self._config.namespace,
                self._leadership.term,
            ),
            self._budget,
            lambda: StatusWriter(
                self._cluster,
                self._clocks.monotonic_s,
                lambda: self._now_us() / 1e6,
                self._leadership.reporter,
                LATENCY_SLAS,
            ),
            self._now_us,
        )

    def _now_us(self) -> int:
        """As the wall clock was at first: who sets it starts and ends nothing."""
        return int((self._ahead_s + self._clocks.monotonic_s()) * 1e6)

    # --- waking

    def _changed(self, kind: Kind, thing: Object) -> None:
        """Something that decisions look at is another one."""
        if kind == TOPOLOGIES:
            self._wake(name_of(thing))
            self._names_changed.set()
        elif kind == LATENCY_SLAS:
            self._names_changed.set()
            work = self._slas.get(topology_of(thing))
            if work is not None:
                work.wake.set()
        elif kind == SCHEDULES:
            self._wake(str(thing["spec"].get("topology")))
            self._stores.wake.set()
        elif kind in {NODES, STATEFUL_SETS} or is_store(thing):
            self._stores.wake.set()
            self._wake_all()
        else:
            for name, work in self._topologies.items():
                if is_of(thing, name) or (kind == CONFIG_MAPS and code_map(work.look) == name_of(thing)):
                    work.wake.set()

    def _wake(self, topology: str) -> None:
        work = self._topologies.get(topology)
        if work is not None:
            work.wake.set()

    def _wake_all(self) -> None:
        for work in self._topologies.values():
            work.wake.set()

    def _new_work(self) -> _Work:
        return _Work(asyncio.Event(), self._clocks.monotonic_s())


def _with_refusal(decision: Decision, work: _Work, message: str) -> Decision:
    """The status is written all the same, and people are told once."""
    if message == work.refusal:
        return decision
    work.refusal = message
    return replace(decision, events=(*decision.events, Event("Warning", "WriteRefused", message)))


def _state_uid(topology: ObservedTopology, schedules: tuple[ObservedSchedule, ...]) -> str:
    if topology.plan is None:
        return topology.uid
    return state_identity(topology, topology.plan, schedules).uid


def _stores_named(schedule: Object) -> set[str]:
    spec = schedule["spec"]
    return {str(one["id"]) for one in spec.get("stores") or ()} | {
        str(one["home"]) for one in spec.get("shards") or ()
    }
