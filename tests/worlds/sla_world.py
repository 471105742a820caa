"""The cluster in a dict (`cluster_world`), with a load on its operator `count` and LatencySLAs that the real
keeper keeps: tasks that run work rows off at their rate, shards that wait for an owner wait.

A second of the world has ten looks of the keeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from penstock.metrics.rows import ShardRow, TaskRow
from penstock.schedule.record import StorePlace
from penstock.sla.standing import SlaLine
from penstock.store.port import ShardCounters
from penstock_operator.cluster.carrying_out.apply import Applier, Outcome
from penstock_operator.cluster.carrying_out.sla_metrics import SlaMetrics
from penstock_operator.cluster.carrying_out.topology_schedules import TopologySchedules
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.decisions.actions import Action, WriteSchedule
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import LATENCY_SLAS, Object
from penstock_operator.cluster.observing.core_budget import CoreBudget
from penstock_operator.cluster.observing.observed import (
    Observed,
    ObservedTopology,
    StoreReading,
    TopologyKey,
)
from penstock_operator.cluster.observing.store_reader import StoreReader
from penstock_operator.cluster.sla.keeper import SlaKeeper
from penstock_operator.cluster.sla.objects import AskedOfTopology, observe_sla
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds.cluster_world import World, read_topology

SERVED_PER_S = 100.0
"""Rows that one task works off."""
LOOK_S = 0.1
LOOKS_A_SECOND = 10


def latency_sla(name: str = "quick", **spec: Any) -> Object:
    fields = {"topology": "words", "operator": "count", "latency": "250ms", "policy": "StreamSwitch", **spec}
    return {
        "apiVersion": LATENCY_SLAS.api_version,
        "kind": LATENCY_SLAS.kind,
        "metadata": {"name": name},
        "spec": fields,
    }


@dataclass
class Flow:
    """What a shard's rows have come to. `owner` is (executor, home); rows are told under its epoch."""

    arrived: float = 0.0
    completed: float = 0.0
    epoch: int = 0
    owner: tuple[str, str] = ("", "")
    rows: float = 0.0
    waited_us: float = 0.0


