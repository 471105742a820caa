"""Who runs executors: of a group of workers those that do, those that are to, and those whose work goes.

Level-based, with one treatment at a time: where a worker must go (it is to be made anew, its node is
cordoned), one that is ready takes its place, and its work moves. What a dead one held goes to the living at
once, to spares where nobody lives; where there are none either it waits. Pure. Neighbours: `worker` is what
is decided on, `numbers` says who is made and who leaves, `penstock.schedule.planner` what the hosts run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.schedule.store_ids import in_words
from penstock.supervision.worker import Worker, WorkerState


@dataclass(frozen=True, slots=True)
class Group:
    """What one group of workers should be: all of a topology (`operator` ""), or those of one operator.
    `hosts_wanted` run executors, `spares` keep a session up beside them."""

    operator: str
    hosts_wanted: int
    spares: int

    @property
    def workers_wanted(self) -> int:
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

    @property
    def staying(self) -> frozenset[str]:
        """The names of those that run something."""
        return frozenset(worker.name for worker in (*self.active, *self.pinned))

    @property
    def is_urgent(self) -> bool:
        """Work waits: those who held it do not work any more."""
        return any(worker.state is not WorkerState.READY for worker in self.leaving)


def choose_hosts(group: Group, workers: Sequence[Worker], *, may_change: bool, has_room: bool) -> Hosts:
    """`may_change`: nothing is under way, so that new placement decisions are allowed. `has_room`: a worker
    that is missing can be made; without room one that must go leaves its work to the others."""
    holders = [worker for worker in workers if worker.holds_executors]
    living = [worker for worker in holders if worker.state is WorkerState.READY]
    pinned = [w for w in holders if w.state in (WorkerState.AWAY, WorkerState.STARTING)]
    dead = [worker for worker in holders if worker.state is WorkerState.DEAD]
    spares = [worker for worker in workers if worker.is_idle]
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
    elif leaving and leaving[0].must_go and leaving[0].holds_executors:
        leaver = leaving[0]
        if spares:
            active.append(_nearest_spare(spares, active, leaver.node))
            gone = [leaver]
        elif not has_room and len(active) > 1 and leaver.has_to_go:
            # One that goes for the better alone is better off than all would be on fewer nodes.
            gone = [leaver]
        treatment, reason = _handover(leaver)
    staying = tuple(worker for worker in active if worker not in gone)
    return Hosts(staying, tuple(pinned), tuple(gone), treatment, reason)


def _handover(worker: Worker) -> tuple[str, str]:
    if worker.is_cordoned:
        return f"worker {worker.name} leaves node {worker.node}, which is cordoned or tainted", "Evacuating"
    if worker.leaves_store:
        told = f"worker {worker.name} leaves the store of {in_words(worker.store)}: {worker.leaves_store}"
        return told, "Evacuating"
    if worker.crowds_store and worker.is_current:
        told = f"worker {worker.name} goes from the store of {in_words(worker.store)}: {worker.crowds_store}"
        return told, "Balancing"
    if worker.lacks_cores:
        return f"worker {worker.name} leaves node {worker.node}, which does not give it its cores", "NoCores"
    return f"worker {worker.name} is replaced: what it was made from has changed", "RollingTemplate"


def _lost(dead: Sequence[Worker]) -> str:
    names = ", ".join(worker.name for worker in dead)
    return f"the work of {names} goes to others: no such worker runs any more"


def _waits(dead: Sequence[Worker]) -> str:
    shards = sum(worker.holding.shards for worker in dead)
    names = ", ".join(worker.name for worker in dead)
    return f"{shards} shards wait for the return of {names}"


def _nearest_spare(spares: Sequence[Worker], active: Sequence[Worker], node: str) -> Worker:
    """On `node` if there is one, else where the fewest hosts are."""

    def key(worker: Worker) -> tuple[bool, int, int]:
        return worker.node != node, sum(host.node == worker.node for host in active), worker.number

    return min(spares, key=key)


def _leaves_first(worker: Worker, active: Sequence[Worker]) -> tuple[bool, bool, int, int, int, int]:
    """Sorts those first that must go; then those of a store that has more of them than another one of its
    node; then who holds least, from the fullest node, with the highest number."""
    beside = Counter(other.store for other in active if other.node == worker.node)
    more = beside[worker.store] - min(beside.values())
    there = beside.total()
    return not worker.must_go, not worker.is_cordoned, -more, worker.holding.shards, -there, -worker.number


def grouped(
    workers: Sequence[Worker], groups: Sequence[Group], hosts_of: Mapping[str, set[str]]
) -> dict[str, list[Worker]]:
    """Group operator -> its workers: those made for it, and those that its schedules name (`hosts_of`)."""
    return {
        group.operator: [
            worker
            for worker in workers
            if worker.group == group.operator or worker.name in hosts_of.get(group.operator, ())
        ]
        for group in groups
    }
