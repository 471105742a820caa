"""What `cluster_world` is made of: pods, nodes and node stores as they are, before anybody looks at them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.schedule.record import OperatorSchedule
from penstock.schedule.store_ids import store_id
from penstock_operator.cluster.kubernetes_api.names import (
    ANNOTATION_TEMPLATE,
    COMPONENT_SPARK_WORKER,
    LABEL_COMPONENT,
    LABEL_NODE,
    LABEL_SERVER,
)
from penstock_operator.cluster.observing.observed import ObservedPod, Resize, Taint, Volume

GIB = 1 << 30


@dataclass
class WorldPod:
    """`ready_in` counts the seconds until it is; None: it will not be."""

    document: dict[str, Any]
    uid: str
    ready_in: int | None = 2
    ready: bool = False
    is_bound: bool = True
    deleted_in: int | None = None
    restarts: int = 0
    reason: str = ""
    phase: str = "Running"
    resize: Resize = Resize.NONE

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def node(self) -> str:
        return str(self.document["metadata"]["labels"][LABEL_NODE])

    @property
    def server(self) -> int:
        return int(self.document["metadata"]["labels"].get(LABEL_SERVER, "0"))

    @property
    def store(self) -> str:
        return store_id(self.node, self.server)

    @property
    def is_spark_worker(self) -> bool:
        return bool(self.document["metadata"]["labels"][LABEL_COMPONENT] == COMPONENT_SPARK_WORKER)

    @property
    def takes_room(self) -> bool:
        return self.is_bound and self.phase not in ("Failed", "Succeeded")

    @property
    def cpu_millis(self) -> int:
        return int(self.document["spec"]["containers"][0]["resources"]["requests"]["cpu"][:-1])

    def observed(self) -> ObservedPod:
        resources = self.document["spec"]["containers"][0]["resources"]
        return ObservedPod(
            name=self.name,
            uid=self.uid,
            node=self.node,
            is_bound=self.is_bound,
            phase=self.phase,
            ready=self.ready,
            template_hash=self.document["metadata"]["annotations"][ANNOTATION_TEMPLATE],
            labels=self.document["metadata"]["labels"],
            cpu_request_millis=self.cpu_millis,
            cpu_limit_millis=int(resources["limits"]["cpu"][:-1]),
            memory_request_bytes=GIB,
            memory_limit_bytes=GIB,
            host=f"10.0.0.{self.uid.rpartition('-')[2]}" if self.ready else "",
            deletion_timestamp=None if self.deleted_in is None else "2026-01-01T00:00:00Z",
            restarts=self.restarts,
            reason=self.reason,
            resize=self.resize,
            server=self.server,
        )


@dataclass
class WorldNode:
    cpu_millis: int = 8000
    memory_bytes: int = 16 * GIB
    ready: bool = True
    schedulable: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass
class WorldStore:
    """A node's store: what it holds, and what its agent has applied (operator -> version)."""

    uid: str
    ready_in: int = 1
    ready: bool = False
    template: str = ""
    pod_uid: str = ""
    pod_template: str = ""
    held: set[str] = field(default_factory=set)
    applied: dict[str, int] = field(default_factory=dict)
    kept: dict[str, tuple[str, OperatorSchedule]] = field(default_factory=dict)
    """Operator -> uid of the state, and its schedule as the agent saw it last: it lies beside the state."""
    generation: int = 1
    durability: str = "Process"
    volume: Volume | None = None
    """As its StatefulSet claims it, which the API server lets nobody change."""
    is_pinned: bool = True
    runs_on: str = ""
    """Where its pod went that is not pinned."""
    finds_room: bool = True
