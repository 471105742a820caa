"""Who needs to log in to the stores as a worker: which topologies there are, and by which user their pods do.

Neighbours: `mirror` says what has changed, `turns.passwords_turn` keeps users and passwords for them.
"""

from __future__ import annotations

from collections import Counter
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


class WorkerIndex:
    """Kept up to date by what has changed in `mirror`: there may be ten thousand Schedules. `auth_secret` is
    the Secret that a pod mounts which has the shared user's password. Belongs to one event loop."""

    def __init__(self, mirror: Mirror, auth_secret: str) -> None:
        self._mirror = mirror
        self._auth_secret = auth_secret
        self._revision = -1
        self._seen: WorkersSeen | None = None
        self._own: dict[str, str] = {}
        """Topology -> its uid."""
        self._told: dict[str, str] = {}
        """Topology -> the state that its status names, if it does."""
        self._named: dict[str, str] = {}
        """Schedule -> the state that it names."""
        self._scheduled: Counter[str] = Counter()
        """State -> how many Schedules name it."""
        self._sharing: set[str] = set()
        """Pods that log in as the user that all shared."""

    def seen(self) -> WorkersSeen | None:
        """None while not everything has been listed: then nobody may be taken for gone."""
        if not self._mirror.is_complete():
            return None
        if self._seen is None or self._revision != self._mirror.revision:
            self._refresh()
            own, scheduled = frozenset(self._own.values()), frozenset(self._scheduled)
            told = frozenset(self._told.values())
            self._seen = WorkersSeen(own | scheduled | told, bool(self._sharing), own, scheduled)
        return self._seen

    def _refresh(self) -> None:
        for name in self._mirror.names_touched(TOPOLOGIES, self._revision, self._own):
            self._take_topology(name, self._mirror.get(TOPOLOGIES, name))
        for name in self._mirror.names_touched(SCHEDULES, self._revision, self._named):
            self._take_schedule(name, self._mirror.get(SCHEDULES, name))
        for name in self._mirror.names_touched(PODS, self._revision, self._sharing):
            self._take_pod(name, self._mirror.get(PODS, name))
        self._revision = self._mirror.revision

    def _take_topology(self, name: str, topology: Object | None) -> None:
        self._own.pop(name, None)
        self._told.pop(name, None)
        if topology is not None:
            self._own[name] = uid_of(topology)
            if told := (topology.get("status") or {}).get("stateUid"):
                self._told[name] = str(told)

    def _take_schedule(self, name: str, schedule: Object | None) -> None:
        before = self._named.pop(name, "")
        if before:
            self._scheduled[before] -= 1
            if not self._scheduled[before]:
                del self._scheduled[before]
        uid = str(((schedule or {}).get("spec") or {}).get("topologyUid") or "")
        if uid:
            self._named[name] = uid
            self._scheduled[uid] += 1

    def _take_pod(self, name: str, pod: Object | None) -> None:
        self._sharing.discard(name)
        if pod is not None and _component(pod) in _OF_TOPOLOGIES and self._auth_secret in _secrets(pod):
            self._sharing.add(name)


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
