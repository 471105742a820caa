"""What an agent knows of the Schedules: the newest of each, in whatever order they are told."""

from __future__ import annotations

from typing import Any

from penstock_operator.agent.schedule_feed import ScheduleCache, Snapshot
from worlds.schedule_objects import item

NAME = "words-mid"


def version_in(snapshot: Snapshot) -> int:
    return snapshot.schedules[NAME].schedule.version


def test_an_object_told_as_it_was_before_does_not_take_the_place_of_what_it_is() -> None:
    cache = ScheduleCache()
    cache.listed([item(3)])
    assert version_in(cache.changed(item(2))) == 3
    assert version_in(cache.listed([item(2)])) == 3
    assert version_in(cache.changed(item(4))) == 4
    assert cache.snapshot().objects[NAME]["spec"]["version"] == 4


def test_another_object_of_the_same_name_begins_anew() -> None:
    cache = ScheduleCache()
    cache.listed([item(3)])
    assert version_in(cache.changed(item(1, uid="object-2"))) == 1


def test_what_an_earlier_agent_remembered_gives_way_to_what_is_told() -> None:
    remembered = {key: value for key, value in item(2).items() if key != "status"}
    cache = ScheduleCache()
    cache.recall([remembered])
    assert version_in(cache.listed([item(3)])) == 3
    fault = {**item(4), "spec": {"version": 4}}
    assert NAME in cache.changed(fault).faults
    assert version_in(cache.changed(item(5))) == 5


def in_namespace(namespace: str, version: int = 1) -> dict[str, Any]:
    thing = item(version, uid=f"object-of-{namespace}")
    thing["metadata"]["namespace"] = namespace
    return thing


def test_objects_of_one_name_in_two_namespaces_do_not_meet() -> None:
    cache = ScheduleCache("streams")
    snapshot = cache.listed([in_namespace("streams", 1), in_namespace("team-a", 2)], None, ["team-a"])
    assert {name: seen.schedule.version for name, seen in snapshot.schedules.items()} == {
        NAME: 1,
        f"team-a/{NAME}": 2,
    }
    assert snapshot.namespaces == {"team-a"}
    assert cache.deleted(in_namespace("team-a", 2)).schedules.keys() == {NAME}


def test_what_was_known_of_a_namespace_that_cannot_be_listed_stays() -> None:
    cache = ScheduleCache("streams")
    both = [in_namespace("team-a"), in_namespace("team-b")]
    cache.listed(both, None, ["team-a", "team-b"])
    snapshot = cache.listed([], None, (), ["team-a"])
    assert snapshot.schedules.keys() == {f"team-a/{NAME}"}
    assert snapshot.namespaces == frozenset()
