"""State is shown by what it was declared as, without the code that wrote it."""

from __future__ import annotations

from typing import Any

from backends.store_backends import StoreMeanwhile
from penstock.dataflow.plan import PROCESSING_TIME
from penstock.store.kept_questions import AskState, Keys, KeysState, ListKeys
from penstock.store.port import Load
from penstock.store.shard_homes import ShardHomes
from penstock_worker.state.answering import Answering
from scenes.owned_state import SHARD, OwnedState

TYPES = ["string", "int"]


def answering(store: Any) -> Answering:
    return Answering(ShardHomes({SHARD: "s1"}, {"s1": store}, lambda _: None), lambda: 1_000, lambda _: None)


def variables(state: OwnedState, *key: Any) -> Any:
    (answer,) = answering(state.scene.store).answers(AskState(SHARD, TYPES, list(key)))
    assert isinstance(answer, KeysState)
    assert answer.is_settled
    return answer.variables


def keys(store: Any, most: int = 99) -> Keys:
    (answer,) = answering(store).answers(ListKeys("mid", TYPES, most))
    assert isinstance(answer, Keys)
    return answer


def declared(handle: Any) -> Any:
    handle.total = handle.getValueState("total", "n long, at timestamp")
    handle.rows = handle.getListState("rows", "word string")
    handle.marks = handle.getMapState("marks", "k int", "v double")
    handle.short = handle.getValueState("short", "n long", ttlDurationMs=500)
    return handle


def filled() -> OwnedState:
    state = OwnedState(declared, ("string", "int"), time_mode=PROCESSING_TIME)
    state.prefetch(("ash", 1), ("elm", 2))
    state.state.now_ms = 300
    with state.at("ash", 1) as variables:
        variables.total.update((7, None))
        variables.rows.put([("a",), ("b",)])
        variables.marks.updateValue((1,), (0.5,))
        variables.short.update((1,))
    state.state.now_ms = 900
    with state.at("elm", 2) as variables:
        variables.short.update((2,))
    state.commit()
    return state


def test_a_keys_variables_are_shown_by_name_and_column() -> None:
    state = filled()
    assert variables(state, "ash", 1) == {
        "total": {"n": 7},
        "rows": [{"word": "a"}, {"word": "b"}],
        "marks": [[{"k": 1}, {"v": 0.5}]],
    }
    assert variables(state, "elm", 2) == {"short": {"n": 2}}
    assert variables(state, "oak", 3) == {}


def test_each_key_with_state_is_listed_once() -> None:
    state = filled()
    assert sorted(keys(state.scene.store).keys) == [["ash", 1], ["elm", 2]]
    assert len(keys(state.scene.store, most=1).keys) == 1


def test_a_shard_whose_owner_changes_meanwhile_is_told() -> None:
    state = filled()
    store = StoreMeanwhile(state.scene.store, Load, state.lose)
    assert keys(store).refused == [SHARD]
    (answer,) = answering(store).answers(AskState(SHARD, TYPES, ["ash", 1]))
    assert answer == KeysState(is_settled=False)


def test_state_is_read_under_the_owner_that_there_is_then() -> None:
    state = filled()
    changes = iter((1, 0))
    store = StoreMeanwhile(state.scene.store, Load, lambda: next(changes, 0) and state.lose())
    (answer,) = answering(store).answers(AskState(SHARD, TYPES, ["elm", 2]))
    assert answer == KeysState({"short": {"n": 2}})


def test_a_shard_without_state_has_no_keys() -> None:
    state = OwnedState(declared, ("string", "int"), time_mode=PROCESSING_TIME)
    assert keys(state.scene.store).keys == []
    assert variables(state, "ash", 1) == {}
