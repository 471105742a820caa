"""List states: Spark's meaning of each call, and how little a commit writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.stateful_processor import ListState

from penstock_worker.state import encoding
from penstock_worker.state.shapes import StateMisuse
from scenes.owned_state import OwnedState


def listed(schema: str = "n long") -> OwnedState:
    return OwnedState(lambda handle: handle.getListState("l", schema))


def content(owned: OwnedState, key: str = "a") -> list[Any]:
    with owned.at(key) as state:
        return list(state.get())


def test_an_absent_list_is_empty_and_does_not_exist() -> None:
    owned = listed()
    assert type(owned.variables) is ListState
    with owned.at("a") as state:
        assert list(state.get()) == []
        assert not state.exists()


def test_rows_are_appended_put_and_cleared_as_in_spark() -> None:
    owned = listed()
    with owned.at("a") as state:
        state.appendValue((1,))
        state.appendList((n,) for n in (2, 3))
        assert list(state.get()) == [(1,), (2,), (3,)]
        state.put([(7,), (8,)])
        assert list(state.get()) == [(7,), (8,)]
        assert state.exists()
        state.clear()
        assert not state.exists()
        state.appendValue((None,))
        assert list(state.get()) == [(None,)]


def test_an_empty_list_is_refused_as_spark_refuses_it() -> None:
    owned = listed()
    with owned.at("a") as state:
        for write in (state.put, state.appendList):
            with pytest.raises(StateMisuse, match="an empty list cannot be written"):
                write([])


def test_a_row_that_does_not_fit_changes_nothing() -> None:
    owned = listed()
    with owned.at("a") as state:
        state.appendValue((1,))
        with pytest.raises(StateMisuse, match="expects bigint, got str 'x'"):
            state.put([(2,), ("x",)])
        assert list(state.get()) == [(1,)]


def test_an_iterator_begins_at_its_first_row_and_sees_no_later_change() -> None:
    owned = listed()
    with owned.at("a") as state:
        state.put([(1,), (2,)])
        rows = state.get()
        state.appendValue((3,))
        seen = []
        for row in rows:
            seen.append(row)
            state.appendValue((9,))
        assert seen == [(1,), (2,), (3,)]
        assert len(list(state.get())) == 6


def test_two_iterators_do_not_disturb_each_other() -> None:
    owned = listed()
    with owned.at("a") as state:
        state.put([(1,), (2,)])
        pairs = [(left, right) for left in state.get() for right in state.get()]
    assert len(pairs) == 4


def test_an_iterator_that_is_not_read_to_its_end_is_forgotten_with_its_key() -> None:
    owned = listed()
    with owned.at("a") as state:
        state.put([(1,), (2,)])
        assert next(state.get()) == (1,)
        assert owned.cursor.iterators
    assert not owned.cursor.iterators


def test_an_append_writes_the_end_of_a_long_list_only_and_reads_nothing() -> None:
    owned = listed("text string")
    row_bytes = 100
    with owned.at("a") as state:
        state.put([("x" * row_bytes,)] * 1000)
    owned.commit()
    owned.new_owner()
    owned.prefetch(("a",))
    owned.calls.clear()
    with owned.at("a") as state:
        state.appendValue(("y" * row_bytes,))
    writes = owned.commit()
    assert sum(len(write.value or b"") for write in writes) < 2 * encoding.LIST_CHUNK_BYTES + 2 * row_bytes
    assert owned.calls == []
    owned.new_owner()
    assert content(owned) == [("x" * row_bytes,)] * 1000 + [("y" * row_bytes,)]


def test_a_cleared_list_leaves_nothing_in_the_store() -> None:
    owned = listed("text string")
    with owned.at("a") as state:
        state.put([("x" * 300,)] * 20)
    owned.commit()
    with owned.at("a") as state:
        state.clear()
    owned.commit()
    assert owned.stored() == {}


def test_a_list_put_anew_leaves_no_old_chunks() -> None:
    owned = listed("text string")
    with owned.at("a") as state:
        state.put([("x" * 300,)] * 20)
    owned.commit()
    owned.new_owner()
    with owned.at("a") as state:
        state.put([("y",)])
    owned.commit()
    assert len(owned.stored()) == 1
    owned.new_owner()
    assert content(owned) == [("y",)]


def test_a_row_larger_than_a_part_is_kept() -> None:
    owned = listed("text string")
    rows = [("a",), ("x" * (2 * encoding.PART_BYTES),), ("b",)]
    with owned.at("a") as state:
        state.put(rows)
    owned.commit()
    assert all(len(value) <= encoding.PART_BYTES for value in owned.stored().values())
    owned.new_owner()
    assert content(owned) == rows


SIZES = st.sampled_from([0, 10, 500, 1500])
ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.lists(SIZES, min_size=1, max_size=6)),
    st.tuples(st.just("put"), st.lists(SIZES, min_size=1, max_size=10)),
    st.tuples(st.sampled_from(["clear", "read", "commit", "new owner", "rollback"]), st.just([])),
)


@given(st.lists(ACTIONS, max_size=40))
def test_a_list_state_is_a_list_whatever_is_committed_lost_or_rolled_back(
    actions: list[tuple[str, list[int]]],
) -> None:
    owned = listed("text string")
    committed: list[tuple[str]] = []
    model: list[tuple[str]] = []
    for action, sizes in actions:
        rows = [("x" * size,) for size in sizes]
        if action == "commit":
            owned.commit()
            committed = list(model)
        elif action in ("new owner", "rollback"):
            owned.new_owner() if action == "new owner" else owned.state.rollback()
            model = list(committed)
        else:
            with owned.at("a") as state:
                if action == "append":
                    state.appendList(rows)
                    model += rows
                elif action == "put":
                    state.put(rows)
                    model = rows
                elif action == "clear":
                    state.clear()
                    model = []
                else:
                    assert list(state.get()) == model
                assert state.exists() == bool(model)
    owned.commit()
    assert content(owned) == model
    owned.new_owner()
    assert content(owned) == model
    if not model:
        assert owned.stored() == {}
