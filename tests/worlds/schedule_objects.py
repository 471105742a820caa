"""Schedule values and objects for tests of the node agent."""

from __future__ import annotations

from typing import Any

from penstock.api.schedule_object import to_spec
from penstock.schedule.record import (
    ExecutorPlace,
    OperatorSchedule,
    ShardPlace,
    StorePlace,
    TablePlace,
    WorkerPlace,
)

UID = "state-1"


def schedule(
    version: int = 1,
    *,
    homes: dict[str, str] | None = None,
    fresh_since: int = 0,
    operator: str = "mid",
    table: TablePlace | None = None,
) -> OperatorSchedule:
    """Shards by part on stores a and b; `homes` is part -> store."""
    homes = {"0": "a", "1": "b"} if homes is None else homes
    return OperatorSchedule(
        operator=operator,
        version=version,
        term=1,
        workers=tuple(WorkerPlace(f"w-{node}", node, "host", f"uid-{node}") for node in "ab"),
        executors=tuple(ExecutorPlace(f"{operator}-{node}", f"w-{node}", 1) for node in "ab"),
        shards={
            f"{operator}/{part}": ShardPlace(f"{operator}-{home}", home, fresh_since)
            for part, home in homes.items()
        },
        stores=tuple(StorePlace(node, node, f"store-{node}:6379") for node in "ab"),
        table=table,
    )


def spec(version: int = 1, **fields: Any) -> dict[str, Any]:
    """What stands in a Schedule object."""
    return to_spec(schedule(version, **fields), "words", UID)


def item(
    version: int = 1,
    *,
    name: str = "words-mid",
    uid: str = "object-1",
    applied: tuple[dict[str, Any], ...] = (),
    **fields: Any,
) -> dict[str, Any]:
    """A whole object as the API server has it."""
    metadata = {"name": name, "uid": uid, "labels": {"penstock.dev/topology-uid": UID}}
    return {"metadata": metadata, "spec": spec(version, **fields), "status": {"applied": list(applied)}}
