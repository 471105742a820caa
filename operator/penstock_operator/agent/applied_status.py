"""A node's entry in `status.applied`, as the object has it. Read back by `penstock.api.schedule_object`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from penstock.schedule.record import AppliedPlace

_MANAGER_LENGTH_MAX = 128


def applied_entry(applied: AppliedPlace) -> dict[str, Any]:
    return {
        "node": applied.node,
        "version": applied.version,
        "generation": applied.generation,
        "lostShards": applied.lost_shards,
        "shardsMoving": applied.shards_moving,
    }


def with_applied(status: Mapping[str, Any], applied: AppliedPlace) -> dict[str, Any]:
    """A status with this node's entry in it, and everybody else's as they are."""
    others = [entry for entry in status.get("applied", ()) if entry["node"] != applied.node]
    return {**status, "applied": [*others, applied_entry(applied)]}


def field_manager(node: str) -> str:
    """Who writes a node's entry; one for each node, so that none takes another's away."""
    name = f"penstock-agent-{node}"
    if len(name) <= _MANAGER_LENGTH_MAX:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    return f"{name[: _MANAGER_LENGTH_MAX - 9]}-{digest}"
