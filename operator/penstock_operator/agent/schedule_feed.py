"""The port by which a node agent learns of Schedules and says what it applied; and the agent's cache of them.

Two adapters keep it: `kubernetes_feed` (list and watch of the API server) and `memory_feed` (the twin).
`tests/contract/test_schedule_feed.py` runs one suite on both. Objects come as the API server has them and are
parsed here, once; `ScheduleCache` makes the `Snapshot`s that everything else in the agent reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.api.schedule_object import applied_of, from_object, owner_of
from penstock.errors import RetryError
from penstock.manifest.faults import InvalidManifest
from penstock.schedule.record import AppliedPlace, OperatorSchedule
from penstock.store.keys import kept_schedule

Object = Mapping[str, Any]

RELIST_S = 60.0
"""How often a complete list is made, whatever the watch tells."""
LABEL_TOPOLOGY_UID = "penstock.dev/topology-uid"


class FeedAway(RetryError):
    """The API server gave no answer, or takes nothing now."""


@dataclass(frozen=True, slots=True)
class SeenSchedule:
    """One Schedule object. `uid` is the object's own, `topology_uid` the one that the state goes by."""

    name: str
    """Before it "NAMESPACE/", where that is another one than the agent's."""
    uid: str
    topology_uid: str
    schedule: OperatorSchedule
    durability: str | None
    store_memory_bytes: int | None
    applied: Mapping[str, AppliedPlace]
    """By node."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All Schedules at one moment.

    `listing` counts the complete lists that were had: 0 before the first, when `schedules` are what an
    earlier agent remembered. `topology_uids` are those of all objects, also of such as cannot be read;
    None when an object does not tell its own: then nothing may be concluded from a uid's absence.
    `listed_at` is topology uid -> the newest complete list that had it, of the last two. `living` are the
    uids that states of Topologies go by that were there with the newest complete list; None when these were
    not listed with it: then nobody may be taken for gone.
    """

    schedules: Mapping[str, SeenSchedule]
    topology_uids: frozenset[str] | None
    listing: int
    faults: Mapping[str, str]
    """Object -> why it cannot be read."""
    listed_at: Mapping[str, int] = field(default_factory=dict)
    living: frozenset[str] | None = None
    namespaces: frozenset[str] = frozenset()
    """Those further ones that the newest complete list has."""
    objects: Mapping[str, Object] = field(default_factory=dict, compare=False)
    """As they came, by name; for who keeps them for a later agent."""


NOTHING = Snapshot({}, None, 0, {})


