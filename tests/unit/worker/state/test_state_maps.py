"""Map states: Spark's meaning of each call, what is loaded and what is left."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState

from penstock.store.port import Load, Scan
from penstock_worker.state import cells, encoding
from penstock_worker.state.shapes import StateMisuse
from scenes.owned_state import OwnedState


def mapped(key: str = "k string", value: str = "v long") -> OwnedState:
    return OwnedState(lambda handle: handle.getMapState("m", key, value))


def content(owned: OwnedState) -> dict[Any, Any]:
    with owned.at("a") as state:
        return dict(state.iterator())


def test_an_absent_map_is_empty_and_does_not_exist() -> None:
    owned = mapped()
    assert type(owned.variables) is MapState
    with owned.at("a") as state:
        assert not state.exists()
        assert list(state.iterator()) == []
        assert list(state.keys()) == []
        assert list(state.values()) == []
        assert state.getValue(("x",)) is None
        assert not state.containsKey(("x",))
        state.removeKey(("x",))
    assert owned.commit() == ()


def test_entries_are_set_read_and_removed_as_in_spark() -> None:
    owned = mapped()
    with owned.at("a") as state:
        state.updateValue(("x",), (1,))
        state.updateValue(("x",), (2,))
        state.updateValue(("y",), (None,))
        assert state.getValue(("x",)) == Row(v=2)
        assert state.getValue(("x",)).v == 2
        assert state.containsKey(("y",))
        assert dict(state.iterator()) == {("x",): (2,), ("y",): (None,)}
        assert sorted(state.keys()) == [("x",), ("y",)]
        assert list(state.values()) == [(2,), (None,)]
        state.removeKey(("x",))
        assert state.exists()
        state.removeKey(("y",))
        assert not state.exists()


def test_an_iterator_sees_no_change_made_after_its_first_entry() -> None:
    owned = mapped()
    with owned.at("a") as state:
        for letter in "bac":
            state.updateValue((letter,), (1,))
        seen = []
        for (letter,), _ in state.iterator():
            seen.append(letter)
            state.updateValue((f"new {letter}",), (2,))
            state.removeKey((letter,))
        assert seen == ["a", "b", "c"]
        assert len(list(state.keys())) == 3


def test_keys_that_python_holds_for_equal_stay_apart_where_spark_keeps_them_apart() -> None:
    owned = mapped("k double")
    with owned.at("a") as state:
        for key in (0.0, -0.0, math.nan, 1, 1.0):
            state.updateValue((key,), (7,))
        assert len(list(state.keys())) == 4
        assert state.containsKey((math.nan,))


def test_keys_of_several_columns_and_nulls_are_keys() -> None:
    owned = mapped("n long, day date")
    keys = [(5, datetime.date(2020, 1, 1)), (-5, None), (None, None)]
    with owned.at("a") as state:
        for key in keys:
            state.updateValue(key, (1,))
    owned.commit()
    owned.new_owner()
    assert content(owned).keys() == set(keys)


@pytest.mark.parametrize("key", ["xy", None, ("x", "y"), (1,)])
def test_a_key_that_does_not_fit_is_refused(key: Any) -> None:
    owned = mapped()
    with owned.at("a") as state:
        for use in (state.getValue, state.containsKey, state.removeKey, lambda k: state.updateValue(k, (1,))):
            with pytest.raises(StateMisuse):
                use(key)
        assert not state.exists()


def test_a_small_map_is_read_in_one_go() -> None:
    owned = mapped()
    with owned.at("a") as state:
        for n in range(100):
            state.updateValue((f"k{n}",), (n,))
    owned.commit()
    owned.new_owner()
    owned.prefetch(("a",))
    owned.calls.clear()
    with owned.at("a") as state:
        assert state.exists()
        assert owned.calls == []
        for n in range(120):
            assert state.containsKey((f"k{n}",)) == (n < 100)
    assert [type(call) for call in owned.calls] == [Scan]


def test_a_map_read_as_a_whole_keeps_what_changed_before() -> None:
    owned = mapped()
    with owned.at("a") as state:
        for n in range(cells.SMALL_MAP_ENTRIES_MAX + 1):
            state.updateValue((f"k{n}",), (n,))
    owned.commit()
    owned.new_owner()
    with owned.at("a") as state:
        state.updateValue(("k1",), (-1,))
        state.removeKey(("k2",))
        found = dict(state.iterator())
    assert found[("k1",)] == (-1,)
    assert ("k2",) not in found
    assert len(found) == cells.SMALL_MAP_ENTRIES_MAX


def test_of_a_large_map_only_the_entries_at_hand_are_read() -> None:
    owned = mapped()
    with owned.at("a") as state:
        for n in range(cells.SMALL_MAP_ENTRIES_MAX + 1):
            state.updateValue((f"k{n}",), (n,))
    owned.commit()
    owned.new_owner()
    owned.prefetch(("a",))
    owned.calls.clear()
    with owned.at("a") as state:
        assert state.getValue(("k7",)) == (7,)
        assert state.getValue(("k7",)) == (7,)
        state.updateValue(("new",), (1,))
        state.removeKey(("k8",))
    assert [type(call) for call in owned.calls] == [Load, Load, Load]
    assert len(owned.commit()) == 2
    assert len(content(owned)) == cells.SMALL_MAP_ENTRIES_MAX + 1


def test_a_commit_writes_changed_entries_only() -> None:
    owned = mapped()
    with owned.at("a") as state:
        for letter in "abc":
            state.updateValue((letter,), (1,))
    owned.commit()
    with owned.at("a") as state:
        state.updateValue(("b",), (2,))
    (write,) = owned.commit()
    assert write.field == encoding.pack(("b",))


def test_an_emptied_map_leaves_nothing_in_the_store() -> None:
    owned = mapped("k string", "v string")
    with owned.at("a") as state:
        state.updateValue(("x",), ("y" * (2 * encoding.PART_BYTES),))
        state.updateValue(("z",), ("small",))
    owned.commit()
    owned.new_owner()
    with owned.at("a") as state:
        assert state.getValue(("x",)).v == "y" * (2 * encoding.PART_BYTES)
        state.removeKey(("x",))
        state.removeKey(("z",))
    owned.commit()
    assert owned.stored() == {}


ACTIONS = st.tuples(
    st.sampled_from(
        ["update", "update", "remove", "get", "iterate", "clear", "commit", "new owner", "rollback"]
    ),
    st.integers(0, 3),
    st.integers(0, 3),
)


@pytest.mark.parametrize("small", [0, 256])
@settings(max_examples=200)
@given(actions=st.lists(ACTIONS, min_size=5, max_size=40))
def test_a_map_state_is_a_map_whatever_is_committed_lost_or_rolled_back(
    small: int, actions: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "SMALL_MAP_ENTRIES_MAX", small)
        patch.setattr(encoding, "PART_BYTES", 20)
        _check_map(actions)


def _check_map(actions: list[tuple[str, int, int]]) -> None:
    owned = mapped("k long", "v string")
    committed: dict[Any, Any] = {}
    model: dict[Any, Any] = {}
    for action, number, size in actions:
        key, value = (number,), ("x" * (size * 15),)
        if action == "commit":
            owned.commit()
            committed = dict(model)
        elif action in ("new owner", "rollback"):
            owned.new_owner() if action == "new owner" else owned.state.rollback()
            model = dict(committed)
        else:
            with owned.at("a") as state:
                if action == "update":
                    state.updateValue(key, value)
                    model[key] = value
                elif action == "remove":
                    state.removeKey(key)
                    model.pop(key, None)
                elif action == "clear":
                    state.clear()
                    model.clear()
                elif action == "get":
                    assert state.getValue(key) == model.get(key)
                else:
                    assert dict(state.iterator()) == model
                assert state.exists() == bool(model)
    owned.commit()
    assert content(owned) == model
    owned.new_owner()
    assert content(owned) == model
    if not model:
        assert owned.stored() == {}
