"""Carries out what was decided: actions in their order, against the cluster's port.

The first one that is refused ends the turn: what follows may rest on it, and the next turn sees why. Only a
pod that the API server does not let in or resize (quota, admission), and what is done to one node's store,
hold up nothing else: they are remembered. What the API server answers goes into the mirror at once.
Neighbours: `actions` says what there is to do, `reconcile` calls, `topology_status` writes the status.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.schedule.store_ids import in_words
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.decisions.actions import (
    Action,
    ApplyConfigMap,
    ApplyDisruptionBudget,
    ApplyNetworkPolicy,
    ApplyNodeStore,
    CreatePod,
    DeleteConfigMap,
    DeleteNodeStore,
    DeletePod,
    GrowVolume,
    ResizePod,
    WriteSchedule,
)
from penstock_operator.cluster.kubernetes_api.lease import LeaseLost
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    PODS,
    SCHEDULES,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
    ClusterApi,
    Kind,
    NotAllowed,
    Object,
    ObjectInvalid,
    Refusal,
    Why,
    name_of,
    uid_of,
)
from penstock_operator.cluster.kubernetes_api.quantities import whole
from penstock_operator.cluster.manifests.node_store import claim_name
from penstock_operator.cluster.observing.observe import WORKER_CONTAINER
from penstock_operator.cluster.observing.observed import Refused

_LOG = logging.getLogger(__name__)

_OF_A_STORE = (ApplyNodeStore, DeleteNodeStore, GrowVolume)
"""What one store needs is nothing to the others."""
_BY_ITSELF = (CreatePod, ResizePod, *_OF_A_STORE)
"""One that is refused holds up nothing else."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done` actions were carried out. `stopped` says at which one the turn ended and why, "" when all were.
    `refused` are actions that held up no other, by the names of their objects."""

    done: int
    stopped: str = ""
    refused: tuple[Refused, ...] = ()


class Applier:
    """`term` is the leader's: a Schedule of a later one ends this process."""

    def __init__(self, cluster: ClusterApi, mirror: Mirror, term: int, metrics: OperatorMetrics) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._term = term
        self._metrics = metrics

    async def carry_out(self, actions: Sequence[Action]) -> Outcome:
        """Raises LeaseLost, and the cluster's errors."""
        refused: list[Refused] = []
        for done, action in enumerate(actions):
            name = type(action).__name__
            try:
                stop = await self._do(action)
            except (NotAllowed, ObjectInvalid) as error:
                self._metrics.acted(name, "refused")
                if not isinstance(action, _BY_ITSELF):
                    raise
                _LOG.warning("%s %s is refused: %s", name, action.name, error)
                refused.append(Refused(action.name, str(error)))
                continue
            if stop is not None:
                self._metrics.acted(name, str(stop.why))
                if isinstance(action, _OF_A_STORE):
                    _LOG.info("%s %s: %s (%s)", name, action.name, stop.why, stop.message)
                    continue
                stopped = f"{name} {action.name}: {stop.why} ({stop.message})"
                _LOG.info("the turn ends at %s", stopped)
                return Outcome(done, stopped, tuple(refused))
            self._metrics.acted(name, "done")
        return Outcome(len(actions), "", tuple(refused))

    async def _do(self, action: Action) -> Refusal | None:
        match action:
            case ApplyConfigMap(document=document):
                await self._apply(CONFIG_MAPS, dict(document))
            case ApplyDisruptionBudget(document=document):
                await self._apply(DISRUPTION_BUDGETS, dict(document))
            case ApplyNetworkPolicy(document=document):
                # Nobody watches these: what is needed is applied whenever a pod that needs it is made.
                await self._cluster.apply(NETWORK_POLICIES, dict(document))
            case ApplyNodeStore(name=name, store=store, document=document):
                _LOG.info("the store of %s is written as StatefulSet %s", in_words(store), name)
                await self._apply(STATEFUL_SETS, dict(document))
            case CreatePod(name=name, document=document):
                return await self._create_pod(name, dict(document))
            case DeletePod():
                return await self._delete_pod(action)
            case ResizePod():
                return await self._resize(action)
            case WriteSchedule():
                return await self._write_schedule(action)
            case DeleteConfigMap(name=name):
                held = self._mirror.get(CONFIG_MAPS, name)
                return None if held is None else await self._delete(CONFIG_MAPS, name, uid_of(held))
            case GrowVolume(name=name, size=size):
                await self._grow(name, size)
            case DeleteNodeStore(name=name, store=store, uid=uid, reason=reason):
                _LOG.info("the store of %s is removed: %s", in_words(store), reason)
                return await self._delete(STATEFUL_SETS, name, uid) or await self._delete_claim(name)
        return None

    async def _apply(self, kind: Kind, document: Object) -> None:
        self._mirror.put(kind, await self._cluster.apply(kind, document))

    async def _delete_claim(self, stateful_set: str) -> Refusal | None:
        """Nothing is on its volume any more, and another store of this name is to begin with an empty one. It
        goes once the pod has let go of it."""
        claim = await self._cluster.get(VOLUME_CLAIMS, claim_name(stateful_set))
        if claim is None:
            return None
        refusal = await self._cluster.delete(VOLUME_CLAIMS, name_of(claim), uid_of(claim))
        return None if refusal is None or refusal.why is Why.GONE else refusal

    async def _grow(self, claim: str, size: str) -> None:
        """The claim's size is asked for by us from now on, and nothing else of it."""
        there = await self._cluster.get(VOLUME_CLAIMS, claim)
        if there is None or whole(there["spec"]["resources"]["requests"]["storage"]) >= whole(size):
            return
        _LOG.info("the volume of claim %s grows to %s", claim, size)
        wanted = {
            "apiVersion": VOLUME_CLAIMS.api_version,
            "kind": VOLUME_CLAIMS.kind,
            "metadata": {"name": claim},
            "spec": {"resources": {"requests": {"storage": size}}},
        }
        await self._cluster.apply(VOLUME_CLAIMS, wanted)

    async def _create_pod(self, name: str, document: Object) -> Refusal | None:
        made = await self._cluster.create(PODS, document)
        if isinstance(made, Refusal):
            there = await self._cluster.get(PODS, name)
            if there is not None:
                self._mirror.put(PODS, there)
            return None if made.why is Why.EXISTS else made
        _LOG.info("pod %s is created", name)
        self._mirror.put(PODS, made)
        return None

    async def _delete_pod(self, action: DeletePod) -> Refusal | None:
        _LOG.info("pod %s is deleted: %s", action.name, action.reason)
        return await self._delete(PODS, action.name, action.uid, action.grace_s)

    async def _delete(self, kind: Kind, name: str, uid: str, grace_s: int | None = None) -> Refusal | None:
        """What is gone already is what was wished."""
        refusal = await self._cluster.delete(kind, name, uid, grace_s)
        held = self._mirror.get(kind, name)
        if held is not None and uid_of(held) == uid and (refusal is None or refusal.why is Why.GONE):
            now = await self._cluster.get(kind, name)
            if now is None:
                self._mirror.remove(kind, held)
            else:
                self._mirror.put(kind, now)
        return None if refusal is None or refusal.why is Why.GONE else refusal

    async def _resize(self, action: ResizePod) -> Refusal | None:
        _LOG.info(
            "pod %s is resized to %dm cores, at most %dm",
            action.name,
            action.cpu_request_millis,
            action.cpu_limit_millis,
        )
        resized = await self._cluster.resize_pod(
            action.name,
            action.uid,
            WORKER_CONTAINER,
            {"cpu": f"{action.cpu_request_millis}m"},
            {"cpu": f"{action.cpu_limit_millis}m"},
        )
        if isinstance(resized, Refusal):
            return resized
        self._mirror.put(PODS, resized)
        return None

    async def _write_schedule(self, action: WriteSchedule) -> Refusal | None:
        document = dict(action.document)
        try:
            if action.resource_version is None:
                written = await self._cluster.create(SCHEDULES, document)
            else:
                metadata = {**document["metadata"], "resourceVersion": action.resource_version}
                written = await self._cluster.replace(SCHEDULES, {**document, "metadata": metadata})
        except ObjectInvalid as error:
            await self._check_term(action.name, error)
            raise
        if isinstance(written, Refusal):
            await self._look_again(action.name)
            return written
        version = action.schedule.version
        _LOG.info("schedule %s is version %d, %d tasks", action.name, version, action.schedule.tasks)
        self._mirror.put(SCHEDULES, written)
        return None

    async def _look_again(self, name: str) -> None:
        """Agents write into the status of Schedules all the time: the next turn must know their version."""
        now = await self._cluster.get(SCHEDULES, name)
        if now is not None:
            await self._check_term(name, None, now)
            self._mirror.put(SCHEDULES, now)

    async def _check_term(self, name: str, error: Exception | None, now: Object | None = None) -> None:
        now = now or await self._cluster.get(SCHEDULES, name)
        if now is not None and int(now["spec"]["term"]) > self._term:
            raise LeaseLost(
                f"schedule {name} is of term {now['spec']['term']}, a later one than {self._term}"
            ) from error
