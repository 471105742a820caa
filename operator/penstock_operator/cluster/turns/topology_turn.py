"""One turn of a topology's loop: look at everything, ask the pure decision, carry it out.

Neighbours: `reconcile` says when; `cluster_picture`, `observe` and `store_reader` look, `decide` decides,
`apply`, `topology_status` and `schedule_status` write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.carrying_out.schedule_status import ScheduleStatusWriter
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.decisions.actions import Decision, Event
from penstock_operator.cluster.decisions.decide import decide
from penstock_operator.cluster.decisions.identity import state_identity
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.names import disruption_budget_name
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    TOPOLOGIES,
    ClusterApi,
    Object,
    name_of,
)
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.observing.observe import disruption_budget_min, is_of
from penstock_operator.cluster.observing.observed import (
    Need,
    Observed,
    ObservedSchedule,
    ObservedTopology,
    SlaControl,
    StoreReading,
)
from penstock_operator.cluster.observing.store_reader import StoreReader
from penstock_operator.cluster.stores.store_renewal import as_cordoned
from penstock_operator.cluster.turns.work import Clocks, Leadership, Work


class TopologyTurns:
    """The turns of all topologies' loops. `works` are these loops, by topology; `control` answers what
    LatencySLAs control of one, `renewing` the node whose store is being renewed ("" for none); `wake_all`
    wakes all loops: there may be room now."""

    def __init__(
        self,
        cluster: ClusterApi,
        mirror: Mirror,
        picture: ClusterPicture,
        reader: StoreReader,
        applier: Applier,
        config: OperatorConfig,
        leadership: Leadership,
        clocks: Clocks,
        metrics: OperatorMetrics,
        works: Mapping[str, Work],
        *,
        control: Callable[[str], SlaControl],
        renewing: Callable[[], str],
        wake_all: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._picture = picture
        self._reader = reader
        self._applier = applier
        self._config = config
        self._leadership = leadership
        self._clocks = clocks
        self._metrics = metrics
        self._works = works
        self._control = control
        self._renewing = renewing
        self._wake_all = wake_all

    async def turn(self, name: str, work: Work) -> float:
        """One look at a topology and what follows; seconds to the next one."""
        manifest = self._mirror.get(TOPOLOGIES, name)
        if manifest is None:
            return math.inf
        topology = self._picture.parse(work.look, manifest)
        code = await self._picture.code(work.look)
        readings = await self._read(topology)
        # From here to the writes nothing is awaited: one picture.
        observed = self._observe(work, topology, code, readings)
        decision = decide(observed, work.memory, self._clocks.monotonic_s())
        await self._carry_out(work, manifest, decision)
        return decision.next_look_s

    async def _carry_out(self, work: Work, manifest: Object, decision: Decision) -> None:
        work.memory = decision.memory
        work.leeway = decision.leeway
        if work.need != decision.need:
            work.need = decision.need
            self._wake_all()
        work.phase = str(decision.status.get("phase", work.phase))
        status, schedules = self._writers(work)
        try:
            outcome = await self._applier.carry_out(decision.actions)
        except PermanentError as error:
            told = _with_refusal(decision, work, str(error))
            await status.write(manifest, told.status, told.events)
            raise
        work.refusal = ""
        refused = {one.name: one for one in outcome.refused}
        if outcome.stopped or refused.keys() - work.refused.keys():
            work.wake.set()
        # One that was not tried again is not wanted any more, unless the turn has not come to it.
        kept = work.refused if outcome.stopped else {}
        work.refused = {name: why for name, why in (kept | refused).items() if name not in outcome.created}
        await status.write(manifest, decision.status, decision.events)
        if not outcome.stopped:
            await schedules.write(decision.schedules)

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
        schedules = self._picture.schedules_of(topology.name)
        homes: dict[str, list[str]] = {}
        wanted: set[str] = set()
        for one in schedules:
            wanted |= {store.id for store in one.schedule.stores}
            for shard, place in one.schedule.shards.items():
                homes.setdefault(place.home, []).append(shard)
        wanted |= {pod.node for pod in self._picture.workers_of(topology.name)} | homes.keys()
        addresses = {store.id: store.address for store in self._picture.stores() if store.id in wanted}
        readings = await self._reader.read(_state_uid(topology, schedules), addresses, homes)
        for store, reading in readings.items():
            if reading is None:
                self._metrics.unread(store)
        return readings

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
            pods=self._picture.workers_of(name),
            schedules=self._picture.schedules_of(name),
            nodes=as_cordoned(self._picture.nodes(name), self._renewing()),
            stores=self._picture.stores(),
            readings=readings,
            config_maps=tuple(name_of(one) for one in self._mirror.all(CONFIG_MAPS) if is_of(one, name)),
            disruption_budget_min=disruption_budget_min(budget),
            code=code,
            needs=self._needs_beside(name),
            refused=tuple(work.refused.values()),
            sla=self._control(name),
            spark_workers=self._picture.spark_workers_of(name),
        )

    def _needs_beside(self, topology: str) -> tuple[Need, ...]:
        """What the others have no room for."""
        works = sorted(self._works.items())
        return tuple(one.need for name, one in works if name != topology and one.need is not None)


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
