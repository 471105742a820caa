"""What the chart's pre-delete hook does: take away all that the operator made, where it served.

`helm uninstall` knows the chart's own objects only. Topologies, and what the operator made for them, would
stay with nobody to look after them. Nothing here has finalizers, so to delete is enough; but the operator
must be gone first, or it makes node stores anew. What is still ending when the time is over ends by itself.
Neighbours: `kubernetes_api.port` is the way to Kubernetes, `names` has the labels; the chart's hook runs
`penstock uninstall`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import PermanentError
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_SPARK_WORKER,
    COMPONENT_STORE,
    COMPONENT_WORKER,
    LABEL_COMPONENT,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    MANAGER,
    auth_secret_name,
    workers_secret_name,
)
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    LEASES,
    PODS,
    SCHEDULES,
    SECRETS,
    STATEFUL_SETS,
    TOPOLOGIES,
    VOLUME_CLAIMS,
    ClusterApi,
    ClusterUnreachable,
    Kind,
    KindUnknown,
    Object,
    name_of,
    uid_of,
)

LATENCY_SLAS = Kind("penstock.dev/v1alpha1", "LatencySLA", "latencyslas")
DEPLOYMENTS = Kind("apps/v1", "Deployment", "deployments")

_POD_GRACE_S = 5
"""What workers would still retire is deleted with them."""
_POLL_S = 0.5


class OthersWouldGo(PermanentError):
    """The CRDs are about to go, and with them Topologies of other namespaces."""


Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Made:
    """A kind of object that goes, and labels that tell ours from others. `grace_s` None: the pod's own."""

    kind: Kind
    labels: Mapping[str, str]
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """What stays: the stores' volumes and retained Schedules; all that users wrote and where its state is."""

    volumes: bool
    topologies: bool


@dataclass(frozen=True, slots=True)
class Uninstalled:
    """`deleted` and `ending` are "KIND NAME", with " in NAMESPACE" for another one than the release's, each
    once: what was deleted, and what of it is still there."""

    deleted: tuple[str, ...]
    ending: tuple[str, ...]


async def check_others(
    cluster: ClusterApi, *, keep_topologies: bool = False, served: Collection[str] = ()
) -> None:
    """Raises OthersWouldGo when namespaces that are not `served` have Topologies, which would go with the
    CRDs, or a served one has, and they are to stay. The release's own is served anyway."""
    try:
        listing = await cluster.list(TOPOLOGIES, everywhere=True)
    except KindUnknown:
        return
    there = {str(thing["metadata"]["namespace"]) for thing in listing.items}
    ours = {cluster.namespace, *served}
    if keep_topologies and ours & there:
        raise OthersWouldGo(
            "this release's CRDs would take the Topologies of this release along, which are to stay: "
            "upgrade it with crds.keep=true, or with uninstall.deleteTopologies=true to destroy them"
        )
    others = sorted(there - ours)
    if others:
        raise OthersWouldGo(
            f"there are Topologies in other namespaces ({', '.join(others)}), and this release's CRDs would "
            "take them along: upgrade it with crds.keep=true first, or delete them"
        )


async def run_uninstall(
    cluster: ClusterApi,
    fullname: str,
    *,
    keep_volumes: bool,
    keep_topologies: bool = False,
    served: Sequence[str] = (),
    timeout_s: float,
    clock_s: Callable[[], float],
    sleep: Sleep,
) -> Uninstalled:
    """Delete what the operator of release `fullname` made, and wait at most `timeout_s` until it is gone: in
    its own namespace, and in `served` ones what is made for Topologies.

    With `keep_volumes` the stores' volumes stay, and so do Schedules without an owner: those of retained
    topologies. With `keep_topologies` all that runs ends, and what a later release goes on from stays:
    Topologies, LatencySLAs, Schedules and volumes. Raises ClusterUnreachable when the time is over and the
    API server never answered, NotAllowed.
    """
    deadline_s = clock_s() + timeout_s
    kept = _Kept(keep_volumes or keep_topologies, keep_topologies)
    deleted: dict[str, None] = {}
    ending: list[str] = []
    answered = False
    while True:
        try:
            ending = await _delete_named(cluster, DEPLOYMENTS, f"{fullname}-operator", deleted)
            ending += [_title(PODS, pod) for pod in (await cluster.list(PODS, _component("operator"))).items]
            if not ending and kept.volumes:
                ending = await _let_go_of_claims(cluster)
            if not ending:
                for namespace in served:
                    within, gone = cluster.within(namespace), dict[str, None]()
                    left = await _sweep(within, _made_for_topologies(kept), kept, gone)
                    left += await _delete_named(within, SECRETS, workers_secret_name(fullname), gone)
                    ending += [f"{title} in {namespace}" for title in left]
                    deleted |= dict.fromkeys(f"{title} in {namespace}" for title in gone)
                ending += await _sweep(cluster, _made(kept), kept, deleted)
                ending += await _delete_named(cluster, LEASES, f"{fullname}-operator", deleted)
                for secret in (auth_secret_name(fullname), workers_secret_name(fullname)):
                    ending += await _delete_named(cluster, SECRETS, secret, deleted)
            answered = True
        except ClusterUnreachable:
            if clock_s() >= deadline_s and not answered:
                raise
        else:
            if not ending:
                break
        if clock_s() >= deadline_s:
            break
        await sleep(_POLL_S)
    return Uninstalled(tuple(deleted), tuple(ending))


