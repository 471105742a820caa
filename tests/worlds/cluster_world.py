"""A cluster in a dict: nodes, stores with their agents, pods with their workers, objects with versions.

It does with the operator's actions what Kubernetes, kubelets, agents and workers would, in steps of a
second, and it keeps what must always hold: no shard's state is lost or in two stores, no two pods have a
name, versions and terms only grow. Whole states go in and come out, as in the operator's tests of
canonical's scenario library.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import yaml

from penstock.api.compile import compile_topology
from penstock.api.operator_config import OperatorConfig
from penstock.api.schedule_object import from_object
from penstock.api.specs.topology_status import TopologyStatus
from penstock.api.topology import Topology
from penstock.connectors.files import FilesSource
from penstock.dataflow.plan import Plan
from penstock.metrics.rows import HeldRow, WorkerRow
from penstock.schedule.rebuilding import Kept
from penstock.schedule.record import AppliedPlace
from penstock.schedule.remote import remote_of, with_remote
from penstock.schedule.store_ids import node_of
from penstock.store.port import ShardCounters
from penstock_operator.cluster.decisions.actions import (
    ApplyConfigMap,
    ApplyDisruptionBudget,
    ApplyNetworkPolicy,
    ApplyNodeStore,
    CreatePod,
    Decision,
    DeleteConfigMap,
    DeleteNodeStore,
    DeletePod,
    Event,
    GrowVolume,
    ResizePod,
    WriteSchedule,
)
from penstock_operator.cluster.decisions.decide import decide
from penstock_operator.cluster.decisions.identity import state_identity
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.kubernetes_api.names import (
    ANNOTATION_ACCEPT_LOSS,
    ANNOTATION_IDENTITY,
    ANNOTATION_TEMPLATE,
    store_address,
    store_name,
)
from penstock_operator.cluster.observing.observed import (
    Need,
    Observed,
    ObservedNode,
    ObservedSchedule,
    ObservedStore,
    ObservedTopology,
    StoreReading,
    Volume,
)
from penstock_operator.cluster.stores.homeless import (
    Homeless,
    gone_since,
    homeless_stores,
    pods_to_make_anew,
    why_lost,
)
from penstock_operator.cluster.stores.node_stores import as_left, decide_stores
from penstock_operator.cluster.stores.retained_homes import retained_homes
from penstock_operator.cluster.stores.store_renewal import (
    RenewalMemory,
    as_cordoned,
    as_to_be_left,
    decide_renewal,
)
from worlds.cluster_world_parts import GIB, WorldNode, WorldPod, WorldStore

CONFIG = OperatorConfig.model_validate(
    {
        "fullname": "pen",
        "namespace": "streams",
        "images": {"operator": "pen/operator:1", "worker": "pen/worker:1", "store": "pen/store:1"},
        "store": {
            "durability": "Process",
            "servers": 1,
            "authSecret": "pen-store-auth",
            "serviceAccount": "pen-agent",
            "headlessService": "pen-stores",
            "localService": "pen-store-local",
        },
    }
)

MANIFEST: dict[str, Any] = yaml.safe_load("""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata:
  name: words
  namespace: streams
  uid: uid-words
  generation: 1
  creationTimestamp: "2026-01-01T00:00:00Z"
spec:
  code: {configMap: words-code}
  durability: Process
  workers: {min: 2, max: 4, memory: 1Gi, cores: {min: "0.5", max: "4"}}
  operators:
  - name: lines
    source: {files: {glob: "texts/*.txt"}}
    tasks: {min: 1, max: 8}
  - name: split
    inputs: [lines]
    map: words:split
    outputSchema: word string
  - name: count
    inputs: [split]
    keyBy: [word]
    processor: words:Count
    shards: 8
    tasks: {min: 1, max: 8, initial: 2}
    outputSchema: word string, total bigint
  - name: totals
    inputs: [count]
    sink: {files: {path: out}}
""")


def manifest(**changes: Any) -> dict[str, Any]:
    """The word count, with values set by path: `spec__workers__min=3`."""
    return changed(MANIFEST, changes)


def changed(document: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    document = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node: Any = document
        for name in parents:
            node = node[int(name)] if name.isdigit() else node.setdefault(name, {})
        node[last] = value
    return document


def read_topology(document: Mapping[str, Any]) -> ObservedTopology:
    """A manifest as the operator's edge reads it."""
    metadata = document["metadata"]
    plain = {name: value for name, value in document.items() if name != "status"}
    topology, plan = _compiled(json.dumps(plain))
    return ObservedTopology(
        metadata["name"], metadata["uid"], metadata["generation"], document, topology, plan
    )


