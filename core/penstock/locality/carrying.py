"""From tables to the schedules that carry them: the version and the content go where everybody reads them.

Neighbours: `loop` hands tables out, `schedule.record` is what carries them, `store.publishing` puts them into
stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.dataflow.routing_table import RoutingTable, digest_of, encode_table
from penstock.schedule.record import OperatorSchedule, TablePlace


def table_place(table: RoutingTable) -> TablePlace:
    """A table as a schedule carries it."""
    content = encode_table(table)
    return TablePlace(table.version, digest_of(content), content)


def without_tasks(names: Iterable[str], schedules: Mapping[str, OperatorSchedule]) -> str:
    """Why no table may be begun while operators around it have no task that could switch, in words; "" where
    all have some: rows of keys that move would wait for one."""
    asleep = [name for name in names if name in schedules and not schedules[name].tasks]
    return f"no task of {', '.join(asleep)} runs" if asleep else ""


def with_tables(
    tables: Mapping[str, TablePlace], schedules: Mapping[str, OperatorSchedule]
) -> list[OperatorSchedule]:
    """The schedules that lack their operator's newest table, with it: it is a new one, or whoever made them
    anew, or was of an earlier version of Penstock, knew nothing of it."""
    behind = []
    for name, place in tables.items():
        schedule = schedules.get(name)
        if schedule is not None and (schedule.table is None or schedule.table.version < place.version):
            behind.append(replace(schedule, table=place))
    return behind
