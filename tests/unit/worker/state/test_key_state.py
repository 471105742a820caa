"""All that a key has goes from one shard to another, and nothing of it stays behind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.dataflow.plan import PROCESSING_TIME
from penstock_worker.state.encoding import PART_BYTES
from penstock_worker.state.handle import TaskHandle
from penstock_worker.state.key_state import Part, UnknownVariable, put_in, take_out
from scenes.owned_state import OwnedState

NOW_US = 5_000_000
TTL_MS = 60_000


def everything(handle: TaskHandle) -> Any:
    return (
        handle,
        handle.getValueState("value", "n int, word string"),
        handle.getListState("list", "n int"),
        handle.getMapState("map", "k string", "n int"),
        handle.getValueState("until", "n int", TTL_MS),
        handle.getMapState("each", "k string", "n int", TTL_MS),
    )


def owned(declare: Any = everything) -> OwnedState:
    one = OwnedState(declare, time_mode=PROCESSING_TIME)
    one.prefetch(("a",), ("b",))
    one.state.at(NOW_US, NOW_US)
    return one


def taken(one: OwnedState, key: str = "a") -> list[Part]:
    """What the key had, as it travels; the shard's commit is done."""
    parts = take_out(one.state, one.state.begin((key,)), one.cache.variables)
    one.commit()
    travelled = msgspec.msgpack.encode(parts)
    return msgspec.msgpack.decode(travelled, type=list[Part])


def put(one: OwnedState, parts: list[Part], key: str = "a") -> None:
    put_in(one.state, one.state.begin((key,)), one.cache.variables, parts)


def test_a_key_takes_all_its_state_and_timers_along() -> None:
    before, after = owned(), owned()
    with before.at("a") as (handle, value, items, entries, until, each):
        value.update((5, "x" * (PART_BYTES + 1)))
        items.put([(number,) for number in range(1000)])
        entries.updateValue(("k",), (1,))
        until.update((7,))
        each.updateValue(("e",), (8,))
        handle.registerTimer(9_000)
        handle.registerTimer(1_000)
    with before.at("b") as (_, value, *_others):
        value.update((6, "stays"))
    before.commit()
    before.state.take_timers()
    parts = taken(before)
    gone = {timer.name: timer.due_ms for timer in before.state.take_timers()}
    assert set(gone.values()) == {None}
    put(after, parts)
    due = {timer.name: timer.due_ms for timer in after.state.take_timers()}
    assert {due[name] for name in gone} == {9_000, 5_000}, "one that is past is due from now on"
    assert len(due) == len(gone) + 2, "what has a time to live is swept"
    after.commit()
    after.new_owner()
    after.prefetch(("a",))
    after.state.at(NOW_US, NOW_US)
    with after.at("a") as (handle, value, items, entries, until, each):
        assert value.get() == (5, "x" * (PART_BYTES + 1))
        assert list(items.get()) == [(number,) for number in range(1000)]
        assert entries.getValue(("k",)) == (1,)
        assert until.get() == (7,)
        assert each.getValue(("e",)) == (8,)
        assert list(handle.listTimers()) == [1_000, 9_000]
    assert all(field.endswith(b"\xa1b") for _, field in before.stored()), "only the other key's"


def test_a_key_without_state_brings_none() -> None:
    assert taken(owned()) == []


def test_a_key_comes_with_values_of_the_schema_that_its_earlier_shard_had() -> None:
    before = owned(lambda handle: handle.getValueState("value", "n int, word string"))
    with before.at("a") as value:
        value.update((5, "x"))
    before.commit()
    after = owned(lambda handle: handle.getValueState("value", "word string, n long, more date"))
    put(after, taken(before))
    with after.at("a") as value:
        assert value.get() == ("x", 5, None)


def test_state_that_the_code_does_not_declare_is_refused_by_its_name() -> None:
    before = owned()
    with before.at("a") as (_, value, *_others):
        value.update((5, "x"))
    before.commit()
    after = owned(lambda handle: handle.getValueState("other", "n int"))
    with pytest.raises(UnknownVariable, match="value"):
        put(after, taken(before))


def test_a_timer_that_has_fired_and_waits_is_listed_and_not_set_anew() -> None:
    before, after = owned(), owned()
    with before.at("a") as (handle, *_):
        handle.registerTimer(1_000)
        handle.registerTimer(9_000)
    before.commit()
    before.state.take_timers()
    parts = taken(before)
    put_in(after.state, after.state.begin(("a",)), after.cache.variables, parts, {1_000})
    assert [timer.due_ms for timer in after.state.take_timers()] == [9_000]
    with after.at("a") as (handle, *_):
        assert list(handle.listTimers()) == [1_000, 9_000]