@lru_cache(maxsize=64)
def _compiled(manifest: str) -> tuple[Topology, Plan]:
    """A world looks at its manifest every second, and seldom is there another one."""
    topology = Topology.model_validate(json.loads(manifest), by_alias=True, by_name=False)
    return topology, compile_topology(topology, "cluster")


class BrokenPromise(AssertionError):
    """Something happened that must never happen."""


class World:
    """One topology in a cluster. `partitions` are what a ready worker tells of source `lines`."""

    def __init__(self, document: dict[str, Any] | None = None, nodes: int = 2) -> None:
        self.now_s = 100.0
        self.document = document or manifest()
        self.nodes = {f"node-{letter}": WorldNode() for letter in "abcdef"[:nodes]}
        self.stores: dict[str, WorldStore] = {}
        self.pods: dict[str, WorldPod] = {}
        self.schedules: dict[str, ObservedSchedule] = {}
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.policies: dict[str, dict[str, Any]] = {}
        self.budget: int | None = None
        self.code: dict[str, str] | None = {"words.py": "..."}
        self.partitions: tuple[str, ...] = ("lines/texts/a.txt", "lines/texts/b.txt")
        self.no_partitions = ""
        """Why workers find none, where there are none."""
        self.needs: tuple[Need, ...] = ()
        self.failures: dict[str, str] = {}
        self.finished = False
        self.inbox_entries: dict[str, int] = {}
        self.held_bytes: dict[str, int] = {}
        self.full_of_bytes: dict[str, int] = {}
        self.memory = Memory()
        self.term = 1
        self.events: list[Event] = []
        self.deleted: list[str] = []
        self.renewed: list[str] = []
        self.last: Decision | None = None
        self.config = CONFIG
        self.topology_seen: ObservedTopology | None = None
        """What its manifest means, where that is nothing."""
        self.agents_work = True
        self.moves_go_on = True
        """Shards that are to leave a store do."""
        self.start_takes_s: int | None = 2
        self.have_volumes = False
        self.renewal = RenewalMemory()
        self.notices: tuple[tuple[str, Event], ...] = ()
        self.store_notices: tuple[tuple[str, Event], ...] = ()
        self.grown: dict[str, str] = {}
        """Claim -> the size that it was asked to grow to."""
        self.volumes_stay = False
        """Volumes can be mounted by the node alone that they were made on."""
        self.gone_since: dict[str, float] = {}
        self.lost: dict[str, str] = {}
        self.given_up: set[str] = set()
        """Stores that were lost at any time: what is in them counts for nothing."""
        self._numbers = 0

    # --- what is seen ---------------------------------------------------------------------------

    def observed(self) -> Observed:
        topology = self.topology_seen or read_topology(self.document)
        seen = tuple(self.schedules.values())
        state_uid = state_identity(topology, topology.plan, seen).uid if topology.plan else topology.uid
        nodes = [self._node_seen(name) for name in self.nodes]
        stores = [self._store_seen(name) for name in self.stores]
        return Observed(
            topology=topology,
            config=self.config,
            term=self.term,
            wall_time="2026-01-01T00:00:00Z",
            pods=tuple(pod.observed() for pod in self.pods.values() if not pod.is_spark_worker),
            spark_workers=tuple(pod.observed() for pod in self.pods.values() if pod.is_spark_worker),
            schedules=tuple(self._schedule_seen(name) for name in sorted(self.schedules)),
            nodes=as_cordoned(
                as_left(nodes, self.config),
                stores,
                self.config,
                self.renewal.store,
            ),
            stores=as_to_be_left(nodes, stores, self.config, self.renewal.store),
            readings={name: self._reading(name) for name in self.stores},
            config_maps=tuple(self.config_maps),
            disruption_budget_min=self.budget,
            code=self.code,
            needs=self.needs,
            kept={name: self._kept(name, state_uid) for name in self.stores},
            strays=self._strays() if self.lost else {},
        )

    def _strays(self) -> dict[str, str]:
        """Who has the shards that are not at home."""
        homes = {s: p.home for seen in self.schedules.values() for s, p in seen.schedule.shards.items()}
        there = {name: store for name, store in self.stores.items() if self._is_store_there(name)}
        return {s: name for name, store in there.items() for s in store.held if homes.get(s) != name}

    def _kept(self, name: str, state_uid: str) -> dict[str, Kept] | None:
        """What the store knows of all Schedules; None while it does not answer."""
        if not self._is_store_there(name):
            return None
        kept = self.stores[name].kept.items()
        return {operator: Kept(one, one.version) for operator, (uid, one) in kept if uid == state_uid}

    def _node_seen(self, name: str) -> ObservedNode:
        node = self.nodes[name]
        mine = [pod for pod in self.pods.values() if pod.node == name and pod.takes_room]
        return ObservedNode(
            name=name,
            ready=node.ready,
            schedulable=node.schedulable,
            cpu_allocatable_millis=node.cpu_millis,
            memory_allocatable_bytes=node.memory_bytes,
            cpu_requested_millis=sum(pod.cpu_millis for pod in mine),
            memory_requested_bytes=GIB * len(mine),
            pods=len(mine),
            labels=node.labels,
            taints=node.taints,
        )

    def _store_seen(self, name: str) -> ObservedStore:
        store = self.stores[name]
        return ObservedStore(
            id=name,
            node=node_of(name),
            address=store_address(self.config.fullname, name, "pen-stores", "streams"),
            ready=self._is_store_there(name),
            durability=store.durability,
            has_pvc=self.have_volumes or store.volume is not None,
            volume=store.volume,
            stateful_set=store_name(self.config.fullname, name),
            uid=store.uid,
            template_hash=store.template,
            pod_uid=store.pod_uid,
            is_outdated=store.pod_template != store.template,
            runs_on=self._runs_on(name),
            lost=self.lost.get(name, ""),
            message="" if store.finds_room else "Unschedulable: 0/2 nodes are available",
        )

    def _is_store_there(self, name: str) -> bool:
        return name in self.stores and self.stores[name].ready and self._is_node_up(self._runs_on(name))

    def _runs_on(self, name: str) -> str:
        """The node that the store's pod is on; "" for none."""
        store = self.stores[name]
        if not store.finds_room:
            return ""
        if store.runs_on in self.nodes:
            return store.runs_on
        if store.is_pinned or store.pod_template != store.template:
            return node_of(name) if node_of(name) in self.nodes else ""
        store.runs_on = next((node for node in sorted(self.nodes) if self._is_node_up(node)), "")
        return store.runs_on

    def _schedule_seen(self, name: str) -> ObservedSchedule:
        seen = self.schedules[name]
        operator = seen.schedule.operator
        applied = tuple(
            AppliedPlace(
                node,
                store.applied[operator],
                store.generation,
                self._missing(node, seen),
                self._moving(node, seen),
            )
            for node, store in self.stores.items()
            if operator in store.applied
        )
        return replace(seen, applied=applied)

    def _missing(self, node: str, seen: ObservedSchedule) -> int:
        """What its agent says is lost: no store has it, and all that are named are there."""
        if not all(self._is_store_there(place.id) for place in seen.schedule.stores):
            return 0
        held = set().union(*(self.stores[place.id].held for place in seen.schedule.stores))
        version = self.stores[node].applied[seen.schedule.operator]
        return sum(
            place.home == node and place.fresh_since <= version and shard not in held
            for shard, place in seen.schedule.shards.items()
        )

    def _moving(self, node: str, seen: ObservedSchedule) -> int:
        held = self.stores[node].held
        return sum(s in held and place.home != node for s, place in seen.schedule.shards.items())

    def _reading(self, name: str) -> StoreReading | None:
        if not self._is_store_there(name):
            return None
        rows = {}
        partitions = {}
        for pod in self.pods.values():
            if pod.store != name or not pod.ready or pod.is_spark_worker:
                continue
            tasks = {
                executor.name: executor.tasks
                for seen in self.schedules.values()
                for executor in seen.schedule.executors
                if executor.worker == pod.name
                and self.stores[name].applied.get(seen.schedule.operator) == seen.schedule.version
            }
            rows[pod.name] = WorkerRow(pod.name, pod.uid, 0, 1, "ready", "", self._now_us(), tasks)
            if self.partitions:
                partitions["lines"] = self.partitions
        shards = {
            shard: self._counters(name, shard)
            for seen in self.schedules.values()
            for shard, place in seen.schedule.shards.items()
            if place.home == name
        }
        return StoreReading(
            generation=self.stores[name].generation,
            now_us=self._now_us(),
            workers=rows,
            shards=shards,
            failures=self.failures,
            partitions=partitions,
            partition_faults={} if self.partitions else {"lines": self.no_partitions},
            held=self._held(name),
        )

    def _held(self, name: str) -> HeldRow | None:
        held_bytes = self.held_bytes.get(name)
        if held_bytes is None:
            return None
        return HeldRow(
            name, self.stores[name].generation, self._now_us(), held_bytes, 4, self.full_of_bytes.get(name, 0)
        )

    def _counters(self, store: str, shard: str) -> ShardCounters | None:
        if shard not in self.stores[store].held:
            return None
        waiting = self.inbox_entries.get(shard.split("/", 1)[0], 0)
        return ShardCounters(1, 1, 1, 0, 0, waiting, 0, 0, 0, "e", self.finished)

    def _now_us(self) -> int:
        return int(self.now_s * 1e6)

    # --- what is done ---------------------------------------------------------------------------

    def step(
        self, *, keep_memory: bool = True, look: Callable[[Observed], Observed] | None = None
    ) -> Decision:
        """The operator looks, decides and acts once; then a second passes."""
        self.run_stores()
        observed = self.observed()
        decision = decide(
            look(observed) if look else observed, self.memory if keep_memory else Memory(), self.now_s
        )
        self.memory = decision.memory
        self.last = decision
        self.events.extend(decision.events)
        self.apply(decision)
        self.pass_second()
        return decision

    def step_retained(self) -> None:
        """No Topology is there, and the stores' loop looks after what it left."""
        self.run_stores()
        stores = [self._store_seen(name) for name in self.stores]
        nodes = [self._node_seen(name) for name in self.nodes]
        stores = list(as_to_be_left(nodes, stores, self.config, self.renewal.store))
        nodes = list(as_cordoned(nodes, stores, self.config, self.renewal.store))
        seen = [self._schedule_seen(name) for name in sorted(self.schedules)]
        for action in retained_homes(seen, (), nodes, stores, self.config, self.term, "streams"):
            self._apply(action)
        self.pass_second()

    def run(self, seconds: int = 40, **how: Any) -> Decision:
        for _ in range(seconds):
            self.step(**how)
        assert self.last is not None
        return self.last

    def run_stores(self) -> None:
        named = self._named()
        nodes = [self._node_seen(name) for name in self.nodes]
        stores = [self._store_seen(name) for name in self.stores]
        homeless = self._look_at_homeless(nodes, stores, named)
        decision = decide_stores(self.config, nodes, stores, named, homeless)
        self.store_notices = decision.notices
        for action in decision.actions:
            match action:
                case ApplyNodeStore(store=store, document=document):
                    self._apply_store(store, document)
                case GrowVolume(name=claim, size=size):
                    self.grown[claim] = size
                case DeleteNodeStore(store=store):
                    if self.stores[store].held and store not in self.given_up:
                        raise BrokenPromise(f"store {store} went with {sorted(self.stores[store].held)}")
                    del self.stores[store]
        seen = [self._store_seen(name) for name in self.stores]
        for gone in pods_to_make_anew(seen, homeless.may_go):
            (homeless_one,) = (one for one in self.stores.values() if one.pod_uid == gone.uid)
            homeless_one.pod_uid, homeless_one.pod_template = self._uid(), homeless_one.template
        self._renew_stores(nodes, named, decision.replaced)

    def _look_at_homeless(
        self, nodes: list[ObservedNode], stores: list[ObservedStore], named: set[str] | None
    ) -> Homeless:
        """As the stores' loop does, with what Kubernetes would answer of claims and volumes."""
        self.gone_since = gone_since(self.gone_since, nodes, stores, self.now_s)
        found = homeless_stores(stores, named, self.gone_since, self.now_s)
        reasons = {}
        for store in found:
            volume: dict[str, Any] = {"metadata": {"name": f"pv-{store.node}"}, "spec": {}}
            if self.volumes_stay:
                terms = [{"matchExpressions": [{"key": "host", "operator": "In", "values": [store.node]}]}]
                volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
            claim = {"spec": {"volumeName": f"pv-{store.node}"}}
            reasons[store.id] = why_lost(store, claim, volume, nodes)
        self.lost = {store: reason for store, reason in reasons.items() if reason}
        self.given_up |= self.lost.keys()
        return Homeless(frozenset(reasons.keys() - self.lost.keys()), self.lost)

    def _named(self) -> set[str] | None:
        """Stores that a Schedule names; None while one is missing that has been there."""
        begun = (self.document.get("status") or {}).get("begun", ())
        if any(f"words.{operator}" not in self.schedules for operator in begun):
            return None
        return {store.id for seen in self.schedules.values() for store in seen.schedule.stores}

    def _apply_store(self, name: str, document: Mapping[str, Any]) -> None:
        claims = document["spec"].get("volumeClaimTemplates", ())
        volumes = [
            Volume(one["spec"]["resources"]["requests"]["storage"], one["spec"].get("storageClassName"))
            for one in claims
        ]
        if name not in self.stores:
            self.stores[name] = WorldStore(self._uid(), pod_uid=self._uid(), volume=next(iter(volumes), None))
        store = self.stores[name]
        if [store.volume] != (volumes or [None]):
            raise BrokenPromise(f"the API server refuses another volume for store {name}")
        args = document["spec"]["template"]["spec"]["containers"][0]["args"]
        store.durability = "Disk" if "always" in args else "Process"
        store.template = document["metadata"]["annotations"][ANNOTATION_TEMPLATE]
        store.is_pinned = "affinity" in document["spec"]["template"]["spec"]
        store.pod_template = store.pod_template or store.template

    def _renew_stores(
        self, nodes: list[ObservedNode], named: set[str] | None, replaced: Mapping[str, str]
    ) -> None:
        stores = [self._store_seen(name) for name in self.stores]
        renewal = decide_renewal(nodes, stores, named, self.renewal, self.now_s, replaced)
        self.renewal, self.notices = renewal.memory, renewal.notices
        if renewal.restart is None:
            return
        (store,) = (one for one in self.stores.values() if one.pod_uid == renewal.restart.uid)
        if store.held and not (self.have_volumes or store.volume):
            raise BrokenPromise(f"{renewal.restart.name} goes with {sorted(store.held)}")
        self.renewed.append(renewal.restart.name)
        store.pod_uid, store.pod_template = self._uid(), store.template
        store.ready, store.ready_in, store.generation = False, 2, store.generation + 1

    def apply(self, decision: Decision) -> None:
        TopologyStatus.model_validate(dict(decision.status), by_alias=True, by_name=False)
        for action in decision.actions:
            if not self._apply(action):
                return
        self.document = {**self.document, "status": copy.deepcopy(dict(decision.status))}

    def _apply(self, action: object) -> bool:
        match action:
            case ApplyConfigMap(name=name, document=document):
                self.config_maps[name] = dict(document)
            case DeleteConfigMap(name=name):
                self.config_maps.pop(name, None)
            case ApplyDisruptionBudget(document=document):
                self.budget = document["spec"]["minAvailable"]
            case ApplyNetworkPolicy(name=name, document=document):
                self.policies[name] = dict(document)
            case CreatePod(name=name, document=document):
                if name not in self.pods:
                    self.pods[name] = WorldPod(copy.deepcopy(dict(document)), self._uid(), self.start_takes_s)
            case DeletePod(name=name, uid=uid):
                pod = self.pods.get(name)
                if pod is not None and pod.uid == uid and pod.deleted_in is None:
                    self.delete_pod(name)
            case ResizePod(name=name, uid=uid, cpu_request_millis=request, cpu_limit_millis=limit):
                pod = self.pods.get(name)
                if pod is not None and pod.uid == uid:
                    resources = pod.document["spec"]["containers"][0]["resources"]
                    resources["requests"]["cpu"] = f"{request}m"
                    resources["limits"]["cpu"] = f"{limit}m"
            case WriteSchedule():
                return self._write(action)
            case _:
                raise BrokenPromise(f"unknown action {action}")
        return True

    def _write(self, action: WriteSchedule) -> bool:
        old = self.schedules.get(action.name)
        if (old.resource_version if old is not None else None) != action.resource_version:
            return False
        new = action.schedule
        if old is not None:
            if new.version <= old.schedule.version or new.term < old.schedule.term:
                raise BrokenPromise(f"{action.name} goes from {old.schedule.version} to {new.version}")
            if lost := old.schedule.shards.keys() - new.shards.keys():
                raise BrokenPromise(f"{action.name} drops {sorted(lost)}")
        if new.term != self.term:
            raise BrokenPromise("a schedule has another term than the leader's")
        metadata = action.document["metadata"]
        owners = metadata.get("ownerReferences", [])
        self._numbers += 1
        self.schedules[action.name] = ObservedSchedule(
            name=action.name,
            uid=old.uid if old is not None else self._uid(),
            resource_version=str(self._numbers),
            topology_uid=action.document["spec"]["topologyUid"],
            schedule=with_remote(new, {}),
            remote=remote_of([from_object(action.document)]),
            owner_uid=owners[0]["uid"] if owners else "",
            identity=metadata["annotations"][ANNOTATION_IDENTITY],
            store_memory_bytes=action.document["spec"]["storeMemoryBytes"],
            topology=action.document["spec"]["topology"],
            durability=action.document["spec"].get("durability"),
            metadata=metadata,
        )
        return True

    def pass_second(self) -> None:
        self.now_s += 1.0
        for name, store in self.stores.items():
            if self._is_node_up(self._runs_on(name)) and not store.ready:
                store.ready_in -= 1
                store.ready = store.ready_in <= 0
        if self.agents_work:
            self._run_agents()
        for name, pod in list(self.pods.items()):
            if pod.deleted_in is not None and self._is_node_up(pod.node):
                pod.deleted_in -= 1
                if pod.deleted_in < 0:
                    del self.pods[name]
                    continue
            if pod.ready_in is not None and not pod.ready and self._is_store_there(pod.store):
                pod.ready_in -= 1
                pod.ready = pod.ready_in <= 0
        self._check()

    def _run_agents(self) -> None:
        for seen in self.schedules.values():
            schedule = seen.schedule
            for store_place in schedule.stores:
                name = store_place.id
                if not self._is_store_there(name):
                    continue
                store = self.stores[name]
                before = store.applied.get(schedule.operator, 0)
                for shard, place in schedule.shards.items():
                    if place.home == name and before < place.fresh_since:
                        store.held.add(shard)
                store.applied[schedule.operator] = schedule.version
                store.kept[schedule.operator] = (seen.topology_uid, with_remote(schedule, seen.remote))
                for shard in sorted(store.held & schedule.shards.keys()):
                    home = schedule.shards[shard].home
                    is_target_up = self.moves_go_on and self._is_store_there(home)
                    if home != name and is_target_up and self.stores[home].applied.get(schedule.operator):
                        store.held.discard(shard)
                        self.stores[home].held.add(shard)

    def _is_node_up(self, name: str) -> bool:
        return name in self.nodes and self.nodes[name].ready

    def _uid(self) -> str:
        self._numbers += 1
        return f"uid-{self._numbers}"

    def _check(self) -> None:
        seen: set[str] = set()
        for name, store in self.stores.items():
            if name in self.given_up:
                continue
            if both := seen & store.held:
                raise BrokenPromise(f"{sorted(both)} are in {name} and in another store")
            seen |= store.held

    # --- what happens -----------------------------------------------------------------------------

    def upgrade(self, number: int) -> None:
        """Another version of the chart: the stores' template is another one."""
        images = self.config.images.model_copy(update={"store": f"pen/store:{number}"})
        self.config = self.config.model_copy(update={"images": images})

    def edit(self, **changes: Any) -> None:
        """kubectl edit: values by path, as in `manifest`."""
        document = changed(self.document, changes)
        document["metadata"]["generation"] += 1
        self.document = document

    def delete_pod(self, name: str) -> None:
        pod = self.pods[name]
        pod.deleted_in = 1
        pod.ready = False
        pod.ready_in = None
        self.deleted.append(name)

    def delete_schedule(self, operator: str) -> None:
        """kubectl delete schedule: what agents told in its status goes with it."""
        self.schedules.pop(f"words.{operator}", None)
        for store in self.stores.values():
            store.applied.pop(operator, None)

    def lose_pod(self, name: str) -> None:
        """Gone at once, as with its node."""
        del self.pods[name]

    def lose_node(self, name: str) -> None:
        self.nodes[name].ready = False
        for pod in self.pods.values():
            if pod.node == name:
                pod.ready = False

    def delete_node(self, name: str) -> None:
        """Its machine is gone, and its object: Kubernetes removes the pods that were on it."""
        del self.nodes[name]
        for pod in [pod for pod in self.pods.values() if pod.node == name]:
            del self.pods[pod.name]
        for store in [store for store in self.stores if node_of(store) == name]:
            self._end_store(store)

    def replace_node(self, name: str) -> None:
        """Another machine, under the same name."""
        self.delete_node(name)
        self.nodes[name] = WorldNode()

    def _end_store(self, name: str) -> None:
        store = self.stores[name]
        store.ready, store.ready_in, store.runs_on = False, 2, ""
        store.pod_uid, store.generation = self._uid(), store.generation + 1
        if not (self.have_volumes or store.volume):
            store.held.clear()
            store.kept.clear()

    def accept_loss(self) -> list[str]:
        """What `penstock accept-loss` writes; the ids."""
        ids = [one["id"] for one in self.status.get("lost", ())]
        metadata = {**self.document["metadata"], "annotations": {ANNOTATION_ACCEPT_LOSS: ",".join(ids)}}
        self.document = {**self.document, "metadata": metadata}
        return ids

    def return_node(self, name: str) -> None:
        self.nodes[name].ready = True
        for pod in self.pods.values():
            if pod.node == name:
                pod.ready_in = 2

    # --- what is asked ----------------------------------------------------------------------------

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.document["status"])

    def condition(self, kind: str) -> tuple[str, str]:
        found = next(c for c in self.status["conditions"] if c["type"] == kind)
        return found["status"], found["reason"]

    def message(self, kind: str) -> str:
        return str(next(c for c in self.status["conditions"] if c["type"] == kind)["message"])

    def tasks(self, operator: str) -> dict[str, int]:
        """worker -> tasks."""
        executors = self.schedules[f"words.{operator}"].schedule.executors
        return {executor.worker: executor.tasks for executor in executors}

    def nodes_of(self, operator: str) -> dict[str, int]:
        """Store -> shards whose state is there."""
        shards = self.schedules[f"words.{operator}"].schedule.shards
        return {
            name: count for name, store in self.stores.items() if (count := len(store.held & shards.keys()))
        }

    def remote(self, operator: str) -> dict[str, dict[str, int]]:
        """executor -> node -> tasks there."""
        return {name: dict(nodes) for name, nodes in self.schedules[f"words.{operator}"].remote.items()}

    def spark_workers(self) -> dict[str, str]:
        """name -> node, of those that are there to stay."""
        pods = self.pods.values()
        return {pod.name: pod.node for pod in pods if pod.is_spark_worker and pod.deleted_in is None}

    def ready_pods(self) -> dict[str, str]:
        """name -> node."""
        return {pod.name: pod.node for pod in self.pods.values() if pod.ready}

    def uids(self) -> dict[str, str]:
        return {pod.name: pod.uid for pod in self.pods.values()}

    def is_whole(self) -> bool:
        """Every shard's state is at its home, beside a ready worker that the schedule names."""
        plan = read_topology(self.document).plan
        assert plan is not None
        for stage in plan.stages:
            seen = self.schedules.get(f"words.{stage.operator}")
            if seen is None:
                return False
            workers = {place.name: place for place in seen.schedule.workers}
            runs_in = {e.name: workers[e.worker] for e in seen.schedule.executors}
            count = len(self.partitions) if isinstance(stage.head, FilesSource) else 8
            if len(seen.schedule.shards) < count:
                return False
            for shard, place in seen.schedule.shards.items():
                worker = runs_in[place.executor]
                pod = self.pods.get(worker.name)
                is_run = pod is not None and pod.ready and pod.uid == worker.uid and pod.store == place.home
                if not is_run or shard not in self.stores[place.home].held:
                    return False
        return True
