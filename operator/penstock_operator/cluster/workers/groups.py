"""Workers in groups: all that run the same operators. One decision for each says who hosts, who is made,
who goes.

With isolation Topology there is one group, else one for each stage. Level-based, with one treatment at a
time: where a worker must go (another template, a cordoned node), one that is ready takes its place, its
work moves, and only a worker that holds nothing more is deleted. Neighbours: `workers` judges, `node_room`
finds nodes, `schedule_decisions` writes what the hosts run. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_operator.cluster.kubernetes_api.names import worker_name
from penstock_operator.cluster.workers.node_room import NodeRooms, Size
from penstock_operator.cluster.workers.workers import SinceWhen, Worker, WorkerState

UNSCHEDULABLE_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Group:
    """What one group should be. `operator` is "" for the group of all; `hosts_wanted` run executors, `spares`
    keep a session up beside them."""

    topology: str
    operator: str
    hosts_wanted: int
    spares: int

    @property
    def pods_wanted(self) -> int:
        return self.hosts_wanted + self.spares


@dataclass(frozen=True, slots=True)
class Hosts:
    """Who runs executors from now on. `active` take and give work, `pinned` keep what they have. `leaving`
    are workers whose work goes to others now; `treatment` says in words what is being done, "" for
    nothing."""

    active: tuple[Worker, ...]
    pinned: tuple[Worker, ...]
    leaving: tuple[Worker, ...] = ()
    treatment: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NewPod:
    """A pod to make. `preferred` is the node that it had, or that the worker it replaces has."""

    name: str
    preferred: str
    is_spare: bool


@dataclass(frozen=True, slots=True)
class GonePod:
    worker: Worker
    reason: str


def choose_hosts(group: Group, workers: Sequence[Worker], *, may_change: bool, has_room: bool) -> Hosts:
    """`may_change`: nothing is under way, so that new placement decisions are allowed. `has_room`: a pod
    that is missing can be made; without room a worker that must go leaves its work to the others."""
    holders = [worker for worker in workers if worker.executors]
    living = [worker for worker in holders if worker.state is WorkerState.READY]
    pinned = [w for w in holders if w.state in (WorkerState.AWAY, WorkerState.STARTING)]
    dead = [worker for worker in holders if worker.state is WorkerState.DEAD]
    spares = [
        worker
        for worker in workers
        if worker.state is WorkerState.READY and not worker.executors and not worker.must_go
    ]
    if dead and not living:
        # Nobody else can: it is taken on by a spare, or waits for its own return.
        if not spares:
            return Hosts((), (*pinned, *dead), reason="WorkersMissing", treatment=_waits(dead))
        living, spares = spares[: max(1, group.hosts_wanted - len(pinned))], []
    if dead:
        return Hosts(tuple(living), tuple(pinned), tuple(dead), _lost(dead), "WorkerLost")
    if not may_change:
        return Hosts((), (*living, *pinned))
    return _placed(group, living, pinned, spares, has_room=has_room)


def _placed(
    group: Group, living: list[Worker], pinned: list[Worker], spares: list[Worker], *, has_room: bool
) -> Hosts:
    wanted = max(1, group.hosts_wanted)
    active = list(living)
    treatment = reason = ""
    while len(active) + len(pinned) < wanted and spares:
        taken = _nearest_spare(spares, active, "")
        spares.remove(taken)
        active.append(taken)
        if living:
            treatment, reason = f"worker {taken.name} takes its share", "ScalingOut"
    leaving = sorted(active, key=lambda worker: _leaves_first(worker, active))
    surplus = max(0, min(len(active) + len(pinned) - wanted, len(active) - 1))
    gone = leaving[:surplus]
    if gone:
        must_go = [worker for worker in gone if worker.must_go]
        names = ", ".join(worker.name for worker in gone)
        treatment, reason = f"{names} hands over its work", "ScalingIn"
        if must_go:
            treatment, reason = _handover(must_go[0])
    elif leaving and leaving[0].must_go and leaving[0].executors:
        leaver = leaving[0]
        if spares:
            active.append(_nearest_spare(spares, active, leaver.node))
            gone = [leaver]
        elif not has_room and len(active) > 1 and (leaver.is_cordoned or not leaver.is_current):
            # One that only lacks cores is better off than all would be on fewer nodes.
            gone = [leaver]
        treatment, reason = _handover(leaver)
    staying = tuple(worker for worker in active if worker not in gone)
    return Hosts(staying, tuple(pinned), tuple(gone), treatment, reason)


def _handover(worker: Worker) -> tuple[str, str]:
    if worker.is_cordoned:
        return f"worker {worker.name} leaves node {worker.node}, which is cordoned", "Evacuating"
    if worker.lacks_cores:
        return f"worker {worker.name} leaves node {worker.node}, which does not give it its cores", "NoCores"
    return f"worker {worker.name} is replaced: what it was made from has changed", "RollingTemplate"


def _lost(dead: Sequence[Worker]) -> str:
    names = ", ".join(worker.name for worker in dead)
    return f"the work of {names} goes to others: no such worker runs any more"


def _waits(dead: Sequence[Worker]) -> str:
    shards = sum(worker.shards for worker in dead)
    names = ", ".join(worker.name for worker in dead)
    return f"{shards} shards wait for the return of {names}"


def _nearest_spare(spares: Sequence[Worker], active: Sequence[Worker], node: str) -> Worker:
    """On `node` if there is one, else where the fewest hosts are."""

    def key(worker: Worker) -> tuple[bool, int, int]:
        return worker.node != node, sum(host.node == worker.node for host in active), worker.index

    return min(spares, key=key)


def _leaves_first(worker: Worker, active: Sequence[Worker]) -> tuple[bool, bool, int, int, int]:
    """Sorts those first that must go; then who holds least, from the fullest node, with the highest
    number."""
    beside = sum(other.node == worker.node for other in active)
    return not worker.must_go, not worker.is_cordoned, worker.shards, -beside, -worker.index


# --- pods ---------------------------------------------------------------------------------------


def pods_to_make(group: Group, workers: Sequence[Worker]) -> tuple[NewPod, ...]:
    """Pods that are missing. One beyond the wanted number at a time replaces one that must go."""
    counted = [worker for worker in workers if _counts(worker)]
    taken = [worker for worker in workers if worker.pod is not None or _is_kept_open(worker)]
    leavers = [w for w in workers if w.pod is not None and w.must_go and not w.is_leaving]
    limit = group.pods_wanted + (1 if leavers else 0)
    missing = max(0, min(group.pods_wanted - len(counted), limit - len(taken)))
    orphans = [
        worker
        for worker in workers
        if worker.pod is None and worker.state is not WorkerState.AWAY and worker.operator == group.operator
    ]
    names = {worker.name for worker in workers}
    holders = sum(worker.executors > 0 for worker in workers if worker.pod is not None)
    made: list[NewPod] = []
    for orphan in orphans[:missing]:
        preferred = "" if orphan.is_cordoned else orphan.node
        made.append(NewPod(orphan.name, preferred, is_spare=False))
    index = 0
    good_nodes = [worker.node for worker in leavers if not worker.is_cordoned]
    while len(made) < missing:
        name = worker_name(group.topology, group.operator, index)
        index += 1
        if name not in names:
            is_spare = not leavers and holders + len(made) >= group.hosts_wanted
            made.append(NewPod(name, good_nodes[0] if good_nodes else "", is_spare))
    return tuple(made)


def pods_to_delete(
    group: Group, workers: Sequence[Worker], hosts: Hosts, *, is_settled: bool
) -> list[GonePod]:
    """Pods that nobody needs: ended ones at once, those that hold nothing once all is settled."""
    gone = [
        GonePod(worker, f"it has ended: {worker.pod.reason or worker.pod.phase}")
        for worker in workers
        if worker.pod is not None and worker.pod.deletion_timestamp is None and worker.is_leaving
    ]
    if not is_settled:
        return gone
    kept = {worker.name for worker in (*hosts.active, *hosts.pinned)}
    idle = [
        worker
        for worker in workers
        if worker.pod is not None
        and not worker.is_leaving
        and not worker.executors
        and worker.name not in kept
        and worker.operator == group.operator
    ]
    gone += [GonePod(worker, _why_outdated(worker)) for worker in idle if worker.must_go]
    usable = [worker for worker in idle if not worker.must_go]
    surplus = sum(_counts(worker) for worker in workers) - group.pods_wanted
    usable.sort(key=lambda worker: (worker.state is WorkerState.READY, -worker.index))
    gone += [GonePod(worker, "fewer workers are wanted") for worker in usable[: max(0, surplus)]]
    return gone


def replaced_in_place(hosts: Hosts, rooms: NodeRooms, size: Size) -> list[GonePod]:
    """The only worker, outdated, and no room for a second one beside it: it makes room itself, and its shards
    wait for the start of the next."""
    if len(hosts.active) != 1 or hosts.leaving:
        return []
    (worker,) = hosts.active
    if worker.is_current or worker.is_cordoned or worker.pod is None:
        return []
    freed = Size(worker.pod.cpu_request_millis, worker.pod.memory_request_bytes)
    if not rooms.has_room_instead(size, worker.node, freed):
        return []
    return [GonePod(worker, f"{_why_outdated(worker)}, and there is no room for a second one beside it")]


def misplaced(
    group: Group, workers: Sequence[Worker], rooms: NodeRooms, size: Size, since: SinceWhen
) -> list[GonePod]:
    """Pods that their node does not take, while another one would: the scheduler knows what is not seen here.
    The node is avoided for a while."""
    gone = []
    for worker in workers:
        pod = worker.pod
        if pod is None or pod.is_bound or pod.reason != "Unschedulable" or worker.is_leaving:
            continue
        is_refused = since.lasts_s(f"unschedulable:{pod.uid}") >= UNSCHEDULABLE_GRACE_S
        if is_refused and worker.operator == group.operator and rooms.has_room_beside(size, worker.node):
            since.mark(avoids(worker.node))
            gone.append(GonePod(worker, f"node {worker.node} does not take it: {pod.message}"))
    return gone


def avoids(node: str) -> str:
    """The name by which memory knows a node that did not take a pod."""
    return f"avoid:{node}"


def _why_outdated(worker: Worker) -> str:
    if worker.is_cordoned:
        return f"node {worker.node} is cordoned"
    if worker.lacks_cores:
        return f"node {worker.node} does not give it its cores"
    return "what it was made from has changed"


def _counts(worker: Worker) -> bool:
    """Whether it is one of those wanted. Away with its node it still is, if it has work there to come back
    to."""
    if worker.pod is None:
        return _is_kept_open(worker)
    if worker.is_leaving:
        return False
    if worker.state is WorkerState.AWAY and worker.executors:
        return True
    return not worker.must_go


def _is_kept_open(worker: Worker) -> bool:
    """Its pod went with its node; nobody else can do what it did."""
    return worker.pod is None and worker.state is WorkerState.AWAY


def grouped(
    workers: Sequence[Worker], groups: Sequence[Group], hosts_of: Mapping[str, set[str]]
) -> dict[str, list[Worker]]:
    """Group operator -> its workers: those made for it, and those that its Schedules name (`hosts_of`)."""
    return {
        group.operator: [
            worker
            for worker in workers
            if worker.operator == group.operator or worker.name in hosts_of.get(group.operator, ())
        ]
        for group in groups
    }
