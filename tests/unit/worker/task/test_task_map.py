"""What a task reads off its executor's task map."""

from __future__ import annotations

from penstock.store.port import Owner, TaskMap
from penstock_worker.task.task_map import LINGER_US, lingering, told_of
from scenes.store_scenario import incarnation

ME = Owner("count-w0", incarnation("w0"), "me")


def a_map(of: str = ME.incarnation, idle: frozenset[str] = frozenset(), **mapping: str) -> TaskMap:
    return TaskMap(of, mapping, 1, idle)


def test_a_task_is_named_by_its_shards_or_as_an_idle_one() -> None:
    told = told_of(a_map(a="me", b="other"), ME)
    assert (told.mine, told.is_named) == ({"a"}, True)
    assert told_of(a_map(idle=frozenset({"me"})), ME).is_named
    assert not told_of(a_map(b="other"), ME).is_named


def test_a_map_of_another_incarnation_names_nobody_and_none_was_written_replaces_nobody() -> None:
    told = told_of(a_map(incarnation("w0", 2), a="me"), ME)
    assert (told.mine, told.is_named, told.is_replaced) == (frozenset(), False, True)
    assert not told_of(a_map(""), ME).is_replaced


def test_what_nobody_is_named_for_is_left_alone_by_a_task_that_has_to_go() -> None:
    assert told_of(a_map(a="me"), ME).given_away(["a", "b"]) == ["b"]
    assert told_of(a_map(a="other"), ME).given_away(["a", "b"]) == ["a"]


def test_a_shard_that_is_anothers_is_worked_on_for_a_while_counted_from_the_first_look() -> None:
    first = lingering({}, ["a"], 100)
    assert first == {"a": 100 + LINGER_US}
    assert lingering(first, ["a", "b"], 200) == {"a": 100 + LINGER_US, "b": 200 + LINGER_US}
    assert lingering(first, ["a"], 100 + LINGER_US) == {}
    assert lingering(first, [], 200) == {}
