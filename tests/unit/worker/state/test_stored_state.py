"""State is shown by what it was declared as, without the code that wrote it."""

from __future__ import annotations

from typing import Any

from penstock.dataflow.plan import PROCESSING_TIME
from penstock.store.state_question import ShardSeen, StateQuestion
from penstock_worker.state.stored_state import answered
from scenes.owned_state import SHARD, OwnedState


def question(state: OwnedState, key: list[Any] | None, most: int = 99, epoch: int = 0) -> StateQuestion:
    claimed = state.scene.claims[SHARD]
    seen = ShardSeen(SHARD, claimed.generation, epoch or claimed.epoch)
    return StateQuestion("", "", [seen], ["string", "int"], key, most, 1_000)


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
    assert answered(question(state, ["ash", 1]), state.scene.store.call).variables == {
        "total": {"n": 7},
        "rows": [{"word": "a"}, {"word": "b"}],
        "marks": [[{"k": 1}, {"v": 0.5}]],
    }
    assert answered(question(state, ["elm", 2]), state.scene.store.call).variables == {"short": {"n": 2}}
    assert answered(question(state, ["oak", 3]), state.scene.store.call).variables == {}


def test_each_key_with_state_is_listed_once() -> None:
    state = filled()
    assert sorted(answered(question(state, None), state.scene.store.call).keys) == [["ash", 1], ["elm", 2]]
    assert len(answered(question(state, None, most=1), state.scene.store.call).keys) == 1


def test_a_shard_whose_owner_has_changed_is_told() -> None:
    state = filled()
    before = state.scene.claims[SHARD].epoch
    state.lose()
    assert answered(question(state, None, epoch=before), state.scene.store.call).refused == [SHARD]


def test_a_shard_without_state_has_no_keys() -> None:
    state = OwnedState(declared, ("string", "int"), time_mode=PROCESSING_TIME)
    assert answered(question(state, None), state.scene.store.call).keys == []
    assert answered(question(state, ["ash", 1]), state.scene.store.call).variables == {}
