"""The twin of the Kubernetes API in memory, kept equal to `kubernetes_api.client` by the contract suite.

It has what the operator relies on: resourceVersions, uids, generations, conflicts, the status apart from the
rest, server-side apply (`memory_apply`), label selection, garbage collection by owner, pods that stay until
their node lets go of them, and the CRDs' defaults, schemas and rules on changes. What other parts of a
cluster do is done by hand in the tests' worlds: `put`, `set_status`, `finish`. Watches are `subscribe`.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pydantic import ValidationError

from penstock.api.crds import crd
from penstock.api.latency_sla import LatencySLASpec
from penstock.api.schedule import ScheduleSpec
from penstock.api.topology import TopologySpec
from penstock.manifest.document import Document
from penstock_operator.cluster.kubernetes_api.port import (
    FIELD_MANAGER,
    LATENCY_SLAS,
    PODS,
    SCHEDULES,
    STATEFUL_SETS,
    TOPOLOGIES,
    ClusterUnreachable,
    Kind,
    Listing,
    NotAllowed,
    Object,
    ObjectInvalid,
    Refusal,
    Why,
)
from penstock_simulation.twins.memory_apply import Path, fields_of, merged

Watcher = Callable[[Kind, str, Object], None]
"""Called with the kind, "ADDED", "MODIFIED" or "DELETED", and the object."""

_WITH_STATUS = {TOPOLOGIES, LATENCY_SLAS, SCHEDULES, PODS, STATEFUL_SETS}
_MODELS: Mapping[Kind, type[Document]] = {
    TOPOLOGIES: TopologySpec,
    LATENCY_SLAS: LatencySLASpec,
    SCHEDULES: ScheduleSpec,
}
_GRACE_S = 30
_FIXED_SCHEDULE_FIELDS = ("operator", "topology", "topologyUid")
_FIXED_STATEFUL_SET_FIELDS = ("selector", "serviceName", "volumeClaimTemplates")
_GROWING_SCHEDULE_FIELDS = ("term", "version")


@dataclass(frozen=True, slots=True)
class _Key:
    kind: Kind
    namespace: str
    name: str


class _InNamespace:
    """The port's calls, and what other parts of a cluster do, in one namespace."""

    namespace: str

    @property
    def _whole(self) -> MemoryCluster:
        raise NotImplementedError

    def within(self, namespace: str) -> MemoryNamespace:
        """The same cluster, seen from another namespace."""
        return MemoryNamespace(self._whole, namespace)

    def _key(self, kind: Kind, name: str, namespace: str | None = None) -> _Key:
        return _Key(kind, (namespace or self.namespace) if kind.is_namespaced else "", name)

    def _written(self, kind: Kind, manifest: Object) -> _Key:
        """Where a manifest is written to. ObjectInvalid: it says another namespace than is written in."""
        of = manifest["metadata"].get("namespace")
        if kind.is_namespaced and of not in (None, self.namespace):
            raise ObjectInvalid(
                f"the Kubernetes API does not take this {kind.kind}: the namespace of the provided object "
                f"({of}) does not match the namespace sent on the request ({self.namespace})"
            )
        return self._key(kind, manifest["metadata"]["name"])

    def _check(self, verb: str = "", kind: Kind | None = None, name: str = "") -> None:
        if self.namespace in self._whole.closed and (kind is None or kind.is_namespaced):
            raise NotAllowed(f"the Kubernetes API refuses to {verb or 'read'} in namespace {self.namespace}")
        self._whole.note(verb, kind, name)

    # --- the port

    async def list(
        self,
        kind: Kind,
        labels: Mapping[str, str] = {},
        *,
        everywhere: bool = False,
        keep: Callable[[Object], Object] | None = None,
        between: Callable[[float], Awaitable[None]] | None = None,
    ) -> Listing:
        """In one page."""
        self._check()
        items = tuple(
            copy.deepcopy(held)
            for key, held in sorted(
                self._whole.objects.items(), key=lambda item: (item[0].namespace, item[0].name)
            )
            if key.kind == kind
            and (everywhere or key.namespace in {"", self.namespace})
            and labels.items() <= held["metadata"].get("labels", {}).items()
        )
        return Listing(items if keep is None else tuple(map(keep, items)), str(self._whole.last_version))

    async def get(self, kind: Kind, name: str) -> Object | None:
        self._check()
        return copy.deepcopy(self._whole.objects.get(self._key(kind, name)))

    async def create(self, kind: Kind, manifest: Object) -> Object | Refusal:
        self._check("create", kind, manifest["metadata"]["name"])
        key = self._written(kind, manifest)
        if key in self._whole.objects:
            return Refusal(Why.EXISTS, f'{kind.plural} "{key.name}" already exists')
        fresh = copy.deepcopy(manifest)
        if kind in _WITH_STATUS:
            fresh.pop("status", None)
        return self._whole.add(key, fresh)

    async def replace(self, kind: Kind, changed: Object) -> Object | Refusal:
        self._check("replace", kind, changed["metadata"]["name"])
        key = self._written(kind, changed)
        held = self._whole.objects.get(key)
        if held is None:
            return Refusal(Why.GONE, f'{kind.plural} "{key.name}" not found')
        if changed["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"]:
            return Refusal(Why.CHANGED, "the object has been modified; please apply your changes to it")
        return self._whole.change(key, _with_status_of(kind, copy.deepcopy(changed), held))

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        self._check("apply", kind, manifest["metadata"]["name"])
        manifest = {
            name: part for name, part in manifest.items() if name != "status" or kind not in _WITH_STATUS
        }
        key = self._written(kind, manifest)
        held = self._whole.objects.get(key)
        if held is None:
            self._whole.fields[key] = {FIELD_MANAGER: fields_of(manifest)}
            return self._whole.add(key, copy.deepcopy(manifest))
        return self._whole.change(key, self._whole.applied(key, held, manifest, FIELD_MANAGER))

    async def apply_status(self, kind: Kind, manifest: Object) -> Object | Refusal:
        self._check("apply_status", kind, manifest["metadata"]["name"])
        return self.status_by(FIELD_MANAGER, kind, manifest)

    async def delete(self, kind: Kind, name: str, uid: str, grace_s: int | None = None) -> Refusal | None:
        self._check("delete", kind, name)
        key = self._key(kind, name)
        held = self._whole.objects.get(key)
        if held is None:
            return Refusal(Why.GONE, f'{kind.plural} "{name}" not found')
        if held["metadata"]["uid"] != uid:
            return Refusal(Why.CHANGED, f"the uid {uid} is not that of the object")
        self._whole.remove(key, grace_s)
        return None

    async def resize_pod(
        self, name: str, uid: str, container: str, requests: Mapping[str, str], limits: Mapping[str, str]
    ) -> Object | Refusal:
        self._check("resize", PODS, name)
        key = self._key(PODS, name)
        held = self._whole.objects.get(key)
        if held is None:
            return Refusal(Why.GONE, f'pods "{name}" not found')
        if held["metadata"]["uid"] != uid:
            return Refusal(Why.CHANGED, f"the uid {uid} is not that of the object")
        changed = copy.deepcopy(held)
        there = next((one for one in changed["spec"]["containers"] if one["name"] == container), None)
        if there is None:
            raise ObjectInvalid(f"the Kubernetes API does not take this Pod: no container {container}")
        resources = there.setdefault("resources", {})
        resources.setdefault("requests", {}).update(requests)
        resources.setdefault("limits", {}).update(limits)
        return self._whole.change(key, changed)

    async def close(self) -> None:
        pass

    # --- what other parts of a cluster do

    def put(self, kind: Kind, manifest: Object) -> Object:
        """Somebody else writes the whole object, status included; in any namespace."""
        key = self._key(kind, manifest["metadata"]["name"], manifest["metadata"].get("namespace"))
        if key in self._whole.objects:
            return self._whole.change(key, copy.deepcopy(manifest))
        return self._whole.add(key, copy.deepcopy(manifest))

    def held(self, kind: Kind, name: str) -> Object:
        """The object of that name, which is there."""
        return copy.deepcopy(self._whole.objects[self._key(kind, name)])

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Of all objects of the kind in this namespace."""
        here = {"", self.namespace}
        return tuple(key.name for key in self._whole.objects if key.kind == kind and key.namespace in here)

    def set_status(self, kind: Kind, name: str, status: Object) -> Object:
        """Somebody else replaces the status."""
        key = self._key(kind, name)
        return self._whole.change(
            key, {**copy.deepcopy(self._whole.objects[key]), "status": copy.deepcopy(status)}
        )

    def status_by(self, manager: str, kind: Kind, manifest: Object) -> Object | Refusal:
        """Server-side apply of a status by any field manager."""
        key = self._key(kind, manifest["metadata"]["name"])
        held = self._whole.objects.get(key)
        if held is None:
            return Refusal(Why.GONE, f'{kind.plural} "{key.name}" not found')
        uid = manifest["metadata"].get("uid")
        if uid is not None and uid != held["metadata"]["uid"]:
            return Refusal(Why.CHANGED, f"the uid {uid} is not that of the object")
        return self._whole.change(
            key, self._whole.applied(key, held, {"status": manifest["status"]}, f"{manager}/status")
        )

    def finish(self, kind: Kind, name: str) -> None:
        """The node lets go of a pod; or somebody deletes an object by force."""
        self._whole.remove(self._key(kind, name), grace_s=0)


@dataclass(frozen=True)
class MemoryNamespace(_InNamespace):
    """Keeps the port `ClusterApi`, for one more namespace of `cluster`."""

    cluster: MemoryCluster
    namespace: str

    @property
    def _whole(self) -> MemoryCluster:
        return self.cluster


@dataclass
class MemoryCluster(_InNamespace):
    """Keeps the port `ClusterApi`. `clock_s` gives the time of creations, in seconds since 1970."""

    clock_s: Callable[[], float]
    namespace: str = "penstock"
    is_away: bool = False
    """While it is, every call raises ClusterUnreachable."""
    forbidden: set[Kind] = field(default_factory=set)
    """Kinds that this service account must not write: NotAllowed."""
    closed: set[str] = field(default_factory=set)
    """Namespaces in which this service account has no right."""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """Every write: verb, kind, name."""
    objects: dict[_Key, Object] = field(default_factory=dict)
    fields: dict[_Key, dict[str, frozenset[Path]]] = field(default_factory=dict)
    """Object -> field manager -> what it has applied."""
    _watchers: list[Watcher] = field(default_factory=list)
    last_version: int = 100
    _last_uid: int = 0

    @property
    def _whole(self) -> MemoryCluster:
        return self

    def subscribe(self, watcher: Watcher) -> None:
        """Call `watcher` at every change from now on."""
        self._watchers.append(watcher)

    # --- inside, for one namespace

    def note(self, verb: str, kind: Kind | None, name: str) -> None:
        """A call came in."""
        if self.is_away:
            raise ClusterUnreachable("the Kubernetes API does not answer: it is away")
        if kind in self.forbidden:
            raise NotAllowed(f"the Kubernetes API refuses to {verb} {kind.plural}")
        if kind is not None:
            self.calls.append((verb, kind.kind, name))

    def applied(self, key: _Key, held: Object, manifest: Object, manager: str) -> Object:
        fields, held_by = fields_of(manifest), self.fields.setdefault(key, {})
        others = frozenset[Path]().union(*(paths for who, paths in held_by.items() if who != manager))
        dropped = held_by.get(manager, frozenset()) - fields - others
        held_by[manager] = fields
        return merged(held, manifest, dropped)

    def add(self, key: _Key, fresh: Object) -> Object:
        fresh.setdefault("apiVersion", key.kind.api_version)
        fresh.setdefault("kind", key.kind.kind)
        self._last_uid += 1
        metadata = fresh["metadata"]
        metadata.pop("resourceVersion", None)
        if key.namespace:
            metadata["namespace"] = key.namespace
        metadata["uid"] = f"00000000-0000-4000-8000-{self._last_uid:012}"
        metadata["generation"] = 1
        metadata["creationTimestamp"] = _time_text(self.clock_s())
        _fill_defaults(key.kind, fresh)
        _admit(key.kind, None, fresh)
        self._store(key, fresh, "ADDED")
        return copy.deepcopy(fresh)

    def change(self, key: _Key, changed: Object) -> Object:
        held = self.objects[key]
        for name in ("uid", "creationTimestamp", "generation", "deletionTimestamp", "namespace"):
            if name in held["metadata"]:
                changed["metadata"][name] = held["metadata"][name]
        _fill_defaults(key.kind, changed)
        changed["metadata"]["resourceVersion"] = held["metadata"]["resourceVersion"]
        if changed == held:
            return copy.deepcopy(held)
        _admit(key.kind, held, changed)
        if changed.get("spec") != held.get("spec"):
            changed["metadata"]["generation"] += 1
        self._store(key, changed, "MODIFIED")
        return copy.deepcopy(changed)

    def _store(self, key: _Key, thing: Object, change: str) -> None:
        self.last_version += 1
        thing["metadata"]["resourceVersion"] = str(self.last_version)
        self.objects[key] = thing
        self._tell(key.kind, change, thing)

    def _tell(self, kind: Kind, change: str, thing: Object) -> None:
        for watcher in self._watchers:
            watcher(kind, change, copy.deepcopy(thing))

    def remove(self, key: _Key, grace_s: int | None) -> None:
        held = self.objects[key]
        if key.kind == PODS and held["spec"].get("nodeName"):
            wait_s = (
                held["spec"].get("terminationGracePeriodSeconds", _GRACE_S) if grace_s is None else grace_s
            )
            if wait_s > 0:
                if "deletionTimestamp" not in held["metadata"]:
                    leaving = copy.deepcopy(held)
                    leaving["metadata"]["deletionTimestamp"] = _time_text(self.clock_s() + wait_s)
                    leaving["metadata"]["deletionGracePeriodSeconds"] = wait_s
                    self._store(key, leaving, "MODIFIED")
                return
        gone = self.objects.pop(key)
        self.fields.pop(key, None)
        self.last_version += 1
        gone["metadata"]["resourceVersion"] = str(self.last_version)
        self._tell(key.kind, "DELETED", gone)
        self._collect_garbage()

    def _collect_garbage(self) -> None:
        """Delete what has owners, none of which is there any more."""
        uids = {(key.namespace, held["metadata"]["uid"]) for key, held in self.objects.items()}
        orphans = [
            key
            for key, held in self.objects.items()
            if (owners := held["metadata"].get("ownerReferences"))
            # An owner in another namespace is none.
            and not any((of, owner["uid"]) in uids for owner in owners for of in ("", key.namespace))
            and "deletionTimestamp" not in held["metadata"]
        ]
        for key in orphans:
            if key in self.objects:
                self.remove(key, None)


def _time_text(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _with_status_of(kind: Kind, changed: Object, held: Object) -> Object:
    if kind in _WITH_STATUS:
        changed.pop("status", None)
        if "status" in held:
            changed["status"] = copy.deepcopy(held["status"])
    return changed


# --- what the CRDs demand


@cache
def _schema(kind: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _fill_defaults(kind: Kind, thing: Object) -> None:
    if kind in _MODELS:
        _default(_schema(kind.kind), thing)


def _default(schema: Mapping[str, Any], value: Any) -> None:
    if isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name not in value and "default" in part:
                value[name] = copy.deepcopy(part["default"])
            if name in value:
                _default(part, value[name])
    elif isinstance(value, list):
        for item in value:
            _default(schema.get("items", {}), item)


def _admit(kind: Kind, held: Object | None, thing: Object) -> None:
    """Raises ObjectInvalid for what the API server's schema and CEL rules refuse."""
    if kind in _MODELS:
        try:
            _MODELS[kind].model_validate(thing.get("spec"), by_alias=True, by_name=False)
        except ValidationError as error:
            raise ObjectInvalid(f"the Kubernetes API does not take this {kind.kind}: {error}") from error
    if kind == STATEFUL_SETS and held is not None:
        for name in _FIXED_STATEFUL_SET_FIELDS:
            if held["spec"].get(name) != thing["spec"].get(name):
                raise ObjectInvalid(
                    f"the Kubernetes API does not take this StatefulSet: spec: {name} cannot be updated"
                )
    if kind == SCHEDULES and held is not None:
        before, after = held["spec"], thing["spec"]
        for name in _GROWING_SCHEDULE_FIELDS:
            if after[name] < before[name]:
                raise ObjectInvalid(
                    f"the Kubernetes API does not take this Schedule: spec: {name} only grows"
                )
        for name in _FIXED_SCHEDULE_FIELDS:
            if after[name] != before[name]:
                raise ObjectInvalid(f"the Kubernetes API does not take this Schedule: spec: {name} is fixed")
