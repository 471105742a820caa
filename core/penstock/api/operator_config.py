"""`OperatorConfig`: what the chart tells the operator, as one YAML file (/etc/penstock/operator/config.yaml).

Images, how node stores are built, names of what the chart has made. Secrets are named here, never held.
Neighbours: the chart writes it, `penstock operator` reads it at its start with `load_operator_config`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from penstock.api.pods.pod_settings import ImageName, Labels, PullPolicy, PullSecrets, Tolerations
from penstock.api.specs.sizes_spec import SERVERS_MAX
from penstock.api.yaml_text import read_documents
from penstock.manifest.document import Cpu, Document, Name, ObjectName, StorageSize, StoreMemory, cpu_millis
from penstock.manifest.faults import Fault, InvalidManifest, schema_faults, shown

NamespaceName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Port = Annotated[int, Field(ge=1, le=65_535)]

CORES_PER_SERVER = 8
"""A store works on one core, and the tasks that keep it busy on several (bench/README.md)."""
SERVERS_BY_CORES_MAX = 8


class Images(Document):
    operator: ImageName
    """Also the agent's."""
    worker: ImageName
    """Of topologies that name none."""
    store: ImageName
    """With a redis-server, 7.0 or newer."""


class MetricsPorts(Document):
    operator: Port = 8080
    agent: Port = 9091
    worker: Port = 9090


class AgentConfig(Document):
    """The container beside each store."""

    cpu: Cpu = "100m"
    memory: StoreMemory = "256Mi"


class StoreConfig(Document):
    """The node stores: one StatefulSet for each server of each node."""

    durability: Literal["Process", "Disk"]
    """What a store survives at most. Disk needs a volume."""
    servers: Annotated[int, Field(ge=1, le=SERVERS_MAX)] | None = None
    """Store servers of a node, each a store of its own; None: one for each `CORES_PER_SERVER` cores of the
    node, one at the least and `SERVERS_BY_CORES_MAX` at the most."""
    volume: Literal["Claim", "EmptyDir"] | None = None
    """Where the append-only file lives; None: on a claim with durability Disk, or where storageClassName is
    given, else in an emptyDir."""
    storage_class_name: ObjectName | None = None
    """Of the claim; without it the cluster's default one."""
    keep_volumes: bool = True
    """A claim outlives its StatefulSet, whoever deletes that: the operator deletes both, where nobody needs
    the store any more."""
    size: StorageSize = "10Gi"
    """Of the volume, or the limit of the emptyDir."""
    memory: StoreMemory = "1Gi"
    """Limit and request of the container; Redis' maxmemory is below it."""
    cpu: Cpu = "500m"
    """Request of the container; it has no limit."""
    node_selector: Labels = Field(default_factory=dict)
    """Nodes that get a store, and so may run workers."""
    tolerations: Tolerations = ()
    auth_secret: ObjectName
    """What stores' pods mount, and what workers' passwords follow from; made and kept by the operator. Keys:
    worker-password, operator-password, agent-password, users.acl, spark-key, workers-key, worker-roots."""
    passwords_secret: ObjectName | None = None
    """A Secret of somebody else's that says the passwords (worker-password, operator-password,
    agent-password); without it the operator makes some."""
    former_password_seconds: Annotated[int, Field(ge=60, le=86_400)] = 300
    """How long a former password stays good once all pods are given the new one."""
    service_account: ObjectName
    """The agents' service account."""
    headless_service: ObjectName
    local_service: ObjectName

    @model_validator(mode="after")
    def _disk_has_a_volume(self) -> Self:
        if self.durability == "Disk" and not self.has_claim:
            raise ValueError("durability Disk needs volume Claim; give that, or durability Process")
        return self

    def servers_of(self, cpu_millis: int) -> int:
        """How many servers a node with these cores is to have."""
        if self.servers is not None:
            return self.servers
        # What a node can give is a little less than its cores.
        return min(max(1, (cpu_millis + 1000) // (1000 * CORES_PER_SERVER)), SERVERS_BY_CORES_MAX)

    @property
    def has_claim(self) -> bool:
        """Whether a store's state is on a volume of its own, which outlives its pod."""
        if self.volume is None:
            return self.durability == "Disk" or self.storage_class_name is not None
        return self.volume == "Claim"


class WorkerConfig(Document):
    """What holds for the workers of all topologies."""

    termination_grace_seconds: Annotated[int, Field(ge=5, le=3600)] = 30
    """How long a worker may take to retire its tasks."""
    tmp_size: StorageSize = "2Gi"
    """What a worker may write below /tmp, where its Topology says nothing else."""
    service_accounts: Annotated[tuple[ObjectName, ...], Field(strict=False)] = ()
    """Those that a Topology may name."""
    node_selector: Labels = Field(default_factory=dict)
    tolerations: Tolerations = ()


class OperatorConfig(Document):
    """The whole file."""

    fullname: Name
    """The release's; names of what the operator makes begin with it."""
    namespace: ObjectName
    """Of the release: node stores, their agents and the operator's Lease are there."""
    namespaces: Annotated[tuple[NamespaceName, ...], Field(strict=False)] = ()
    """Further ones whose Topologies and LatencySLAs are carried out, too."""
    release: ObjectName | None = None
    """The name by which Helm knows what it has installed, where Helm has."""
    images: Images
    image_pull_policy: PullPolicy = "IfNotPresent"
    image_pull_secrets: PullSecrets = ()
    priority_class_name: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Of the node stores: they must not be pushed off their nodes by workers."""
    metrics_ports: MetricsPorts = MetricsPorts()
    store: StoreConfig
    agent: AgentConfig = AgentConfig()
    worker: WorkerConfig = WorkerConfig()
    network_policies: bool = True
    """Whether pods may be reached by those alone that need it: with it Spark workers get policies too."""
    any_user: bool = False
    """Whether the platform says as which user and group pods run: without it as those of the images."""
    max_cores: Cpu | None = None
    """What all tasks of all its namespaces may ask for together before LatencySLAs add no more."""

    @model_validator(mode="after")
    def _each_namespace_once(self) -> Self:
        if self.namespace in self.namespaces:
            raise ValueError(f"namespaces: {self.namespace} is the release's own, which is served anyway")
        if len(set(self.namespaces)) < len(self.namespaces):
            raise ValueError("namespaces: each may be named once")
        return self

    @property
    def served(self) -> tuple[str, ...]:
        """All namespaces whose Topologies are carried out, the release's first."""
        return (self.namespace, *self.namespaces)

    @property
    def cores_max(self) -> float | None:
        """`max_cores` as a number."""
        return None if self.max_cores is None else cpu_millis(self.max_cores) / 1000


def load_operator_config(path: Path) -> OperatorConfig:
    """Read and check the file at `path`. Raises InvalidManifest with all faults."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidManifest([Fault(str(path), f"cannot be read: {error}")]) from error
    return parse_operator_config(text)


def parse_operator_config(text: str) -> OperatorConfig:
    """As `load_operator_config`, from text."""
    documents, faults = read_documents(text)
    document = documents[0] if len(documents) == 1 else None
    if not isinstance(document, dict):
        message = f"{shown(document)} is no configuration; give one object with fullname, images and store"
        raise InvalidManifest([*faults, Fault("", message)])
    try:
        config = OperatorConfig.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidManifest([*faults, *schema_faults(error, OperatorConfig, document)]) from error
    if faults:
        raise InvalidManifest(faults)
    return config
