"""Pods in the wrong place, for reasons that only a cluster has: their node does not take them, or the only
one has to make room for its own successor.

Pure. Neighbours: `penstock.supervision.numbers` says who leaves otherwise, `node_room` finds nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.supervision.hosts import Group, Hosts
from penstock.supervision.numbers import EndWorker, why_it_must_go
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Worker
from penstock_operator.cluster.observing.observed import ObservedPod
from penstock_operator.cluster.workers.node_room import NodeRooms, Size

UNSCHEDULABLE_GRACE_S = 10.0


def replaced_in_place(
    hosts: Hosts, pods: Mapping[str, ObservedPod], rooms: NodeRooms, size: Size
) -> list[EndWorker]:
    """The only worker, outdated, and no room for a second one beside it: it makes room itself, and its shards
    wait for the start of the next."""
    if len(hosts.active) != 1 or hosts.leaving:
        return []
    (worker,) = hosts.active
    pod = pods.get(worker.name)
    is_current = worker.is_current and not worker.leaves_store
    if is_current or worker.is_cordoned or pod is None:
        return []
    freed = Size(pod.cpu_request_millis, pod.memory_request_bytes)
    if not rooms.has_room_instead(size, worker.node, freed):
        return []
    return [EndWorker(worker, f"{why_it_must_go(worker)}, and there is no room for a second one beside it")]


def misplaced(
    group: Group,
    workers: Sequence[Worker],
    pods: Mapping[str, ObservedPod],
    rooms: NodeRooms,
    size: Size,
    since: SinceWhen,
) -> list[EndWorker]:
    """Pods that their node does not take, while another one would: the scheduler knows what is not seen here.
    The node is avoided for a while."""
    gone = []
    for worker in workers:
        pod = pods.get(worker.name)
        if pod is None or pod.is_bound or pod.reason != "Unschedulable" or worker.is_leaving:
            continue
        is_refused = since.lasts_s(f"unschedulable:{pod.uid}") >= UNSCHEDULABLE_GRACE_S
        if is_refused and worker.group == group.operator and rooms.has_room_beside(size, worker.node):
            since.mark(avoids(worker.node))
            gone.append(EndWorker(worker, f"node {worker.node} does not take it: {pod.message}"))
    return gone


def avoids(node: str) -> str:
    """The name by which memory knows a node that did not take a pod."""
    return f"avoid:{node}"
