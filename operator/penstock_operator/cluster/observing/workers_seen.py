"""Who needs to log in to the stores as a worker: which topologies there are, and by which user their pods do.

Pure. Neighbours: `turns.passwords_turn` keeps users and passwords for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_SPARK_WORKER,
    COMPONENT_WORKER,
    LABEL_COMPONENT,
)
from penstock_operator.cluster.kubernetes_api.port import PODS, SCHEDULES, TOPOLOGIES, Object, uid_of

_OF_TOPOLOGIES = (COMPONENT_WORKER, COMPONENT_SPARK_WORKER)
_TOLD, _SCHEDULED, _OWN = range(3)


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """`uids` are those that states go by, of Topologies that are there and of what is retained: `own` are
    Topologies', which nobody can choose, `scheduled` are named by Schedules, which the operator writes; what
    is neither stands in a Topology's status alone. `shares_a_user`: there are pods that log in as the user
    that all shared."""

    uids: frozenset[str]
    shares_a_user: bool
    own: frozenset[str] = frozenset()
    scheduled: frozenset[str] = frozenset()


def workers_seen(mirror: Mirror, auth_secret: str) -> WorkersSeen | None:
    """None while not everything has been listed: then nobody may be taken for gone. `auth_secret` is the
    Secret that a pod mounts which has the shared user's password."""
    if not mirror.is_complete():
        return None
    topologies = mirror.all(TOPOLOGIES)
    named = ((one.get("spec") or {}).get("topologyUid") for one in mirror.all(SCHEDULES))
    own, scheduled = {uid_of(one) for one in topologies}, {str(uid) for uid in named if uid}
    told = {str(uid) for one in topologies if (uid := (one.get("status") or {}).get("stateUid"))}
    pods = (one for one in mirror.all(PODS) if _component(one) in _OF_TOPOLOGIES)
    shares_a_user = any(auth_secret in _secrets(pod) for pod in pods)
    uids = own | scheduled | told
    return WorkersSeen(frozenset(uids), shares_a_user, frozenset(own), frozenset(scheduled))


def is_anothers(uid: str, namespace: str, seen: Mapping[str, WorkersSeen | None]) -> bool:
    """Whether the state that goes by `uid` may be another namespace's than that which says so: who may write
    a Topology's status could write there whatever uid he has read. `seen` is by namespace."""
    here = _word_for(uid, seen[namespace])
    if here == _OWN:
        return False
    others = [one for name, one in seen.items() if name != namespace]
    return any(_word_for(uid, one) >= here for one in others if one is not None and uid in one.uids) or (
        here == _TOLD and None in others
    )


def _word_for(uid: str, seen: WorkersSeen | None) -> int:
    """How much it counts that somebody has this state."""
    if seen is None:
        return _TOLD
    return _OWN if uid in seen.own else _SCHEDULED if uid in seen.scheduled else _TOLD


def _component(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_COMPONENT, ""))


def _secrets(pod: Object) -> set[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return {str((one.get("secret") or {}).get("secretName", "")) for one in volumes}
