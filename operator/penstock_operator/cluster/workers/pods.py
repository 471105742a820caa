"""The workers of a topology from its pods and from what Schedules say of them, judged.

A cluster knows of workers what one machine does not: nodes that are away or cordoned, templates that have
changed, resizes that come to nothing. Pure. Neighbours: `penstock.supervision` judges and decides on what
comes out, `misplaced_pods` and `node_room` look at nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.metrics.rows import tells_of_now
from penstock.schedule.record import WorkerPlace
from penstock.schedule.store_ids import node_of, store_id
from penstock.supervision.judge import PODS, Sight, judge
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Holding, Worker, holdings
from penstock_operator.cluster.kubernetes_api.names import LABEL_OPERATOR, worker_index
from penstock_operator.cluster.observing.observed import (
    Observed,
    ObservedPod,
    ObservedSchedule,
    Resize,
    stores_there,
)
from penstock_operator.cluster.workers.leaving_stores import LeavingStores
from penstock_operator.cluster.workers.node_room import PlacementRules

DEFERRED_GRACE_S = 30.0
"""A node that has not the cores that a pod asks for may have them once another one has left."""
ENDED = ("Failed", "Succeeded")
_FAILED = (Resize.INFEASIBLE, Resize.ERROR)
_STARTING_REASONS = ("", "ContainerCreating", "PodInitializing", "Unschedulable")


def judge_workers(
    observed: Observed,
    schedules: Sequence[ObservedSchedule],
    template_hash: str | None,
    since: SinceWhen,
    rules: PlacementRules | None = None,
    *,
    balances: bool = True,
) -> tuple[Worker, ...]:
    """All workers, in the order of their numbers. `template_hash` None: it is not known now, every pod is
    current. `rules` say which taints a worker stays with; None: with any. `balances`: where a node has
    several stores, workers go to another one for the better."""
    pods = {pod.name: pod for pod in observed.pods}
    places = _places(schedules)
    held = holdings((seen.schedule for seen in schedules), _remote(schedules))
    within_reach = _stores_within_reach(observed, schedules)
    holders = {name for name, holding in held.items() if holding.executors}
    leaving_stores = LeavingStores.of(observed, rules, holders if balances else ())
    nodes = {node.name for node in observed.nodes}
    leaving = {n.name: rules.sends_away(n) if rules is not None else "" for n in observed.nodes}
    cordoned = {node.name for node in observed.nodes if not node.schedulable or leaving[node.name]}
    workers = []
    for name in sorted(
        pods.keys() | places.keys(), key=lambda name: (name.rpartition("-w")[0], worker_index(name))
    ):
        pod, place = pods.get(name), places.get(name)
        where = pod or place
        node, server = (where.node, where.server) if where is not None else ("", 0)
        store = store_id(node, server)
        holding = held.get(name, Holding())
        group = pod.labels.get(LABEL_OPERATOR, "") if pod is not None else _group(observed, schedules, name)
        sight = Sight(
            name=name,
            uid=pod.uid if pod is not None else "",
            is_within_reach=store in within_reach,
            has_ended=pod is not None and (_is_leaving(pod) or node not in nodes | {""}),
            says_ready=pod is not None
            and (pod.ready or (holding.executors > 0 and _is_alive(observed, pod))),
            is_first_start=pod is not None and pod.restarts == 0 and pod.reason in _STARTING_REASONS,
        )
        workers.append(
            Worker(
                name=name,
                number=worker_index(name),
                state=judge(sight, PODS, since),
                uid=sight.uid,
                node=node,
                server=server,
                group=group,
                ending=ending_of(pod) if pod is not None else "",
                is_told_to_go=pod is not None and pod.deletion_timestamp is not None,
                is_current=pod is None
                or (template_hash in (None, pod.template_hash) and pod.resize not in _FAILED),
                is_cordoned=node in cordoned,
                leaves_store=leaving_stores.why(store, holds=name in holders),
                crowds_store=leaving_stores.crowded.get(name, ""),
                lacks_cores=pod is not None and _lacks_cores(pod, since),
                holding=holding,
            )
        )
    return tuple(workers)


def worker_place(worker: Worker, schedules: Sequence[ObservedSchedule]) -> WorkerPlace:
    """As a schedule names it: with its present uid, or the one it had while it has no pod."""
    if worker.is_there:
        return WorkerPlace(worker.name, worker.node, worker.node, worker.uid, worker.server)
    return _places(schedules)[worker.name]


def _places(schedules: Sequence[ObservedSchedule]) -> dict[str, WorkerPlace]:
    return {place.name: place for seen in schedules for place in seen.schedule.workers}


def _remote(schedules: Sequence[ObservedSchedule]) -> Mapping[str, tuple[tuple[str, int], ...]]:
    return {executor: nodes for seen in schedules for executor, nodes in seen.remote.items()}


def _stores_within_reach(observed: Observed, schedules: Sequence[ObservedSchedule]) -> set[str]:
    """Those that are there with their node; and those whose node is gone for good where that leaves nothing
    behind: they are on another one, or nobody's home."""
    there = stores_there(observed.nodes, observed.stores)
    nodes = {node.name: node.ready for node in observed.nodes}
    homes = {place.home for seen in schedules for place in seen.schedule.shards.values()}
    named = {place.store for seen in schedules for place in seen.schedule.workers}
    named |= {pod.store for pod in observed.pods if pod.node}
    gone = {
        store for store in named if node_of(store) not in nodes and (store in there or store not in homes)
    }
    return gone | {store for store in there if nodes.get(node_of(store))}


def _is_leaving(pod: ObservedPod) -> bool:
    return pod.deletion_timestamp is not None or pod.phase in ENDED


def ending_of(pod: ObservedPod) -> str:
    """How it has ended, in words; "" while it runs or is to."""
    return f"it has ended: {pod.reason or pod.phase}" if pod.phase in ENDED else ""


def _is_alive(observed: Observed, pod: ObservedPod) -> bool:
    """A fresh row shows that it lives, whatever its probe says."""
    reading = observed.readings.get(pod.store)
    row = reading.workers.get(pod.name) if reading is not None else None
    return (
        reading is not None
        and row is not None
        and row.uid == pod.uid
        and row.state == "ready"
        and tells_of_now(row, reading.now_us)
    )


def _lacks_cores(pod: ObservedPod, since: SinceWhen) -> bool:
    """Whether a resize has come to nothing, or has been put off for too long."""
    if pod.resize is Resize.DEFERRED:
        return since.lasts_s(f"deferred:{pod.uid}") >= DEFERRED_GRACE_S
    return pod.resize in _FAILED


def _group(observed: Observed, schedules: Sequence[ObservedSchedule], worker: str) -> str:
    """Of a worker without pod: with isolation Operator, the one whose Schedule names it."""
    topology = observed.topology.topology
    if topology is None or topology.spec.workers.isolation == "Topology":
        return ""
    for seen in schedules:
        if any(place.name == worker for place in seen.schedule.workers):
            return seen.schedule.operator
    return ""
