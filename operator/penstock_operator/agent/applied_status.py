"""A store's entry in `status.applied`, as the object has it: by the store's id, in the field `node`.

Read back by `penstock.api.schedule_object`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from penstock.schedule.record import AppliedPlace

_MANAGER_LENGTH_MAX = 128


def applied_entry(applied: AppliedPlace) -> dict[str, Any]:
    return {
        "node": applied.store,
        "version": applied.version,
        "generation": applied.generation,
        "lostShards": applied.lost_shards,
        "shardsMoving": applied.shards_moving,
    }


def with_applied(status: Mapping[str, Any], applied: AppliedPlace) -> dict[str, Any]:
    """A status with this store's entry in it, and everybody else's as they are."""
    others = [entry for entry in status.get("applied", ()) if entry["node"] != applied.store]
    return {**status, "applied": [*others, applied_entry(applied)]}


def field_manager(store: str) -> str:
    """Who writes a store's entry; one for each, so that none takes another's away."""
    name = f"penstock-agent-{store}"
    if len(name) <= _MANAGER_LENGTH_MAX:
        return name
    digest = hashlib.sha256(store.encode()).hexdigest()[:8]
    return f"{name[: _MANAGER_LENGTH_MAX - 9]}-{digest}"
