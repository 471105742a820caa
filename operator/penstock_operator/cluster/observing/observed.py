"""What the operator sees before it decides: one frozen picture of one topology and of all it stands on.

`observe` (the runtime) makes an `Observed` from the API's objects and the stores' answers; `decide` reads
nothing else. What could not be seen is None, never empty: a store that did not answer has no reading, and a
decision that needs it waits. Neighbours: `actions` is what comes out; the configuration is the chart's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from penstock.api.operator_config import OperatorConfig
from penstock.api.specs.sizes_spec import WORKERS_MAX
from penstock.api.topology import Topology
from penstock.control.target import TaskLimits
from penstock.dataflow.plan import Plan
from penstock.metrics.rows import HeldRow, ShardRow, TaskRow, WorkerRow
from penstock.schedule.rebuilding import Kept
from penstock.schedule.record import AppliedPlace, OperatorSchedule, TablePlace
from penstock.schedule.remote import Remote
from penstock.schedule.store_ids import server_of, store_id
from penstock.store.port import ShardCounters

UNSCHEDULABLE = "Unschedulable"
"""The scheduler's reason, in Kubernetes' own word."""


class TopologyKey(NamedTuple):
    """What tells one Topology from all others at a moment."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ObservedTopology:
    """A Topology as the API server has it, and what it means.

    Either `topology` and `plan` are there, or `faults` says why they are not, a sentence each. `manifest` is
    the object as it came, with its status.
    """

    name: str
    uid: str
    generation: int
    manifest: Mapping[str, Any]
    topology: Topology | None = None
    plan: Plan | None = None
    faults: tuple[str, ...] = ()
    is_deleting: bool = False

    @property
    def namespace(self) -> str:
        """As the object says it; "" where it does not."""
        return str((self.manifest.get("metadata") or {}).get("namespace", ""))

    @property
    def key(self) -> TopologyKey:
        return TopologyKey(self.namespace, self.name)


class Resize(StrEnum):
    """How a pod's resize in place stands, in Kubernetes' own words."""

    NONE = ""
    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"
    IN_PROGRESS = "InProgress"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A worker pod of this topology.

    `node` is where it runs, or where it was pinned to while it is not yet bound (label `penstock.dev/node`);
    `is_bound` tells the two apart. `cpu_*` and `memory_*` are the wish in its spec; 0 where it has none.
    `reason` is why it does not run (Unschedulable, CrashLoopBackOff, ImagePullBackOff, Evicted, ...), with
    `message` for people; of a container that ended before, OOMKilled or Error.
    """

    name: str
    uid: str
    node: str
    is_bound: bool
    phase: str
    """Pending, Running, Succeeded, Failed, Unknown."""
    ready: bool
    template_hash: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu_request_millis: int = 0
    cpu_limit_millis: int = 0
    memory_request_bytes: int = 0
    memory_limit_bytes: int = 0
    resize: Resize = Resize.NONE
    deletion_timestamp: str | None = None
    restarts: int = 0
    reason: str = ""
    message: str = ""
    host: str = ""
    """Its IP, or the node's; "" before it has one."""
    server: int = 0
    """Which of its node's store servers it works on."""

    @property
    def store(self) -> str:
        """The id of the store that it works on."""
        return store_id(self.node, self.server)


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute."""


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node. `*_requested` is the sum over all pods of all namespaces that are bound to it and not ended."""

    name: str
    ready: bool
    schedulable: bool
    cpu_allocatable_millis: int
    memory_allocatable_bytes: int
    cpu_requested_millis: int = 0
    memory_requested_bytes: int = 0
    pods_allocatable: int = 110
    pods: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    hostname: str = ""
    """Its label kubernetes.io/hostname, which pods are pinned by; "" means its name."""

    @property
    def cpu_free_millis(self) -> int:
        """What no pod asks for; less than nothing where they ask for more than there is."""
        return self.cpu_allocatable_millis - self.cpu_requested_millis

    @property
    def memory_free_bytes(self) -> int:
        return self.memory_allocatable_bytes - self.memory_requested_bytes

    def has_room_for(self, cpu_millis: int, memory_bytes: int) -> bool:
        """Whether one more pod that asks for this fits, as the scheduler counts."""
        return (
            self.cpu_free_millis >= cpu_millis
            and self.memory_free_bytes >= memory_bytes
            and self.pods < self.pods_allocatable
        )


