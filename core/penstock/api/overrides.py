"""`--set lines.source.files.glob=x`: single values of a Topology changed before it is checked.

The first part of the path is an operator's name, or else a field of `spec`. What a path puts where nothing
belongs is found by the check afterwards, at its place in the document.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from penstock.api.topology import TopologySpec
from penstock.api.yaml_text import read_value
from penstock.manifest.faults import Fault, InvalidManifest, listed, nearest, shown
from penstock.manifest.structural import structural_schema


def apply_overrides(document: dict[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[Fault]]:
    """A changed copy of a Topology's plain `document`, and the faults of overrides that do not apply.

    Each override is "path=value", the value in YAML ("workers.min=2", "count.keyBy=[word]").
    """
    changed = copy.deepcopy(document)
    faults: list[Fault] = []
    for override in overrides:
        path, equals, text = override.partition("=")
        where = f"--set {path}"
        parts = path.split(".")
        if not equals or not all(parts):
            faults.append(Fault(f"--set {override}", "give PATH=VALUE, such as workers.min=2"))
            continue
        try:
            value = read_value(text)
        except InvalidManifest as error:
            faults += [Fault(where, f"the value {shown(text)} is {fault.message}") for fault in error.faults]
            continue
        message = _put(changed, parts, value)
        if message:
            faults.append(Fault(where, message))
    return changed, faults


def _put(document: dict[str, Any], parts: Sequence[str], value: object) -> str | None:
    """Set the value at `parts`; answers what stands in the way, if anything does."""
    spec = document.setdefault("spec", {})
    if not isinstance(spec, dict):
        return "spec is not an object"
    node, rest = _start(spec, parts)
    if node is None:
        known = [*_operators(spec), *structural_schema(TopologySpec)["properties"]]
        return f"no operator or field {parts[0]!r}{nearest(parts[0], known)}; there are {listed(known)}"
    if not rest:
        return f"{parts[0]!r} is an operator; name a field of it, such as {parts[0]}.tasks.max"
    for part in rest[:-1]:
        child = node.get(part)
        if child is None:
            child = node[part] = {}
        if not isinstance(child, dict):
            return f"{part!r} is {shown(child)} and has no fields"
        node = child
    node[rest[-1]] = value
    return None


def _start(spec: dict[str, Any], parts: Sequence[str]) -> tuple[dict[str, Any] | None, Sequence[str]]:
    operators = _operators(spec)
    if parts[0] in operators:
        return operators[parts[0]], parts[1:]
    if parts[0] in structural_schema(TopologySpec)["properties"]:
        return spec, parts
    return None, parts


def _operators(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    listing = spec.get("operators")
    found = [item for item in listing if isinstance(item, dict)] if isinstance(listing, list) else []
    return {item["name"]: item for item in found if isinstance(item.get("name"), str)}