class ScheduleFeed(Protocol):
    """Belongs to one event loop."""

    async def run(self, changed: Callable[[Snapshot], None]) -> None:
        """Keep the cache up to date, and tell of each change, until cancelled.

        An API server that is away, or that refuses, is waited for.
        """

    async def report(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        """Write a node's entry into the status of a Schedule, and nobody else's.

        One that is gone, or is another object of the same name by now, is passed over. Raises FeedAway,
        PermanentError.
        """

    def list_again(self) -> None:
        """Make a complete list soon, whatever the watch says, and one of the Topologies with it."""

    async def close(self) -> None: ...


class ScheduleCache:
    """The newest that was told of each object, by name, and by namespace where that is another one than
    `own`: who is told may see the past. Each change makes a new `Snapshot`; nothing in one ever changes."""

    def __init__(self, own: str = "") -> None:
        self._own = own
        self._namespaces: frozenset[str] = frozenset()
        self._objects: dict[str, Object] = {}
        self._seen: dict[str, SeenSchedule] = {}
        self._faults: dict[str, str] = {}
        self._listing = 0
        self._listed_at: dict[str, int] = {}
        self._living: frozenset[str] | None = None

    def recall(self, objects: Iterable[Object]) -> Snapshot:
        """Begin with what an earlier agent remembered."""
        for item in objects:
            self._take(item)
        return self.snapshot()

    def listed(
        self,
        objects: Iterable[Object],
        topologies: Iterable[Object] | None = None,
        namespaces: Collection[str] = (),
        unlisted: Collection[str] = (),
    ) -> Snapshot:
        """A complete list takes the place of everything. `topologies` are all of them, listed after it was
        begun, or None. `namespaces` are the further ones that it has; objects of those that are `unlisted`,
        since they cannot be read now, stay as they are."""
        self._living = None if topologies is None else frozenset(uid for t in topologies for uid in _uids(t))
        self._namespaces = frozenset(namespaces)
        told = {self._name(item): item for item in objects}
        told |= {name: one for name, one in self._objects.items() if name.rpartition("/")[0] in unlisted}
        for name in self._objects.keys() - told.keys():
            self._forget(name)
        for item in told.values():
            self._take(item)
        before, self._listing = self._listing, self._listing + 1
        listed = filter(None, map(_topology_uid, told.values()))
        missed_once = {uid: at for uid, at in self._listed_at.items() if at == before}
        self._listed_at = missed_once | dict.fromkeys(listed, self._listing)
        return self.snapshot()

    def changed(self, item: Object) -> Snapshot:
        """An object was added or modified."""
        self._take(item)
        return self.snapshot()

    def deleted(self, item: Object) -> Snapshot:
        self._forget(self._name(item))
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        uids = [_topology_uid(item) for item in self._objects.values()]
        known = None if None in uids else frozenset(uid for uid in uids if uid)
        return Snapshot(
            dict(self._seen),
            known,
            self._listing,
            dict(self._faults),
            self._listed_at,
            self._living,
            self._namespaces,
            dict(self._objects),
        )

    def _name(self, item: Object) -> str:
        metadata = item["metadata"]
        return kept_schedule(metadata.get("namespace", ""), metadata["name"], self._own)

    def _forget(self, name: str) -> None:
        for kept in (self._objects, self._seen, self._faults):
            kept.pop(name, None)

    def _take(self, item: Object) -> None:
        name = self._name(item)
        before, seen = self._objects.get(name, {}), self._seen.get(name)
        if seen is not None and _is_past(item, seen):
            return
        self._seen.pop(name, None)
        self._objects[name] = item
        self._faults.pop(name, None)
        try:
            if seen is not None and before.get("spec") == item.get("spec"):
                # another agent's report, mostly: thousands of shards need not be read again
                self._seen[name] = replace(seen, uid=item["metadata"].get("uid", ""), applied=_applied(item))
            else:
                self._seen[name] = seen_schedule(item, name)
        except InvalidManifest as fault:
            self._faults[name] = str(fault)


def seen_schedule(item: Object, name: str = "") -> SeenSchedule:
    """A Schedule object, parsed; `name` is what it goes by, if not by its own. Raises InvalidManifest."""
    owner = owner_of(item)
    return SeenSchedule(
        name=name or item["metadata"]["name"],
        uid=item["metadata"].get("uid", ""),
        topology_uid=owner.topology_uid,
        schedule=from_object(item),
        durability=owner.durability,
        store_memory_bytes=owner.store_memory_bytes,
        applied=_applied(item),
    )


def _is_past(item: Object, seen: SeenSchedule) -> bool:
    """Whether this is what the object once was: its version only grows."""
    version = (item.get("spec") or {}).get("version")
    is_same = item["metadata"].get("uid", "") == seen.uid
    return is_same and isinstance(version, int) and version < seen.schedule.version


def _applied(item: Object) -> dict[str, AppliedPlace]:
    return {place.store: place for place in applied_of(item)}


def _uids(topology: Object) -> Iterator[str]:
    """What a Topology's state may go by: its own uid, or that of an earlier one which it goes on from."""
    yield str(topology["metadata"].get("uid"))
    if state_uid := (topology.get("status") or {}).get("stateUid"):
        yield str(state_uid)


def _topology_uid(item: Object) -> str | None:
    spec = item.get("spec") or {}
    labels = item["metadata"].get("labels") or {}
    return spec.get("topologyUid") or labels.get(LABEL_TOPOLOGY_UID) or None
