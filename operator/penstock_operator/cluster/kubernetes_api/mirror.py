"""The operator's copy of the objects that it decides by: fed by watches, corrected by lists.

A watch may die without a word or miss a deletion, so every kind is listed anew now and then (`relisting`); an
answer to a write of our own goes in at once (`put`), so that the next decision sees it. Which of two is newer
is told by resourceVersion. What no decision looks at is left out, so that a node's heartbeat is no change.
A look at one topology among a thousand costs as much as one among ten: objects are found by whose they are,
and who keeps what follows from them asks what has changed. An object that was put in is never altered.
Neighbours: `watches` (kopf) and `reconcile` feed it, `observe` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from penstock_operator.cluster.kubernetes_api.names import LABEL_TOPOLOGY, label_value
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    LATENCY_SLAS,
    NODES,
    PODS,
    SCHEDULES,
    STATEFUL_SETS,
    TOPOLOGIES,
    Kind,
    Listing,
    Object,
    name_of,
    uid_of,
)

WATCHED = (
    TOPOLOGIES,
    LATENCY_SLAS,
    SCHEDULES,
    PODS,
    NODES,
    STATEFUL_SETS,
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
)
"""In the release's namespace."""
WATCHED_ELSEWHERE = tuple(kind for kind in WATCHED if kind not in (NODES, STATEFUL_SETS))
"""In each further namespace that is served: stores, and nodes, are looked after once."""

Changed = Callable[[Kind, Object], None]
"""Called with the kind and the object (for a deletion: as it was last known)."""

_STEP = 500
"""Objects of a list that are put in at one go."""
_DELETIONS_REMEMBERED_MAX = 10_000
_CHANGES_REMEMBERED_MAX = 20_000
_NODE_CONDITIONS = {"Ready"}
_OWN_FIGURES = {"shardsMoving", "tasksReady"}
"""Of a Schedule's status: the rest of it is the agents'."""


class Mirror:
    """All objects of `kinds` in one namespace; nodes are in none. Belongs to one event loop."""

    def __init__(self, changed: Changed, kinds: Sequence[Kind] = WATCHED) -> None:
        self._changed = changed
        self.kinds = kinds
        self._objects: dict[Kind, dict[str, Object]] = {kind: {} for kind in kinds}
        self._deleted: dict[tuple[Kind, str], int] = {}
        self._listed: set[Kind] = set()
        self._sorted: dict[Kind, tuple[Object, ...]] = {}
        """What `all` answers, until something of the kind changes."""
        self._groups: dict[Kind, dict[str, dict[str, Object]]] = {kind: {} for kind in kinds}
        """Kind -> whose it is (`_owner`) -> by name."""
        self._changes: list[tuple[Kind, str]] = []
        self._changes_from = 0
        self.arrived_s: float | None = None
        """When the event that is being put in reached this process, where a watch has told."""

    def is_complete(self) -> bool:
        """Whether every kind was listed once."""
        return self._listed.issuperset(self.kinds)

    @property
    def revision(self) -> int:
        """One more at each change of anything."""
        return self._changes_from + len(self._changes)

    def changes_since(self, revision: int) -> Sequence[tuple[Kind, str]] | None:
        """(kind, name) of all that has changed since then; None when that is too long ago to be told."""
        if revision < self._changes_from:
            return None
        return self._changes[revision - self._changes_from :]

    def names_touched(self, kind: Kind, revision: int, known: Iterable[str]) -> set[str]:
        """Names of objects of a kind that may be others than at `revision`, -1 for never; `known` are those
        that who asks knew then: where changes are too long ago to be told, these and all that there are."""
        changes = self.changes_since(revision) if revision >= 0 else None
        if changes is None:
            return {*known, *self._objects[kind]}
        return {name for touched, name in changes if touched == kind}

    def all(self, kind: Kind) -> tuple[Object, ...]:
        """In the order of names."""
        found = self._sorted.get(kind)
        if found is None:
            held = self._objects[kind]
            found = self._sorted[kind] = tuple(held[name] for name in sorted(held))
        return found

    def of(self, kind: Kind, topology: str) -> Iterator[Object]:
        """Those of `all` that are a topology's: by their label, Schedules by what they say."""
        held = self._groups[kind].get(topology if kind == SCHEDULES else label_value(topology), {})
        return (held[name] for name in sorted(held))

    def owners(self, kind: Kind) -> set[str]:
        """Whose there are any: as `of` names them."""
        return set(self._groups[kind])

    def count(self, kind: Kind) -> int:
        return len(self._objects[kind])

    def get(self, kind: Kind, name: str) -> Object | None:
        return self._objects[kind].get(name)

    def kept(self, kind: Kind, thing: Object) -> Object:
        """The very object that is held of this state, if one is: who lists anew need not keep all twice."""
        known = self._objects[kind].get(name_of(thing))
        is_same = known is not None and _is_same(known, thing)
        return known if known is not None and is_same else _trimmed(kind, thing)

    def put(self, kind: Kind, thing: Object) -> None:
        """The object as an event or the answer to a write has it. An older one than is known is dropped."""
        name, version = name_of(thing), _version(thing)
        known = self._objects[kind].get(name)
        if version < self._deleted.get((kind, name), -1):
            return
        if known is not None and version < _version(known):
            return
        if known is not None and _is_same(known, thing):
            return  # the same one once more: by a list, or by the watch after our own write's answer
        kept = _trimmed(kind, thing)
        self._take_out(kind, known)
        self._objects[kind][name] = kept
        self._groups[kind].setdefault(_owner(kind, kept), {})[name] = kept
        self._note(kind, name)
        if known is None or _essence(kind, known) != _essence(kind, kept):
            self._changed(kind, kept)

    def remove(self, kind: Kind, thing: Object) -> None:
        """The object is gone; `thing` is its last state."""
        name, version = name_of(thing), _version(thing)
        known = self._objects[kind].get(name)
        if known is not None and uid_of(known) != uid_of(thing) and version < _version(known):
            return  # one of the same name came since
        self._forget(kind, name, version)

    def relisting(self, kind: Kind, listing: Listing) -> Iterator[None]:
        """A complete list: what it lacks and is not newer than it is gone. It is put in by short steps; what
        others do in between counts."""
        at = int(listing.resource_version)
        for number, thing in enumerate(listing.items, 1):
            self.put(kind, thing)
            if number % _STEP == 0:
                yield
        there = {name_of(thing) for thing in listing.items}
        for name, known in list(self._objects[kind].items()):
            if name not in there and _version(known) <= at:
                self._forget(kind, name, at)
        self._listed.add(kind)

    def _forget(self, kind: Kind, name: str, version: int) -> None:
        if len(self._deleted) >= _DELETIONS_REMEMBERED_MAX:
            del self._deleted[next(iter(self._deleted))]
        self._deleted[kind, name] = version
        known = self._objects[kind].pop(name, None)
        self._take_out(kind, known)
        self._note(kind, name)
        if known is not None:
            self._changed(kind, known)

    def _take_out(self, kind: Kind, known: Object | None) -> None:
        if known is None:
            return
        owner, groups = _owner(kind, known), self._groups[kind]
        del groups[owner][name_of(known)]
        if not groups[owner]:
            del groups[owner]

    def _note(self, kind: Kind, name: str) -> None:
        self._sorted.pop(kind, None)
        if len(self._changes) >= _CHANGES_REMEMBERED_MAX:
            dropped = len(self._changes) // 2
            del self._changes[:dropped]
            self._changes_from += dropped
        self._changes.append((kind, name))


