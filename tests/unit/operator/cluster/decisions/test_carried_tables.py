"""Schedules carry the routing tables that are to be, on a cluster of tests."""

from __future__ import annotations

from dataclasses import replace

from penstock.dataflow.routing_table import digest_of
from penstock.schedule.record import TablePlace
from penstock_operator.cluster.observing.observed import LocalityView, Observed
from worlds.started_world import started

TABLE = TablePlace(3, digest_of(b"content"), b"content")
VIEW = LocalityView(
    {"count": TABLE}, ("lines", "count"), {"tables": [{"operator": "count", "version": 3, "keys": 1}]}
)


def carrying(observed: Observed) -> Observed:
    return replace(observed, locality=VIEW)


def test_a_schedule_carries_its_table_from_then_on() -> None:
    world = started()
    before = world.schedules["words.count"].schedule
    world.step(look=carrying)
    after = world.schedules["words.count"].schedule
    assert after == replace(before, version=before.version + 1, table=TABLE, shards=after.shards)
    assert world.status["locality"]["tables"][0]["version"] == 3
    for _ in range(5):
        world.step(look=carrying)
    assert world.schedules["words.count"].schedule.version == after.version
    world.run(20)
    assert world.schedules["words.count"].schedule.table == TABLE
    assert "locality" not in world.status


def test_a_table_stays_where_shards_and_tasks_come_and_go() -> None:
    world = started()
    world.step(look=carrying)
    world.edit(spec__workers__min=3, spec__operators__2__tasks={"min": 4, "max": 8})
    world.run(20)
    assert sum(world.tasks("count").values()) == 4
    assert world.schedules["words.count"].schedule.table == TABLE


def test_a_new_table_waits_while_a_shard_is_born_that_puts_out_rows_by_it() -> None:
    world = started()
    world.partitions = (*world.partitions, "lines/texts/c.txt")
    for _ in range(20):
        known = set(world.schedules["words.lines"].schedule.shards)
        world.step(look=carrying)
        born = set(world.schedules["words.lines"].schedule.shards) - known
        if born:
            break
        # It may have come before: then it does not name the new shard, and that is another turn's matter.
        world.schedules["words.count"] = replace(
            world.schedules["words.count"],
            schedule=replace(world.schedules["words.count"].schedule, table=None),
        )
    assert born == {"lines/texts/c.txt"}
    assert world.schedules["words.count"].schedule.table is None
    world.step(look=carrying)
    assert world.schedules["words.count"].schedule.table == TABLE
