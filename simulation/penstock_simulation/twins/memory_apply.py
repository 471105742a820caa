"""Server-side apply as the API server does it, for the twin `memory_cluster`: who set which field.

A manager's *fields* are the paths of the leaves that it last applied. What it names no longer is taken away
unless another manager holds it too. Lists whose items have a key are merged by it, all others are one leaf.
"""

from __future__ import annotations

import copy
from typing import Any

LIST_KEYS = {
    "applied": "node",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "executors": "name",
    "initContainers": "name",
    "operators": "name",
    "ownerReferences": "uid",
    "stores": "id",
    "volumes": "name",
    "workers": "name",
}
"""Field -> the field of its items that is their key."""

_NOT_OWNED = {"apiVersion", "kind"}
_NOT_OWNED_METADATA = {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"}

Step = str | tuple[str, str]
"""A field's name, or (key field, its value) of an item."""
Path = tuple[Step, ...]


def fields_of(manifest: dict[str, Any]) -> frozenset[Path]:
    """The paths of all leaves of an applied manifest, without those that say which object it is."""
    found: set[Path] = set()
    for name, value in manifest.items():
        if name in _NOT_OWNED:
            continue
        if name == "metadata":
            for key, part in value.items():
                if key not in _NOT_OWNED_METADATA:
                    _collect(part, (name, key), found)
            continue
        _collect(value, (name,), found)
    return frozenset(found)


def merged(present: dict[str, Any], manifest: dict[str, Any], dropped: frozenset[Path]) -> dict[str, Any]:
    """`present` with `manifest` laid over it and the `dropped` leaves taken out."""
    result = copy.deepcopy(present)
    for path in dropped:
        _remove(result, path)
    _merge(result, manifest)
    return result


def _collect(value: Any, path: Path, found: set[Path]) -> None:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            _collect(part, (*path, name), found)
        return
    key = _key_of(path)
    if isinstance(value, list) and key and value:
        for item in value:
            for name, part in item.items():
                _collect(part, (*path, (key, str(item[key])), name), found)
        return
    found.add(path)


def _key_of(path: Path) -> str | None:
    last = path[-1]
    return LIST_KEYS.get(last) if isinstance(last, str) else None


def _merge(target: dict[str, Any], manifest: dict[str, Any]) -> None:
    for name, value in manifest.items():
        there = target.get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            _merge(there, value)
        elif isinstance(value, list) and isinstance(there, list) and name in LIST_KEYS:
            key = LIST_KEYS[name]
            for item in value:
                same = next((other for other in there if other.get(key) == item[key]), None)
                if same is None:
                    there.append(copy.deepcopy(item))
                else:
                    _merge(same, item)
        else:
            target[name] = copy.deepcopy(value)


def _remove(node: Any, path: Path) -> None:
    """Take out one leaf, and what held nothing else. An item goes with its key: who names any part of it
    names the key too, so nobody else holds it."""
    step, rest = path[0], path[1:]
    if isinstance(step, tuple):
        key, wanted = step
        item = next((other for other in node if str(other.get(key)) == wanted), None)
        if item is None:
            return
        if rest == (key,):
            node.remove(item)
        else:
            _remove(item, rest)
        return
    if not isinstance(node, dict) or step not in node:
        return
    if rest:
        _remove(node[step], rest)
    if not rest or node[step] in ({}, []):
        del node[step]
