"""From a schedule to the store's call: the one place where the two vocabularies meet.

`penstock.schedule` is below the store and knows no calls; the agent (locally: the run) publishes what it
decided through here.
"""

from __future__ import annotations

from penstock.dataflow.routing_table import superseded
from penstock.schedule.record import OperatorSchedule
from penstock.store.port import TABLES_KEPT, DropTable, NodeStore, Publish, PutTable, TableVersions


def put_table(store: NodeStore, schedule: OperatorSchedule) -> None:
    """Put the routing table of `schedule` into a store, before it is published and before shards of it are
    made; older ones that nobody goes by are forgotten there. Nothing where there is no table. Repeating it
    changes nothing. Raises what the store does."""
    table, operator = schedule.table, schedule.operator
    if table is None:
        return
    store.call(PutTable(operator, table.version, table.content))
    there = store.call(TableVersions(operator))
    gone = superseded(table.version, table.content, there, TABLES_KEPT)
    if gone:
        store.pipeline([DropTable(operator, version) for version in gone])


def to_publish(schedule: OperatorSchedule) -> Publish:
    """The call that writes `schedule` into a store's maps.

    Everything is in order of names, so that equal schedules make equal calls. Workers without an executor
    go along: the store's map then knows their uid, and they may enrol before they are given any.
    """
    return Publish(
        operator=schedule.operator,
        version=schedule.version,
        term=schedule.term,
        workers=tuple(sorted((w.name, w.node, w.host, w.uid) for w in schedule.workers)),
        executors=tuple(sorted((e.name, e.worker, e.tasks) for e in schedule.executors)),
        shards=tuple(sorted((shard, p.executor, p.home) for shard, p in schedule.shards.items())),
        remote=tuple(sorted((e.name, node, tasks) for e in schedule.executors for node, tasks in e.remote)),
    )
