"""Kubernetes' objects -> what `decide` sees. Pure: objects in, frozen values out.

Neighbours: `mirror` has the objects, `store_reader` the stores' answers, `reconcile` puts the two together
into an `Observed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.api.compile import compile_topology
from penstock.api.load import read_topology
from penstock.api.operator_config import OperatorConfig
from penstock.api.schedule_object import applied_of, from_object, owner_of
from penstock.manifest.faults import InvalidManifest
from penstock.schedule.remote import remote_of, with_remote
from penstock.schedule.store_ids import node_of
from penstock_operator.cluster.kubernetes_api.names import (
    ANNOTATION_IDENTITY,
    ANNOTATION_TEMPLATE,
    COMPONENT_SPARK_WORKER,
    COMPONENT_STORE,
    COMPONENT_WORKER,
    LABEL_COMPONENT,
    LABEL_NAME,
    LABEL_NODE,
    LABEL_SERVER,
    LABEL_STORE,
    LABEL_TOPOLOGY,
    label_value,
    store_address,
)
from penstock_operator.cluster.kubernetes_api.port import Object, name_of, uid_of, version_of
from penstock_operator.cluster.kubernetes_api.quantities import cpu_and_memory, whole
from penstock_operator.cluster.observing.observed import (
    ObservedNode,
    ObservedPod,
    ObservedSchedule,
    ObservedStore,
    ObservedTopology,
    Resize,
    Taint,
    Volume,
)

WORKER_CONTAINER = "worker"

_AGENT_CONTAINER = "agent"
_NODE = "PENSTOCK_NODE"
_DURABILITY = "PENSTOCK_STORE_DURABILITY"
_NAMESPACES_FILE = "PENSTOCK_NAMESPACES_FILE"
_ENDED = {"Succeeded", "Failed"}
_HOSTNAME = "kubernetes.io/hostname"
_REVISION = "controller-revision-hash"


@dataclass(frozen=True, slots=True)
class Request:
    """What one pod takes of its node."""

    cpu_millis: int
    memory_bytes: int


def observe_topology(manifest: Object) -> ObservedTopology:
    """What a Topology object means; faults instead, where it means nothing."""
    metadata = manifest["metadata"]
    head = (name_of(manifest), uid_of(manifest), int(metadata.get("generation", 0)), manifest)
    is_deleting = "deletionTimestamp" in metadata
    try:
        topology = read_topology(manifest)
        plan = compile_topology(topology, "cluster")
    except InvalidManifest as invalid:
        faults = tuple(str(fault) for fault in invalid.faults)
        return ObservedTopology(*head, faults=faults, is_deleting=is_deleting)
    return ObservedTopology(*head, topology=topology, plan=plan, is_deleting=is_deleting)


def is_worker(pod: Object) -> bool:
    return _is_part(pod, COMPONENT_WORKER)


def is_spark_worker(pod: Object) -> bool:
    return _is_part(pod, COMPONENT_SPARK_WORKER)


def is_store(stateful_set: Object) -> bool:
    return _is_part(stateful_set, COMPONENT_STORE)


def topology_label(thing: Object) -> str:
    """Which topology its label names; "" for none."""
    return str(_labels(thing).get(LABEL_TOPOLOGY, ""))


def node_named(thing: Object) -> str:
    """The value of the label that says which node a pod is for, or which store a StatefulSet or its pod is;
    "" for none."""
    labels = _labels(thing)
    return str(labels.get(LABEL_STORE) or labels.get(LABEL_NODE, ""))


def is_of(thing: Object, topology: str) -> bool:
    """Whether the object's label names this topology."""
    return bool(_labels(thing).get(LABEL_TOPOLOGY) == label_value(topology))


def observe_pod(pod: Object, nodes: Iterable[str]) -> ObservedPod:
    """`nodes` are the names of all nodes: a label may hold a long one in short only."""
    spec, status = pod["spec"], pod.get("status") or {}
    labels = _labels(pod)
    bound = spec.get("nodeName")
    wishes = (one.get("resources") for one in spec["containers"] if one["name"] == WORKER_CONTAINER)
    resources = next(wishes, None) or {}
    cpu_request, memory_request = cpu_and_memory(resources.get("requests") or {})
    cpu_limit, memory_limit = cpu_and_memory(resources.get("limits") or {})
    containers = {one["name"]: one for one in status.get("containerStatuses") or ()}
    own = containers.get(WORKER_CONTAINER, {})
    reason, message = _trouble(status, own)
    return ObservedPod(
        name=name_of(pod),
        uid=uid_of(pod),
        node=bound or _node_of(labels.get(LABEL_NODE, ""), nodes),
        is_bound=bool(bound),
        phase=str(status.get("phase", "Pending")),
        ready=_condition(status, "Ready").get("status") == "True",
        template_hash=str((pod["metadata"].get("annotations") or {}).get(ANNOTATION_TEMPLATE, "")),
        labels=labels,
        cpu_request_millis=cpu_request,
        cpu_limit_millis=cpu_limit,
        memory_request_bytes=memory_request,
        memory_limit_bytes=memory_limit,
        resize=_resize(status),
        deletion_timestamp=pod["metadata"].get("deletionTimestamp"),
        restarts=int(own.get("restartCount", 0)),
        reason=reason,
        message=message,
        host=str(status.get("podIP") or status.get("hostIP") or ""),
        server=_server_of(labels),
    )


