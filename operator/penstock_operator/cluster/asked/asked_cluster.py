"""A Topology in a cluster, to be asked about: a process in one of its workers' pods answers.

Only there are the stores within reach, and the login that leads to this topology's part of them and to no
other's: it stays where it is. So who may start processes in its pods may ask, and nobody needs rights where
the stores are. A Topology that is finished has no worker; it is asked to get one, by an annotation.
Neighbours: `reached` and `pod_line`; `asking` is the same for a run on this machine.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from penstock.api.schedule_object import from_object, owner_of
from penstock.dataflow.plan import Plan
from penstock.errors import PermanentError
from penstock.schedule.record import OperatorSchedule
from penstock.store.kept_questions import Opening
from penstock_operator.asking.asked_shards import AskedShards, AskedTopology
from penstock_operator.asking.line import LineBroken
from penstock_operator.cluster.asked.pod_line import PodLine
from penstock_operator.cluster.asked.reached import (
    Reached,
    is_ready,
    reached,
    runs,
    topology_named,
    workers_of,
)
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_ASKED, LABEL_TOPOLOGY
from penstock_operator.cluster.kubernetes_api.names import label_value as as_label
from penstock_operator.cluster.kubernetes_api.pod_access import PodGone
from penstock_operator.cluster.kubernetes_api.port import (
    SCHEDULES,
    TOPOLOGIES,
    ClusterApi,
    Object,
    Refusal,
    Why,
    name_of,
)
from penstock_operator.cluster.observing.observe import WORKER_CONTAINER, observe_topology

_AT_WORK = ("Running", "Starting", "Draining")
_PODS_TRIED = 3
WORKER_COMES_S = 180.0
"""So long a Topology that is finished has for getting a worker."""
_LOOK_S = 1.0
_WRITES_TRIED = 10


@dataclass(frozen=True, slots=True)
class SeenTopology:
    """A Topology, and its Schedules, at a moment."""

    manifest: Object
    plan: Plan
    phase: str
    state_uid: str
    schedules: tuple[OperatorSchedule, ...]

    @property
    def opening(self) -> Opening:
        """Where its shards are. A worker reaches each store by its address, with the login that it has."""
        stores = {store.id: store.address for one in self.schedules for store in one.stores}
        homes = {shard: place.home for one in self.schedules for shard, place in one.shards.items()}
        return Opening(self.state_uid, stores, homes)


@contextmanager
def asked_cluster(
    name: str, namespace: str, kubeconfig: str | None, context: str | None, tell: Callable[[str], None]
) -> Iterator[AskedTopology]:
    """The Topology of this name. `tell` is told what has to be waited for. Raises the cluster's errors,
    LineBroken, and PermanentError where nothing can be asked."""
    with reached(namespace, kubeconfig, context) as there:
        seen = there.loop.wait(seen_topology(there.cluster, name))
        with _worker(there, seen, tell) as line:
            yield AskedTopology(
                AskedShards(line, seen.opening),
                seen.plan,
                seen.phase in _AT_WORK,
                "by workers that it gets for that"
                if seen.phase == "Finished"
                else f"by its tasks (it is {seen.phase} now)",
            )


async def seen_topology(cluster: ClusterApi, name: str) -> SeenTopology:
    """PermanentError: there is none, it is faulty, or it has not begun."""
    manifest = await topology_named(cluster, name)
    found = observe_topology(manifest)
    if found.plan is None:
        raise PermanentError(f"Topology {name} cannot be read: {'; '.join(found.faults)}")
    status = manifest.get("status") or {}
    state_uid = str(status.get("stateUid") or found.uid)
    listing = await cluster.list(SCHEDULES, {LABEL_TOPOLOGY: as_label(name)})
    own = [one for one in listing.items if owner_of(one).topology_uid == state_uid]
    if not own:
        raise PermanentError(f"Topology {name} has not begun: no Schedule says where its shards are")
    phase = str(status.get("phase") or "Pending")
    return SeenTopology(manifest, found.plan, phase, state_uid, tuple(map(from_object, own)))


@contextmanager
def _worker(there: Reached, seen: SeenTopology, tell: Callable[[str], None]) -> Iterator[PodLine]:
    """A process in one of its workers."""
    name = name_of(seen.manifest)
    pods = [pod for pod in there.loop.wait(workers_of(there.cluster, name)) if runs(pod)]
    if not pods and seen.phase == "Finished":
        with _called_for(there, name, tell) as pod, closing(_line(there, [pod])) as line:
            yield line
        return
    if not pods:
        raise PermanentError(
            f"no worker of Topology {name} runs now (it is {seen.phase}), and one of them has to answer:"
            f" see kubectl describe topology {name} --namespace {there.cluster.namespace}"
        )
    with closing(_line(there, sorted(pods, key=is_ready, reverse=True))) as line:
        yield line


def _line(there: Reached, pods: list[Object]) -> PodLine:
    """In the first of them that takes it."""
    gone: PodGone | None = None
    for pod in pods[:_PODS_TRIED]:
        try:
            return PodLine(there.loop, there.pods, name_of(pod), WORKER_CONTAINER)
        except PodGone as error:
            gone = error
    raise LineBroken(str(gone))


@contextmanager
def _called_for(there: Reached, name: str, tell: Callable[[str], None]) -> Iterator[Object]:
    """A worker that a finished Topology gets while somebody asks."""
    token = secrets.token_hex(4)
    tell(f"Topology {name} is finished and has no worker: waiting for the one that it gets for this")
    there.loop.wait(write_asked(there.cluster, name, token))
    try:
        yield there.loop.wait(_worker_that_came(there.cluster, name))
    finally:
        there.loop.wait(write_asked(there.cluster, name, None, only=token))


async def _worker_that_came(cluster: ClusterApi, name: str) -> Object:
    try:
        async with asyncio.timeout(WORKER_COMES_S):
            while True:
                # It has no part in any Schedule, so it is not ready, and will not be.
                running = [pod for pod in await workers_of(cluster, name) if runs(pod)]
                if running:
                    return running[0]
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise PermanentError(
            f"Topology {name} has not got a worker within {WORKER_COMES_S:g} s:"
            f" see kubectl describe topology {name} --namespace {cluster.namespace}"
        ) from None


async def write_asked(cluster: ClusterApi, name: str, token: str | None, *, only: str = "") -> None:
    """Put the annotation on a Topology, or take it off where it is still `only`; nothing else is changed.
    PermanentError: others write it each time."""
    for _ in range(_WRITES_TRIED):
        found = await cluster.get(TOPOLOGIES, name)
        if found is None:
            return
        annotations = dict(found["metadata"].get("annotations") or {})
        if only and annotations.get(ANNOTATION_ASKED) != only:
            return
        annotations.pop(ANNOTATION_ASKED, None)
        if token is not None:
            annotations[ANNOTATION_ASKED] = token
        changed = {**found, "metadata": {**found["metadata"], "annotations": annotations}}
        answer = await cluster.replace(TOPOLOGIES, changed)
        if not isinstance(answer, Refusal):
            return
        if answer.why is Why.GONE:
            return
    raise PermanentError(f"Topology {name} is changed again and again by others; try again")