def _owner(kind: Kind, thing: Object) -> str:
    """Which topology an object is of; "" for none."""
    if kind == SCHEDULES:
        return str((thing.get("spec") or {}).get("topology", ""))
    return str((thing["metadata"].get("labels") or {}).get(LABEL_TOPOLOGY, ""))


def _version(thing: Object) -> int:
    return int(thing["metadata"]["resourceVersion"])


def _is_same(one: Object, other: Object) -> bool:
    versions = (one["metadata"]["resourceVersion"], other["metadata"]["resourceVersion"])
    return bool(versions[0] == versions[1] and uid_of(one) == uid_of(other))


def _trimmed(kind: Kind, thing: Object) -> Object:
    """Without what no decision looks at."""
    metadata = {key: value for key, value in thing["metadata"].items() if key != "managedFields"}
    if kind == CONFIG_MAPS:
        return {"metadata": metadata}
    if kind == NODES:
        return {"metadata": metadata, "spec": thing.get("spec", {}), "status": _node_status(thing)}
    return {**thing, "metadata": metadata}


def _node_status(node: Object) -> Object:
    status = node.get("status", {})
    conditions = [
        {"type": one["type"], "status": one["status"]}
        for one in status.get("conditions") or ()
        if one["type"] in _NODE_CONDITIONS
    ]
    return {"allocatable": status.get("allocatable", {}), "conditions": conditions}


def _essence(kind: Kind, thing: Object) -> dict[str, Any]:
    """What makes two states of an object differ for a decision. What we write into a status ourselves does
    not."""
    metadata = {key: value for key, value in thing["metadata"].items() if key != "resourceVersion"}
    left_out = {"metadata", "status"} if kind in (TOPOLOGIES, LATENCY_SLAS) else {"metadata"}
    if kind == CONFIG_MAPS:
        return thing  # its data is not kept: the version tells
    if kind == SCHEDULES:
        status = thing.get("status") or {}
        thing = {**thing, "status": {name: part for name, part in status.items() if name not in _OWN_FIGURES}}
    return {"metadata": metadata, **{key: part for key, part in thing.items() if key not in left_out}}