@dataclass(frozen=True, slots=True)
class Volume:
    """What a store's StatefulSet claims for it, which cannot be changed there. `size` as it is written;
    `storage_class` None is the cluster's default one."""

    size: str
    storage_class: str | None


@dataclass(frozen=True, slots=True)
class ObservedStore:
    """A node store: its StatefulSet, and its pod if there is one. `id` is as `store_ids` has it.

    `ready` says that the pod is: store and agent are there. `durability` is Process or Disk.
    """

    id: str
    node: str
    address: str
    ready: bool
    durability: str
    has_pvc: bool
    stateful_set: str
    uid: str
    """Of the StatefulSet."""
    template_hash: str = ""
    is_deleting: bool = False
    message: str = ""
    """Why it is not ready, if that is known."""
    pod_uid: str = ""
    """"" while there is no pod, or it is on its way out."""
    is_outdated: bool = False
    """Its pod is of an earlier template than its StatefulSet has now."""
    volume: Volume | None = None
    """None where its state is on an emptyDir."""
    runs_on: str = ""
    """The node that its pod is bound to; "" while it is bound to none."""
    serves_others: bool = False
    """Whether its agent follows further namespaces: one that was made before there were any does not."""
    lost: str = ""
    """Why what it held is gone, and will not be back by itself; "" while that is not so."""
    leaves: str = ""
    """Why its workers are to leave it, though its node has another that stays; "" where they are not."""
    closed: str = ""
    """Why it takes no more workers; "" where it does."""

    @property
    def finds_no_place(self) -> bool:
        """Its pod waits for room on its node, and may do so for ever."""
        return not self.ready and not self.runs_on and self.message.startswith(UNSCHEDULABLE)

    @property
    def server(self) -> int:
        """Which of its node's servers it is."""
        return server_of(self.id)

    @property
    def is_elsewhere(self) -> bool:
        """Its node was gone, and its volume could be mounted on another one."""
        return self.runs_on not in ("", self.node)

    def for_others(self) -> ObservedStore:
        """As topologies of further namespaces are to see it."""
        if self.serves_others or not self.ready:
            return self
        told = "its agent does not follow further namespaces yet; the store is brought to its new template"
        return replace(self, ready=False, message=told)


def stores_there(nodes: Iterable[ObservedNode], stores: Iterable[ObservedStore]) -> set[str]:
    """The ids of the stores that are ready, on whatever node that is ready itself."""
    ready = {node.name for node in nodes if node.ready}
    return {store.id for store in stores if store.ready and (store.runs_on or store.node) in ready}


@dataclass(frozen=True, slots=True)
class StoreReading:
    """One look into one store for one topology (by its state uid).

    `shards` has the counters of the shards whose home this store is (None: it does not know the shard, or the
    shard is on its way here, and how much waits for it is not known here);
    `partitions` is source operator -> shard names ("lines/docs/a.txt"), as workers announced them here.
    """

    generation: int
    now_us: int
    """The reader's clock, to tell rows that are old."""
    workers: Mapping[str, WorkerRow] = field(default_factory=dict)
    """By worker name."""
    tasks: Mapping[str, TaskRow] = field(default_factory=dict)
    """By metric row name."""
    shards: Mapping[str, ShardCounters | None] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """Operator -> message."""
    partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partition_faults: Mapping[str, str] = field(default_factory=dict)
    """Source operator -> why a worker that looked for its partitions found none."""
    held: HeldRow | None = None
    """What the topology holds in the store's memory, as its agent last said."""
    shard_rows: Mapping[str, ShardRow] = field(default_factory=dict)
    """Shard -> what its task tells; only of a reader that asks for it."""


@dataclass(frozen=True, slots=True)
class ObservedSchedule:
    """A Schedule object. `topology_uid` is the uid that the state goes by; `owner_uid` is the Topology in its
    ownerReferences, "" where there is none (a retained one). `schedule` says nothing of remote tasks: these
    are in `remote`."""

    name: str
    uid: str
    resource_version: str
    topology_uid: str
    schedule: OperatorSchedule
    applied: tuple[AppliedPlace, ...] = ()
    owner_uid: str = ""
    is_deleting: bool = False
    identity: str = ""
    """Its annotation `penstock.dev/identity`: what of the operator its state goes by."""
    store_memory_bytes: int | None = None
    """Its spec.storeMemoryBytes."""
    remote: Remote = field(default_factory=dict)
    seen_by_stores: int = 0
    """The newest version that a store has seen, of one that was made again from what stores know."""
    topology: str = ""
    durability: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """As it came."""

    @property
    def remote_tasks(self) -> int:
        return sum(count for nodes in self.remote.values() for _, count in nodes)