def _server_of(labels: Mapping[str, str]) -> int:
    number = labels.get(LABEL_SERVER, "")
    return int(number) if number.isdecimal() else 0


def requested(pod: Object) -> Request:
    """What the scheduler counts for a pod: its containers and sidecars together, or its largest first step;
    of a pod that is being resized the larger of wish and grant."""
    spec, status = pod["spec"], pod.get("status") or {}
    running = status.get("containerStatuses") or ()
    granted = {one["name"]: one.get("allocatedResources") or {} for one in running}
    cpu = memory = 0
    for one in spec["containers"]:
        wish = cpu_and_memory((one.get("resources") or {}).get("requests") or {})
        grant = cpu_and_memory(granted.get(one["name"], {}))
        cpu, memory = cpu + max(wish[0], grant[0]), memory + max(wish[1], grant[1])
    first_cpu = first_memory = 0
    for one in spec.get("initContainers") or ():
        wish = cpu_and_memory((one.get("resources") or {}).get("requests") or {})
        if one.get("restartPolicy") == "Always":
            cpu, memory = cpu + wish[0], memory + wish[1]
        else:
            first_cpu, first_memory = max(first_cpu, wish[0]), max(first_memory, wish[1])
    whole_pod = cpu_and_memory((spec.get("resources") or {}).get("requests") or {})
    extra = cpu_and_memory(spec.get("overhead") or {})
    return Request(
        max(cpu, first_cpu, whole_pod[0]) + extra[0], max(memory, first_memory, whole_pod[1]) + extra[1]
    )


def bound_where_pinned(pod: Object, nodes: Iterable[str]) -> Object:
    """A worker pod that is not bound yet as if it were on the node that it is pinned to."""
    return {**pod, "spec": {**pod["spec"], "nodeName": _node_of(_labels(pod).get(LABEL_NODE, ""), nodes)}}


