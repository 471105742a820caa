"""Who needs to log in to the stores as a worker: which topologies there are, and by which user their pods do.

Pure. Neighbours: `turns.passwords_turn` keeps users and passwords for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_SPARK_WORKER,
    COMPONENT_WORKER,
    LABEL_COMPONENT,
)
from penstock_operator.cluster.kubernetes_api.port import PODS, SCHEDULES, TOPOLOGIES, Object, uid_of

_OF_TOPOLOGIES = (COMPONENT_WORKER, COMPONENT_SPARK_WORKER)


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """`uids` are those that states go by, of Topologies that are there and of what is retained;
    `shares_a_user`: there are pods that log in as the user that all shared."""

    uids: frozenset[str]
    shares_a_user: bool


def workers_seen(mirror: Mirror, auth_secret: str) -> WorkersSeen | None:
    """None while not everything has been listed: then nobody may be taken for gone. `auth_secret` is the
    Secret that a pod mounts which has the shared user's password."""
    if not mirror.is_complete():
        return None
    uids = {uid for one in mirror.all(TOPOLOGIES) for uid in _uids(one)}
    uids |= {str(uid) for one in mirror.all(SCHEDULES) if (uid := (one.get("spec") or {}).get("topologyUid"))}
    pods = (one for one in mirror.all(PODS) if _component(one) in _OF_TOPOLOGIES)
    return WorkersSeen(frozenset(uids), any(auth_secret in _secrets(pod) for pod in pods))


def _uids(topology: Object) -> Iterator[str]:
    """What its state may go by: its own uid, or that of an earlier one which it goes on from."""
    yield uid_of(topology)
    if state_uid := (topology.get("status") or {}).get("stateUid"):
        yield str(state_uid)


def _component(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_COMPONENT, ""))


def _secrets(pod: Object) -> set[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return {str((one.get("secret") or {}).get("secretName", "")) for one in volumes}