KeptThere = Mapping[str, Kept]
"""Operator -> what one store knows of its Schedule."""


@dataclass(frozen=True, slots=True)
class SlaMet:
    """The condition SLAMet of the LatencySLA `sla`."""

    sla: str
    status: str
    """True, False or Unknown."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SlaControl:
    """What LatencySLAs control of a topology. `limits` is operator -> bounds of its tasks: within them they
    alone say which executors there are, with how many tasks, and which shards each runs. `treated` are
    operators that they are changing right now. `asks_worker`: a decision has lately found no worker with
    room. `met` says of each whether it is kept."""

    limits: Mapping[str, TaskLimits] = field(default_factory=dict)
    treated: frozenset[str] = frozenset()
    asks_worker: bool = False
    workers_min: int = 0
    workers_max: int = WORKERS_MAX
    met: tuple[SlaMet, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalityView:
    """What is to be about routing tables: `tables` is operator -> its newest, which its Schedule is to carry;
    `producers` are the operators whose shards these name, so that no shard of theirs may be born beside a new
    one. `status` is what the Topology's status says; {} where nothing goes by tables."""

    tables: Mapping[str, TablePlace] = field(default_factory=dict)
    producers: tuple[str, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Need:
    """Pods that a topology wants and has no room for: `pods` of this size each.

    Of one priority the older topology is served first (`created` is its creationTimestamp).
    """

    topology: str
    priority: int
    created: str
    pods: int
    cpu_millis: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server refused to create or to resize the pod `name` (quota, admission): what it said. Until it
    is tried again with success. While it `waits` it is not to be tried."""

    name: str
    message: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything `decide` may know of one topology at one moment.

    `pods`, `schedules`, `config_maps` are this topology's own (by label), `nodes` and `stores` all there are.
    `readings` is store id -> reading, None for a store that did not answer. `code` is the data of the
    ConfigMap that spec.code names, None while there is none.
    """

    topology: ObservedTopology
    config: OperatorConfig
    term: int
    wall_time: str
    """RFC 3339, UTC, whole seconds: what conditions are stamped with."""
    pods: tuple[ObservedPod, ...] = ()
    schedules: tuple[ObservedSchedule, ...] = ()
    nodes: tuple[ObservedNode, ...] = ()
    stores: tuple[ObservedStore, ...] = ()
    readings: Mapping[str, StoreReading | None] = field(default_factory=dict)
    config_maps: tuple[str, ...] = ()
    """Names of this topology's plan ConfigMaps."""
    disruption_budget_min: int | None = None
    """minAvailable of its PodDisruptionBudget; None while there is none."""
    code: Mapping[str, str] | None = None
    needs: tuple[Need, ...] = ()
    """`Decision.need` of all other topologies as last decided."""
    refused: tuple[Refused, ...] = ()
    sla: SlaControl = SlaControl()
    spark_workers: tuple[ObservedPod, ...] = ()
    """Pods of this topology for remote tasks; not among `pods`."""
    kept: Mapping[str, KeptThere | None] = field(default_factory=dict)
    """Store id -> what it knows of the Schedules that are not there, or that have not been compared yet;
    None for a store that did not answer."""
    strays: Mapping[str, str] = field(default_factory=dict)
    """Shard -> the store that has it, of those that are not at home. Looked for while a store is lost."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Store id -> why what it has of this topology cannot be read, among those without a reading."""
    locality: LocalityView = LocalityView()
    own_users: bool = True
    """Whether the stores know a user for the workers of each topology; else all share one."""

    @property
    def namespace(self) -> str:
        """The topology's, in which all that is made for it is."""
        return self.topology.namespace or self.config.namespace

    @property
    def title(self) -> str:
        """What the topology is called to others."""
        name = self.topology.name
        return name if self.namespace == self.config.namespace else f"{self.namespace}/{name}"
