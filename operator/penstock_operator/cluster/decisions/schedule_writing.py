"""A topology's Schedule objects as its schedule book, and what the book writes as actions on these objects.

Pure. Neighbours: `penstock.schedule.book` gives versions; `decide` writes what a turn has worked out,
`topology_schedules` what an SLA's loop has, `remote_turn` says which tasks are remote.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.api.schedule_object import to_spec
from penstock.api.topology import Topology
from penstock.dataflow.plan import Plan
from penstock.manifest.document import API_VERSION
from penstock.schedule.book import ScheduleBook
from penstock.schedule.record import OperatorSchedule
from penstock_operator.cluster.decisions.actions import Document, WriteSchedule
from penstock_operator.cluster.decisions.identity import stage_identity
from penstock_operator.cluster.kubernetes_api.names import schedule_name
from penstock_operator.cluster.manifests.schedule_object import schedule_object
from penstock_operator.cluster.observing.observed import ObservedSchedule


def book_of(schedules: Iterable[ObservedSchedule]) -> ScheduleBook:
    """The schedules of one topology as they were seen."""
    seen = {one.schedule.operator: one for one in schedules}
    return ScheduleBook(
        {operator: one.schedule for operator, one in seen.items()},
        {executor: nodes for one in seen.values() for executor, nodes in one.remote.items()},
        {operator: {place.store: place.version for place in one.applied} for operator, one in seen.items()},
        seen_by_stores={operator: one.seen_by_stores for operator, one in seen.items()},
    )


def write_schedule(
    schedule: OperatorSchedule,
    seen: ObservedSchedule | None,
    topology: Topology,
    plan: Plan,
    *,
    topology_uid: str,
    state_uid: str,
    namespace: str,
) -> WriteSchedule:
    """Write what the book has numbered over what was `seen`; None, or one that has no resourceVersion: there
    is no such object."""
    name = schedule_name(topology.metadata.name, schedule.operator)
    identity = stage_identity(plan.stage(schedule.operator))
    document = schedule_object(schedule, topology, topology_uid, state_uid, namespace, identity)
    return _write(name, schedule, document, seen)


def rewrite_schedule(schedule: OperatorSchedule, seen: ObservedSchedule, namespace: str) -> WriteSchedule:
    """Write what the book has numbered over what was `seen`, and leave all else in the object as it is: no
    Topology is asked."""
    metadata = {
        name: seen.metadata[name]
        for name in ("annotations", "labels", "ownerReferences")
        if seen.metadata.get(name)
    }
    spec = to_spec(schedule, seen.topology, seen.topology_uid, seen.store_memory_bytes, seen.durability)
    document = {
        "apiVersion": API_VERSION,
        "kind": "Schedule",
        "metadata": {"name": seen.name, "namespace": namespace, **metadata},
        "spec": spec,
    }
    return _write(seen.name, schedule, document, seen)


def _write(
    name: str, schedule: OperatorSchedule, document: Document, seen: ObservedSchedule | None
) -> WriteSchedule:
    resource_version = seen.resource_version if seen is not None else ""
    return WriteSchedule(name, schedule, document, resource_version or None)