def _component(name: str) -> dict[str, str]:
    return {LABEL_NAME: "penstock", LABEL_COMPONENT: name}


_STORE = _component(COMPONENT_STORE)


def _made(kept: _Kept) -> tuple[_Made, ...]:
    """In this order: owners before what they own, so that nobody makes it anew."""
    store_grace_s = None if kept.volumes else _POD_GRACE_S
    claims = () if kept.volumes else (_Made(VOLUME_CLAIMS, _STORE),)
    return (
        *_made_for_topologies(kept),
        _Made(STATEFUL_SETS, _STORE),
        _Made(PODS, _STORE, store_grace_s),
        *claims,
    )


def _made_for_topologies(kept: _Kept) -> tuple[_Made, ...]:
    ours = {LABEL_NAME: "penstock", LABEL_MANAGED_BY: MANAGER}
    written = () if kept.topologies else (TOPOLOGIES, LATENCY_SLAS, SCHEDULES)
    return (
        *(_Made(kind, {}) for kind in written),
        _Made(DISRUPTION_BUDGETS, ours),
        _Made(CONFIG_MAPS, ours),
        _Made(PODS, _component(COMPONENT_SPARK_WORKER), _POD_GRACE_S),
        _Made(PODS, _component(COMPONENT_WORKER), _POD_GRACE_S),
    )


async def _let_go_of_claims(cluster: ClusterApi) -> list[str]:
    """Have claims outlive their StatefulSets, which own them by default; answers those still owned."""
    for thing in (await cluster.list(STATEFUL_SETS, _STORE)).items:
        policy = thing["spec"].get("persistentVolumeClaimRetentionPolicy", {})
        if policy.get("whenDeleted") == "Delete":
            thing["spec"]["persistentVolumeClaimRetentionPolicy"] = {**policy, "whenDeleted": "Retain"}
            await cluster.replace(STATEFUL_SETS, thing)
    claims = (await cluster.list(VOLUME_CLAIMS, _STORE)).items
    return [_title(VOLUME_CLAIMS, claim) for claim in claims if claim["metadata"].get("ownerReferences")]


async def _sweep(
    cluster: ClusterApi, swept: Iterable[_Made], kept: _Kept, deleted: dict[str, None]
) -> list[str]:
    """Delete what is there and not yet ending; answers what was there."""
    found: list[str] = []
    for made in swept:
        try:
            listing = await cluster.list(made.kind, made.labels)
        except KindUnknown:
            continue  # CRDs that are gone took their objects with them
        for thing in listing.items:
            if kept.volumes and made.kind == SCHEDULES and not thing["metadata"].get("ownerReferences"):
                continue
            found.append(_title(made.kind, thing))
            await _delete(cluster, made, thing, deleted)
    return found


async def _delete(cluster: ClusterApi, made: _Made, thing: Object, deleted: dict[str, None]) -> None:
    metadata = thing["metadata"]
    if "deletionTimestamp" in metadata:
        grace_s = metadata.get("deletionGracePeriodSeconds", 0)
        if made.grace_s is None or grace_s <= made.grace_s:
            return
    await cluster.delete(made.kind, name_of(thing), uid_of(thing), made.grace_s)
    deleted[_title(made.kind, thing)] = None


async def _delete_named(cluster: ClusterApi, kind: Kind, name: str, deleted: dict[str, None]) -> list[str]:
    thing = await cluster.get(kind, name)
    if thing is None:
        return []
    await _delete(cluster, _Made(kind, {}), thing, deleted)
    return [_title(kind, thing)]


def _title(kind: Kind, thing: Object) -> str:
    return f"{kind.kind} {name_of(thing)}"
