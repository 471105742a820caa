"""How many workers a group has: who is made because one is missing, and who leaves because nobody needs it.

A worker that holds something leaves only once that has moved; one that is gone is made again by its own name,
if it may start again now. Pure. Neighbours: `hosts` says who works, `restarts` when a start may follow a
death; each runtime makes and ends what comes out (and knows whether there is room).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count

from penstock.schedule.store_ids import in_words
from penstock.supervision.hosts import Group
from penstock.supervision.worker import Worker, WorkerState


@dataclass(frozen=True, slots=True)
class MakeWorker:
    """A worker to make. `preferred` is the node that it had, or that the worker it replaces has; `server` the
    one of that node's store servers that it had, None where that is of no moment."""

    name: str
    preferred: str = ""
    is_spare: bool = False
    server: int | None = None


@dataclass(frozen=True, slots=True)
class EndWorker:
    worker: Worker
    reason: str


def workers_to_make(
    group: Group,
    workers: Sequence[Worker],
    name_of: Callable[[int], str],
    *,
    taken: Collection[str] = (),
    at_once: int | None = None,
) -> tuple[MakeWorker, ...]:
    """Workers that are missing. One beyond the wanted number at a time replaces one that must go.

    A new one gets the first name (`name_of` its number) that no worker has, nor `taken`. It is made while
    fewer than `at_once` of those that hold nothing have yet to become ready (None: all at once).
    """
    counted = [worker for worker in workers if _counts(worker)]
    there = [worker for worker in workers if worker.is_there or _is_waited_for(worker)]
    leavers = [w for w in workers if w.is_there and w.must_go and not w.is_leaving]
    limit = group.workers_wanted + (1 if leavers else 0)
    missing = max(0, min(group.workers_wanted - len(counted), limit - len(there)))
    orphans = [w for w in workers if w.group == group.operator and _is_gone(w) and w.may_start]
    holders = sum(worker.holds_executors for worker in workers if worker.is_there)
    made = [MakeWorker(o.name, "" if o.is_cordoned else o.node, server=_server(o)) for o in orphans[:missing]]
    names = {worker.name for worker in workers} | set(taken)
    good_nodes = [worker.node for worker in leavers if not worker.is_cordoned]
    starting = sum(w.state is not WorkerState.READY and not w.holds_executors for w in workers)
    for number in count():
        if len(made) >= missing or (at_once is not None and starting >= at_once):
            break
        if (name := name_of(number)) not in names:
            starting += 1
            is_spare = not leavers and holders + len(made) >= group.hosts_wanted
            made.append(MakeWorker(name, good_nodes[0] if good_nodes else "", is_spare))
    return tuple(made)


def workers_to_end(
    group: Group, workers: Sequence[Worker], kept: Collection[str], *, is_settled: bool
) -> list[EndWorker]:
    """Workers that nobody needs: ended ones at once, those that hold nothing once all is settled, but for the
    `kept` (by name)."""
    gone = [
        EndWorker(worker, worker.ending)
        for worker in workers
        if worker.is_there and not worker.is_told_to_go and worker.ending
    ]
    if not is_settled:
        return gone
    idle = [
        worker
        for worker in workers
        if (worker.is_there or not worker.may_start)
        and not worker.is_leaving
        and not worker.holds_executors
        and worker.name not in kept
        and worker.group == group.operator
    ]
    gone += [EndWorker(worker, why_it_must_go(worker)) for worker in idle if worker.must_go]
    usable = [worker for worker in idle if not worker.must_go]
    surplus = sum(_counts(worker) for worker in workers) - group.workers_wanted
    usable.sort(key=lambda worker: (worker.state is WorkerState.READY, -worker.number))
    gone += [EndWorker(worker, "fewer workers are wanted") for worker in usable[: max(0, surplus)]]
    return gone


def why_it_must_go(worker: Worker) -> str:
    if worker.is_cordoned:
        return f"node {worker.node} is cordoned or tainted"
    if worker.leaves_store:
        return f"it leaves the store of {in_words(worker.store)}: {worker.leaves_store}"
    if worker.crowds_store and worker.is_current:
        return f"it goes from the store of {in_words(worker.store)}: {worker.crowds_store}"
    if worker.lacks_cores:
        return f"node {worker.node} does not give it its cores"
    return "what it was made from has changed"


def _server(orphan: Worker) -> int | None:
    """The one whose store holds what it ran."""
    return orphan.server if orphan.holds_executors and not orphan.leaves_store else None


def _counts(worker: Worker) -> bool:
    """Whether it is one of those wanted. Away with its node it still is, if it has work there to come back
    to."""
    if not worker.is_there:
        return _is_waited_for(worker)
    if worker.is_leaving:
        return False
    if worker.state is WorkerState.AWAY and worker.holds_executors:
        return True
    return not worker.must_go


def _is_waited_for(worker: Worker) -> bool:
    """It went with its node, and nobody else can do what it did; or its next start has yet to come."""
    return not worker.is_there and (worker.state is WorkerState.AWAY or not worker.may_start)


def _is_gone(worker: Worker) -> bool:
    return not worker.is_there and worker.state is not WorkerState.AWAY
