"""`OperatorSchedule` <-> the Schedule object in Kubernetes: the one place where the two forms meet.

`to_spec` and `from_object` are inverse: what the operator writes is what agents, and the operator after a
restart, read. Who reads passes over fields that it does not know: an operator of the next version may have
written them. Neighbours: `penstock.schedule.record` is the value, `schedule` the object's model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from penstock.api.schedule import (
    Assignment,
    Schedule,
    ScheduledExecutor,
    ScheduledStore,
    ScheduledTable,
    ScheduledWorker,
    ScheduleSpec,
    ScheduleStatus,
    pack_parts,
)
from penstock.dataflow.partitions import part_of, shard_name
from penstock.dataflow.routing_table import content_of, content_text
from penstock.manifest.faults import Fault, InvalidManifest, schema_faults
from penstock.schedule.record import (
    AppliedPlace,
    ExecutorPlace,
    OperatorSchedule,
    ShardPlace,
    StorePlace,
    TablePlace,
    WorkerPlace,
)

M = TypeVar("M", ScheduleSpec, ScheduleStatus)


@dataclass(frozen=True, slots=True)
class ScheduleOwner:
    """Whose schedule an object is: the topology's name and the uid that its state goes by, its quota of
    each store's memory (None: no quota), and its durability, Process or Disk (None: not said)."""

    topology: str
    topology_uid: str
    store_memory_bytes: int | None = None
    durability: str | None = None


def to_spec(
    schedule: OperatorSchedule,
    topology: str,
    topology_uid: str,
    store_memory_bytes: int | None = None,
    durability: str | None = None,
) -> dict[str, Any]:
    """`spec` of the Schedule object. Equal schedules make equal specs, in whatever order their shards are.

    Raises InvalidManifest when `schedule` cannot be written, such as for a name that is too long.
    """
    node_of = {worker.name: worker.node for worker in schedule.workers}
    fields = {
        "topology": topology,
        "topologyUid": topology_uid,
        "operator": schedule.operator,
        "version": schedule.version,
        "term": schedule.term,
        "workers": [
            {
                "name": place.name,
                "node": place.node,
                "host": place.host,
                "uid": place.uid,
                **({"server": place.server} if place.server else {}),
            }
            for place in schedule.workers
        ],
        "executors": [_executor_fields(place, node_of) for place in schedule.executors],
        "shards": list(_assignments(schedule.shards)),
        "stores": [
            {"id": place.id, "node": place.node, "address": place.address} for place in schedule.stores
        ],
    }
    if schedule.is_source:
        fields["source"] = True
    if (table := schedule.table) is not None:
        fields["table"] = {
            "version": table.version,
            "digest": table.digest,
            "content": content_text(table.content),
        }
    if durability is not None:
        fields["durability"] = durability
    if store_memory_bytes is not None:
        fields["storeMemoryBytes"] = store_memory_bytes
    _validated(ScheduleSpec, fields, "spec")
    return fields


def from_object(document: Mapping[str, Any]) -> OperatorSchedule:
    """The schedule in a Schedule object. Raises InvalidManifest when it is none, or contradicts itself."""
    spec = _read(ScheduleSpec, document.get("spec"), "spec")
    try:
        return OperatorSchedule(
            operator=spec.operator,
            version=spec.version,
            term=spec.term,
            workers=tuple(map(_worker, spec.workers)),
            executors=tuple(map(_executor, spec.executors)),
            shards=_shards(spec.operator, spec.shards),
            stores=tuple(map(_store, spec.stores)),
            is_source=spec.source,
            table=_table(spec.table) if spec.table is not None else None,
        )
    except ValueError as error:
        raise InvalidManifest([Fault("spec", str(error))]) from error


def owner_of(document: Mapping[str, Any]) -> ScheduleOwner:
    """Whose schedule a Schedule object is. Raises InvalidManifest as `from_object` does."""
    spec = _read(ScheduleSpec, document.get("spec"), "spec")
    return ScheduleOwner(spec.topology, spec.topology_uid, spec.store_memory_bytes, spec.durability)


def applied_of(document: Mapping[str, Any]) -> tuple[AppliedPlace, ...]:
    """What the agents have written into the status of a Schedule object. Raises InvalidManifest."""
    status = _read(ScheduleStatus, document.get("status") or {}, "status")
    return tuple(
        AppliedPlace(place.node, place.version, place.generation, place.lost_shards, place.shards_moving)
        for place in status.applied
    )


def _assignments(shards: Mapping[str, ShardPlace]) -> Iterable[dict[str, Any]]:
    groups: dict[ShardPlace, list[str]] = {}
    for shard, place in shards.items():
        groups.setdefault(place, []).append(part_of(shard))
    for place in sorted(groups, key=_order):
        ranges, names = pack_parts(groups[place])
        entry: dict[str, Any] = {"executor": place.executor, "home": place.home}
        if place.fresh_since:
            entry["freshSince"] = place.fresh_since
        if place.is_added:
            entry["added"] = True
        if place.life:
            entry["life"] = place.life
        if ranges:
            entry["ranges"] = list(ranges)
        if names:
            entry["names"] = list(names)
        yield entry


def _order(place: ShardPlace) -> tuple[str, str, int, bool, int]:
    return place.executor, place.home, place.fresh_since, place.is_added, place.life


def _shards(operator: str, assignments: Iterable[Assignment]) -> dict[str, ShardPlace]:
    shards: dict[str, ShardPlace] = {}
    for assignment in assignments:
        place = ShardPlace(
            assignment.executor, assignment.home, assignment.fresh_since, assignment.added, assignment.life
        )
        for part in assignment.parts():
            shard = shard_name(operator, part)
            if shard in shards:
                raise ValueError(
                    f"shard {shard} is on executors {shards[shard].executor} and {place.executor}"
                )
            shards[shard] = place
    return shards


def _worker(place: ScheduledWorker) -> WorkerPlace:
    return WorkerPlace(place.name, place.node, place.host, place.uid, place.server)


def _executor_fields(place: ExecutorPlace, node_of: Mapping[str, str]) -> dict[str, Any]:
    fields = {
        "name": place.name,
        "worker": place.worker,
        "node": node_of[place.worker],
        "tasks": place.tasks,
    }
    if place.remote:
        fields["remote"] = [{"node": node, "tasks": tasks} for node, tasks in place.remote]
    return fields


def _executor(place: ScheduledExecutor) -> ExecutorPlace:
    remote = tuple(sorted((of.node, of.tasks) for of in place.remote))
    return ExecutorPlace(place.name, place.worker, place.tasks, remote)


def _table(place: ScheduledTable) -> TablePlace:
    return TablePlace(place.version, place.digest, content_of(place.content))


def _store(place: ScheduledStore) -> StorePlace:
    return StorePlace(place.id, place.node, place.address)


def _read(model: type[M], document: object, path: str) -> M:
    return _validated(model, document, path, extra="ignore")


def _validated(
    model: type[M], document: object, path: str, *, extra: Literal["ignore", "forbid"] = "forbid"
) -> M:
    try:
        return model.model_validate(document, by_alias=True, by_name=False, extra=extra)
    except ValidationError as error:
        faults = schema_faults(error, model, document)
        raise InvalidManifest(
            Fault(f"{Schedule.__name__} {path}" + (f".{fault.path}" if fault.path else ""), fault.message)
            for fault in faults
        ) from error