class SlaWorld(World):
    """`load_per_s` rows come to `count`, evenly over its shards but for those in `hot` (shard -> weight)."""

    def __init__(self, document: dict[str, Any] | None = None, nodes: int = 2, load_per_s: float = 0) -> None:
        super().__init__(document, nodes)
        self.load_per_s = load_per_s
        self.hot: dict[str, float] = {}
        self.flows: dict[str, Flow] = {}
        self.silent: set[str] = set()
        self.written_over: set[str] = set()
        """Silent stores that have of the topology what is none."""
        self.counted_unread: set[str] = set()
        self.sla_metrics = SlaMetrics()
        """Stores that do not answer the keeper."""
        self.at_write: Callable[[], None] = lambda: None
        """Happens before each write of the keeper."""
        self.is_known = True
        """Whether the SLAs' topology is this one."""
        self.writes = 0
        self.woken = 0
        self.slas = MemoryCluster(clock_s=lambda: self.now_s, namespace="streams")
        self.told_leeway = SlaLeeway()
        self.core_budget = CoreBudget(None, {"streams": Mirror(lambda *_: None)})
        """Of the namespace; another one holds with the next leader."""
        self.keeper = self._new_keeper()
        self._look = 0
        self._parsed: tuple[object, ObservedTopology] | None = None
        self._listed: tuple[Object, ...] = ()

    def _new_keeper(self) -> SlaKeeper:
        return SlaKeeper(
            self,
            cast("StoreReader", self),
            TopologySchedules(
                cast("Applier", self),
                lambda: tuple(self._schedule_seen(name) for name in sorted(self.schedules)),
                "streams",
                self.term,
            ),
            self.core_budget,
            lambda: StatusWriter(self.slas, lambda: self.at_s, lambda: self.at_s, "operator-0", LATENCY_SLAS),
            lambda: int(self.at_s * 1e6),
        )

    @property
    def at_s(self) -> float:
        """Looks are within a second."""
        return self.now_s + self._look * LOOK_S

    def wake(self) -> None:
        self.woken += 1

    def measured(self, sla: str, line: SlaLine | None, cores: float) -> None:
        self.sla_metrics.show(TopologyKey("streams", "words"), sla, line, cores, self.at_s)

    def unread(self, store: str) -> None:
        self.counted_unread.add(store)

    # --- objects ----------------------------------------------------------------------------------

    def apply_sla(self, manifest: Object) -> None:
        asyncio.run(self.slas.apply(LATENCY_SLAS, manifest))
        self._list()

    def delete_sla(self, name: str = "quick") -> None:
        self.slas.finish(LATENCY_SLAS, name)
        self._list()

    def _list(self) -> None:
        self._listed = asyncio.run(self.slas.list(LATENCY_SLAS)).items

    def sla(self, name: str = "quick") -> Object:
        found = asyncio.run(self.slas.get(LATENCY_SLAS, name))
        assert found is not None
        return found

    def sla_status(self, name: str = "quick") -> dict[str, Any]:
        return dict(self.sla(name).get("status") or {})

    def sla_condition(self, kind: str, name: str = "quick") -> tuple[str, str]:
        found = next(one for one in self.sla_status(name)["conditions"] if one["type"] == kind)
        return found["status"], found["reason"]

    def new_leader(self) -> None:
        """Another process leads: what the last one remembered is gone."""
        self.term += 1
        self.keeper = self._new_keeper()

    # --- what the keeper is given -----------------------------------------------------------------

    def asked(self) -> AskedOfTopology:
        if self._parsed is None or self._parsed[0] is not self.document["spec"]:
            self._parsed = (self.document["spec"], read_topology(self.document))
        topology = self._parsed[1] if self.is_known else None
        return AskedOfTopology(topology, ("words",), tuple(observe_sla(one) for one in self._listed))

    def leeway(self) -> SlaLeeway:
        return self.told_leeway

    def ready_stores(self) -> Mapping[str, StorePlace]:
        stores = [self._store_seen(name) for name in self.stores]
        return {
            store.node: StorePlace(store.id, store.node, store.address) for store in stores if store.ready
        }

    def observed(self) -> Observed:
        return replace(super().observed(), sla=self.keeper.control)

    async def read(
        self, uid: str, addresses: Mapping[str, str], shards: Mapping[str, Collection[str]]
    ) -> dict[str, StoreReading | None]:
        """As the reader of samples does."""
        assert uid == self.document["metadata"]["uid"]
        return {name: self._samples(name, tuple(shards.get(name, ()))) for name in addresses}

    def unreadable(self, uid: str, addresses: Mapping[str, str]) -> dict[str, str]:
        """As the reader of samples does."""
        return {name: "its workers wrote over it" for name in self.written_over if name in addresses}

    def _samples(self, name: str, shards: Sequence[str]) -> StoreReading | None:
        plain = self._reading(name)
        if plain is None or name in self.silent:
            return None
        now_us = int(self.at_s * 1e6)
        counters, rows = {}, {}
        for shard in shards:
            flow = self.flows.get(shard)
            if flow is None or shard not in self.stores[name].held:
                counters[shard] = None
                continue
            counters[shard] = ShardCounters(
                flow.epoch, 1, 1, int(flow.arrived), int(flow.completed), 0, 0, 0, 0, flow.owner[0], False
            )
            if flow.epoch and flow.rows >= 1:
                busy_us = int(int(flow.rows) * 1e6 / SERVED_PER_S)
                rows[shard] = ShardRow(
                    flow.epoch, 1, now_us, int(flow.rows), busy_us, int(flow.waited_us), busy_us
                )
        tasks = {
            f"task:{worker}:{executor}:{task}": TaskRow(executor, "count", task, "", 1, now_us, {}, {}, 1, 0)
            for worker, row in plain.workers.items()
            for executor, count in row.tasks.items()
            for task in range(count)
        }
        return replace(plain, now_us=now_us, shards=counters, shard_rows=rows, tasks=tasks)

    async def carry_out(self, actions: Sequence[Action]) -> Outcome:
        """As the applier does."""
        self.at_write()
        for done, action in enumerate(actions):
            assert isinstance(action, WriteSchedule)
            if not self._apply(action):
                return Outcome(done, f"{action.name}: changed")
            self.writes += 1
        return Outcome(len(actions))

    # --- what happens -----------------------------------------------------------------------------

    def step(self, **how: Any) -> Any:
        decision = super().step(**how)
        self.told_leeway = decision.leeway
        for self._look in range(LOOKS_A_SECOND):
            self._flow()
            self._list()
            asyncio.run(self.keeper.turn())
            self._run_agents()
        self._look = 0
        return decision

    def _flow(self) -> None:
        seen = self.schedules.get("words.count")
        if seen is None:
            return
        schedule = seen.schedule
        worker_of = {executor.name: executor.worker for executor in schedule.executors}
        weights = {shard: self.hot.get(shard, 1.0) for shard in schedule.shards}
        running: dict[str, list[Flow]] = {}
        for shard, place in schedule.shards.items():
            flow = self.flows.setdefault(shard, Flow())
            flow.arrived += self.load_per_s * LOOK_S * weights[shard] / sum(weights.values())
            pod = self.pods.get(worker_of[place.executor])
            store = self.stores.get(place.home)
            is_up = pod is not None and pod.ready and store is not None and shard in store.held
            if not is_up or store is None or store.applied.get("count") != schedule.version:
                continue
            if flow.owner != (place.executor, place.home):
                flow.owner, flow.epoch = (place.executor, place.home), flow.epoch + 1
                flow.rows = flow.waited_us = 0.0
            running.setdefault(place.executor, []).append(flow)
        tasks = {executor.name: executor.tasks for executor in schedule.executors}
        for executor, flows in running.items():
            self._work(flows, SERVED_PER_S * tasks[executor])

    def _work(self, flows: Sequence[Flow], rate_per_s: float) -> None:
        """First come, first served over all shards of an executor: those that wait are worked off alike."""
        waiting = sum(flow.arrived - flow.completed for flow in flows)
        done = min(waiting, rate_per_s * LOOK_S)
        for flow in flows:
            part = done * (flow.arrived - flow.completed) / waiting if waiting > 0 else 0.0
            flow.completed += part
            flow.rows += part
            flow.waited_us += part * (waiting - done) / rate_per_s * 1e6

    def backlog(self) -> float:
        return sum(flow.arrived - flow.completed for flow in self.flows.values())
