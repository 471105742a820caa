"""The loops of one namespace: for each of its Topologies one, and one for the LatencySLAs about each.

Neighbours: `reconcile` runs a loop turn after turn and tells of changes; `topology_turn` and `sla.keeper`
have what is done in a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.carrying_out.topology_schedules import TopologySchedules
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.kubernetes_api.names import label_value
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    LATENCY_SLAS,
    SCHEDULES,
    TOPOLOGIES,
    Kind,
    Object,
    name_of,
    uid_of,
)
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.observing.core_budget import CoreBudget
from penstock_operator.cluster.observing.namespace_picture import code_map
from penstock_operator.cluster.observing.observe import topology_label
from penstock_operator.cluster.observing.observed import SlaControl, TopologyKey
from penstock_operator.cluster.sla.keeper import SlaKeeper
from penstock_operator.cluster.sla.objects import topology_of
from penstock_operator.cluster.turns.rest import LOOKS_EVERY_S_MAX
from penstock_operator.cluster.turns.served_namespace import ServedNamespace
from penstock_operator.cluster.turns.stores_turn import StoresTurns
from penstock_operator.cluster.turns.topology_for_slas import TopologyForSlas
from penstock_operator.cluster.turns.topology_turn import TopologyTurns, WorkersLogins
from penstock_operator.cluster.turns.work import Clocks, Leadership, Readers, Work

TOPOLOGY = "topology"
SLA = "sla"

TakeTurns = Callable[[str, str, Work, Callable[[], Awaitable[float]]], Coroutine[Any, Any, None]]
"""(kind of loop, what people know it by, its work, one turn) -> runs it until it is ended."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the loops of all namespaces have in common. `topologies` and `slas` are the loops of all;
    `wake_all` wakes those of all topologies: there may be room now."""

    config: OperatorConfig
    readers: Readers
    leadership: Leadership
    clocks: Clocks
    metrics: OperatorMetrics
    picture: ClusterPicture
    budget: CoreBudget
    stores: StoresTurns
    topologies: MutableMapping[TopologyKey, Work]
    logins: WorkersLogins
    slas: MutableMapping[TopologyKey, Work]
    """By the topology that they are about, be it there or not."""
    take_turns: TakeTurns
    wake_all: Callable[[], None]
    now_us: Callable[[], int]
    """A clock that is never set."""


class NamespaceLoops:
    """Belongs to one event loop."""

    def __init__(self, served: ServedNamespace, shared: Shared) -> None:
        self._served = served
        self._shared = shared
        self._of_label: dict[str, str] = {}
        """A label's value -> the Topology that it means."""
        self._turns = TopologyTurns(
            served,
            shared.picture,
            shared.readers.stores,
            shared.readers.kept,
            shared.readers.pairs,
            shared.config,
            shared.leadership,
            shared.clocks,
            shared.metrics,
            shared.topologies,
            shared.logins,
            control=self._sla_control,
            renewing=lambda: shared.stores.renewing,
            lost=lambda: shared.stores.lost,
            wake_all=shared.wake_all,
            now_us=shared.now_us,
        )

    def start_and_end(self, group: asyncio.TaskGroup) -> None:
        """One loop for each Topology, and for each that LatencySLAs name. None before all was listed once."""
        if not self._served.mirror.is_complete():
            return
        mirror, works = self._served.mirror, self._shared.topologies
        there = {name_of(one) for one in mirror.all(TOPOLOGIES)}
        self._of_label = {label_value(name): name for name in there}
        running = self._running(works)
        for name in there - running:
            work = works[self._key(name)] = self._new_work()
            work.task = group.create_task(
                self._take_turns(TOPOLOGY, name, work, partial(self._turns.turn, name, work))
            )
        for name in running - there:
            works.pop(self._key(name)).end()
            self._shared.metrics.held_by_quota(self._key(name), is_held=False)
            self._shared.wake_all()  # there may be room now
        self._start_and_end_of_slas(group)

    def state_uids(self) -> set[str]:
        """What states of its topologies may go by."""
        there = self._served.mirror.all(TOPOLOGIES)
        return self._served.picture.topology_uids() | {uid_of(one) for one in there}

    def changed(self, kind: Kind, thing: Object, came_s: float) -> bool:
        """Something that decisions look at is another one; whether loops are to be started or ended."""
        if kind == TOPOLOGIES:
            name = name_of(thing)
            self.wake(name, came_s)
            is_there = self._served.mirror.get(TOPOLOGIES, name) is not None
            return (self._key(name) in self._shared.topologies) != is_there
        if kind == LATENCY_SLAS:
            work = self._shared.slas.get(self._key(topology_of(thing)))
            if work is not None:
                work.wake_up(came_s)
            return True
        if kind == SCHEDULES:
            self.wake(str(thing["spec"].get("topology")), came_s)
            return False
        self.wake(self._of_label.get(topology_label(thing), ""), came_s)
        if kind == CONFIG_MAPS:
            for name in self._running(self._shared.topologies):
                if code_map(self._shared.topologies[self._key(name)].look) == name_of(thing):
                    self.wake(name, came_s)
        return False

    def wake(self, topology: str, came_s: float) -> None:
        work = self._shared.topologies.get(self._key(topology))
        if work is not None:
            work.wake_up(came_s)

    def opened(self, is_open: bool) -> None:
        """Whether the operator may work in the namespace from now on. What its topologies wanted room for
        keeps nobody waiting while it may not."""
        self._served.is_open = is_open
        for key in [key for key in self._shared.slas if key.namespace == self._served.name and not is_open]:
            self._shared.metrics.slas.forget_topology(key)
        for key, work in self._shared.topologies.items():
            if key.namespace == self._served.name:
                work.rest, work.need = None, None
        self._shared.wake_all()

    def _start_and_end_of_slas(self, group: asyncio.TaskGroup) -> None:
        works = self._shared.slas
        named = {topology_of(one) for one in self._served.mirror.all(LATENCY_SLAS)}
        running = self._running(works)
        for name in named - running:
            work = works[self._key(name)] = self._new_work()
            keeper = work.keeper = self._new_keeper(name)
            work.task = group.create_task(self._take_turns(SLA, name, work, keeper.turn))
            self._decide_anew(name)
        for name in running - named:
            works.pop(self._key(name)).end()
            self._shared.metrics.slas.forget_topology(self._key(name))
            self.wake(name, self._shared.clocks.monotonic_s())

    def _decide_anew(self, topology: str) -> None:
        """LatencySLAs go by what was decided last, room included, which means nothing to one that rests."""
        work = self._shared.topologies.get(self._key(topology))
        if work is not None:
            work.rest = None
            work.wake_up(self._shared.clocks.monotonic_s())

    def _take_turns(
        self, loop: str, name: str, work: Work, turn: Callable[[], Awaitable[float]]
    ) -> Coroutine[Any, Any, None]:
        own = self._served.name == self._shared.config.namespace
        title = name if own else f"{self._served.name}/{name}"
        return self._shared.take_turns(loop, title, work, partial(self._turn_where_open, turn))

    async def _turn_where_open(self, turn: Callable[[], Awaitable[float]]) -> float:
        return await turn() if self._served.is_open else LOOKS_EVERY_S_MAX

    def _new_keeper(self, name: str) -> SlaKeeper:
        served, shared = self._served, self._shared
        return SlaKeeper(
            TopologyForSlas(
                self._key(name),
                shared.topologies,
                served,
                shared.picture,
                shared.clocks.monotonic_s,
                shared.metrics,
            ),
            shared.readers.samples,
            TopologySchedules(
                served.applier,
                lambda: served.picture.schedules_of(name),
                served.name,
                shared.leadership.term,
            ),
            shared.budget,
            lambda: StatusWriter(
                served.cluster,
                shared.clocks.monotonic_s,
                lambda: shared.now_us() / 1e6,
                shared.leadership.reporter,
                LATENCY_SLAS,
            ),
            shared.now_us,
        )

    def _sla_control(self, topology: str) -> SlaControl:
        work = self._shared.slas.get(self._key(topology))
        return work.keeper.control if work is not None and work.keeper is not None else SlaControl()

    def _key(self, topology: str) -> TopologyKey:
        return TopologyKey(self._served.name, topology)

    def _running(self, works: MutableMapping[TopologyKey, Work]) -> set[str]:
        return {key.name for key in works if key.namespace == self._served.name}

    def _new_work(self) -> Work:
        return Work(asyncio.Event(), self._shared.clocks.monotonic_s())