def requests_by_node(pods: Iterable[Object]) -> dict[str, tuple[Request, ...]]:
    """Node -> the requests of the pods that are bound to it and not ended."""
    found: dict[str, list[Request]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in _ENDED:
            found.setdefault(node, []).append(requested(pod))
    return {node: tuple(requests) for node, requests in found.items()}


def observe_node(node: Object, requests: Sequence[Request]) -> ObservedNode:
    """`requests` are those of all pods that are on it."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    allocatable = status.get("allocatable") or {}
    cpu, memory = cpu_and_memory(allocatable)
    labels = _labels(node)
    return ObservedNode(
        name=name_of(node),
        ready=_condition(status, "Ready").get("status") == "True",
        schedulable=not spec.get("unschedulable", False),
        cpu_allocatable_millis=cpu,
        memory_allocatable_bytes=memory,
        cpu_requested_millis=sum(request.cpu_millis for request in requests),
        memory_requested_bytes=sum(request.memory_bytes for request in requests),
        pods_allocatable=whole(str(allocatable.get("pods", "110"))),
        pods=len(requests),
        labels=labels,
        taints=tuple(
            Taint(str(one["key"]), str(one.get("value", "")), str(one["effect"]))
            for one in spec.get("taints") or ()
        ),
        hostname=labels.get(_HOSTNAME, ""),
    )


def observe_store(
    stateful_set: Object, pod: Object | None, nodes: Iterable[str], config: OperatorConfig
) -> ObservedStore:
    """`pod` is the set's only one, if it is there."""
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    told = _agent_settings(spec)
    store = told.get(_NODE) or _node_of(_labels(stateful_set).get(LABEL_NODE, ""), nodes)
    node = node_of(store)
    volume = _volume(spec)
    status = (pod or {}).get("status") or {}
    reason, message = _trouble(status, next(iter(status.get("containerStatuses") or ()), {}))
    is_leaving = pod is not None and "deletionTimestamp" in pod["metadata"]
    return ObservedStore(
        id=store,
        node=node,
        address=store_address(config.fullname, store, config.store.headless_service, config.namespace),
        ready=pod is not None and not is_leaving and _condition(status, "Ready").get("status") == "True",
        durability=told.get(_DURABILITY, "Process"),
        has_pvc=volume is not None,
        stateful_set=name_of(stateful_set),
        uid=uid_of(stateful_set),
        template_hash=str((metadata.get("annotations") or {}).get(ANNOTATION_TEMPLATE, "")),
        is_deleting="deletionTimestamp" in metadata,
        message="" if not reason else f"{reason}: {message}" if message else reason,
        pod_uid="" if pod is None or is_leaving else uid_of(pod),
        is_outdated=pod is not None and not is_leaving and _is_outdated(stateful_set, pod),
        volume=volume,
        runs_on=str((pod or {}).get("spec", {}).get("nodeName") or ""),
        serves_others=_NAMESPACES_FILE in _agent_settings({"template": pod or {}}),
    )


def observe_schedule(schedule: Object) -> ObservedSchedule:
    """Raises InvalidManifest for one that contradicts itself: somebody else wrote it."""
    metadata = schedule["metadata"]
    owners = metadata.get("ownerReferences") or ()
    owner = owner_of(schedule)
    seen = from_object(schedule)
    return ObservedSchedule(
        name=name_of(schedule),
        uid=uid_of(schedule),
        resource_version=version_of(schedule),
        topology_uid=owner.topology_uid,
        schedule=with_remote(seen, {}),
        remote=remote_of([seen]),
        applied=applied_of(schedule),
        owner_uid=str(next((one["uid"] for one in owners if one.get("kind") == "Topology"), "")),
        is_deleting="deletionTimestamp" in metadata,
        identity=str((metadata.get("annotations") or {}).get(ANNOTATION_IDENTITY, "")),
        store_memory_bytes=owner.store_memory_bytes,
        topology=owner.topology,
        durability=owner.durability,
        metadata=metadata,
    )


def disruption_budget_min(budget: Object | None) -> int | None:
    least = None if budget is None else budget["spec"].get("minAvailable")
    return least if isinstance(least, int) else None


# --- parts


def _labels(thing: Object) -> Mapping[str, str]:
    return thing["metadata"].get("labels") or {}


def _is_part(thing: Object, component: str) -> bool:
    labels = _labels(thing)
    return labels.get(LABEL_NAME) == "penstock" and labels.get(LABEL_COMPONENT) == component


def _node_of(label: str, nodes: Iterable[str]) -> str:
    return next((node for node in nodes if label_value(node) == label), label)


def _is_outdated(stateful_set: Object, pod: Object) -> bool:
    """Whether the set's controller knows of a newer template than the pod's. Its word counts once it has
    seen the set as it is."""
    status = stateful_set.get("status") or {}
    if int(status.get("observedGeneration", 0)) < int(stateful_set["metadata"].get("generation", 0)):
        return False
    newest, own = status.get("updateRevision"), _labels(pod).get(_REVISION)
    return bool(newest and own and newest != own)


def _volume(stateful_set: Mapping[str, Any]) -> Volume | None:
    for claim in stateful_set.get("volumeClaimTemplates") or ():
        spec = claim["spec"]
        return Volume(str(spec["resources"]["requests"]["storage"]), spec.get("storageClassName"))
    return None


def _agent_settings(stateful_set: Mapping[str, Any]) -> dict[str, str]:
    """The plain values in the environment of a store's agent, by the template of its pod."""
    containers = (stateful_set["template"].get("spec") or {}).get("containers") or ()
    variables = (one.get("env") or () for one in containers if one["name"] == _AGENT_CONTAINER)
    return {str(one["name"]): str(one["value"]) for one in next(variables, ()) if "value" in one}


def _condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    return next((one for one in status.get("conditions") or () if one["type"] == type_), {})


def _resize(status: Mapping[str, Any]) -> Resize:
    pending = _condition(status, "PodResizePending")
    if pending.get("status") == "True":
        return Resize.INFEASIBLE if pending.get("reason") == "Infeasible" else Resize.DEFERRED
    in_progress = _condition(status, "PodResizeInProgress")
    if in_progress.get("status") == "True":
        return Resize.ERROR if in_progress.get("reason") == "Error" else Resize.IN_PROGRESS
    return Resize.NONE


def _trouble(status: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[str, str]:
    """(reason, message) of why a pod does not run, or last stopped; ("", "") when all is well."""
    if status.get("reason"):
        return str(status["reason"]), str(status.get("message", ""))
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason", "Unschedulable")), str(scheduled.get("message", ""))
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") and waiting["reason"] not in {"ContainerCreating", "PodInitializing"}:
        return str(waiting["reason"]), str(waiting.get("message", ""))
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        ended = state.get("terminated") or {}
        if ended.get("reason") and ended["reason"] != "Completed":
            return str(ended["reason"]), str(ended.get("message") or f"exit code {ended.get('exitCode')}")
    return "", ""
