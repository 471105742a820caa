"""A variable that the code deletes leaves nothing behind, and its name is free again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError

from penstock_worker.state.cache import SCAN_FIELDS
from penstock_worker.state.encoding import PART_BYTES
from penstock_worker.state.handle import TaskHandle
from penstock_worker.state.shapes import StateMisuse
from scenes.owned_state import OwnedState


def everything(handle: TaskHandle) -> Any:
    return (
        handle.getValueState("value", "text string"),
        handle.getListState("list", "text string"),
        handle.getMapState("map", "k string", "text string"),
        handle.getValueState("kept", "text string"),
    )


def full(text: str, keys_of: int = 40, items: int = 5) -> OwnedState:
    owned = OwnedState(everything)
    keys = [(f"key {number}",) for number in range(keys_of)]
    owned.prefetch(*keys)
    for (key,) in keys:
        with owned.at(key) as (value, list_, map_, kept):
            value.update((text,))
            kept.update((text,))
            for number in range(items):
                list_.appendValue((text + str(number),))
                map_.updateValue((str(number),), (text,))
    owned.commit()
    return owned


def only_kept(handle: TaskHandle) -> Any:
    for name in ("value", "list", "map", "never"):
        handle.deleteIfExists(name)
    return handle.getValueState("kept", "text string")


@pytest.mark.parametrize(
    ("text", "keys", "items"),
    [("x" * 400, 40, 5), ("x" * PART_BYTES, 1, 1), ("x", SCAN_FIELDS, 1)],
    ids=["small", "in parts", "very many"],
)
def test_all_of_it_goes_with_the_first_commit_and_the_rest_stays(text: str, keys: int, items: int) -> None:
    owned = OwnedState(only_kept, after=full(text, keys, items))
    owned.prefetch(("key 0",))
    with owned.at("key 0") as kept:
        assert kept.get() == (text,)
    owned.commit()
    assert {field[:1] for _, field in owned.stored() if field[:1] != b"\xc1"} == {b"v"}
    assert len({field for collection, field in owned.stored() if field[:1] == b"v"}) == keys
    assert {collection for collection, _ in owned.stored()} == {b""}
    again = OwnedState(only_kept, after=owned)
    again.prefetch(("key 2",))
    with again.at("key 2") as kept:
        kept.update(("y",))
    assert len(again.commit()) == 1


def test_a_batch_that_is_rolled_back_has_deleted_nothing_and_the_next_one_does() -> None:
    owned = OwnedState(only_kept, after=full("x"))
    before = owned.stored()
    owned.prefetch(("key 1",))
    owned.state.take_writes()
    owned.state.rollback()
    assert owned.stored() == before
    owned.commit()
    assert len(owned.stored()) == 40


def test_a_name_that_was_deleted_is_free_for_another_kind() -> None:
    owned = OwnedState(only_kept, after=full("x"))
    owned.prefetch(("key 1",))
    owned.commit()
    later = OwnedState(lambda handle: handle.getValueState("list", "day date"), after=owned)
    later.prefetch(("key 1",))
    assert later.state.refusal == ""
    with later.at("key 1") as variable:
        assert variable.get() is None


def test_what_was_deleted_is_not_declared_after_it() -> None:
    def both(handle: TaskHandle) -> Any:
        handle.deleteIfExists("value")
        return handle.getValueState("value", "n long")

    with pytest.raises(StateMisuse, match="state 'value' is declared after it was deleted"):
        OwnedState(both)


def declared_and_deleted(handle: TaskHandle) -> Any:
    """As Spark's own SimpleStatefulProcessor has it, with each kind and neighbours before and after."""
    kept = handle.getValueState("kept", "text string")
    gone = (
        handle.getValueState("value", "text string"),
        handle.getListState("list", "text string"),
        handle.getMapState("map", "k string", "text string"),
    )
    for name in ("value", "list", "map"):
        handle.deleteIfExists(name)
    return kept, handle.getValueState("behind", "n long"), gone


def test_what_is_declared_and_then_deleted_goes_and_its_neighbours_work() -> None:
    owned = OwnedState(declared_and_deleted, after=full("x"))
    owned.prefetch(("key 0",))
    with owned.at("key 0") as (kept, behind, _):
        assert kept.get() == ("x",)
        behind.update((3,))
    owned.commit()
    assert len(owned.stored()) == 41
    again = OwnedState(declared_and_deleted, after=owned)
    again.prefetch(("key 0",))
    with again.at("key 0") as (kept, behind, _):
        assert (kept.get(), behind.get()) == (("x",), (3,))


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda gone: gone[0].exists(), "checking value state exists: state 'value'"),
        (lambda gone: gone[0].get(), "getting value state: state 'value'"),
        (lambda gone: gone[0].update(("a",)), "updating value state: state 'value'"),
        (lambda gone: gone[0].clear(), "clearing value state: state 'value'"),
        (lambda gone: list(gone[1].get()), "getting list state: state 'list'"),
        (lambda gone: gone[1].appendValue(("a",)), "updating value state: state 'list'"),
        (lambda gone: gone[2].getValue(("k",)), "getting value: state 'map'"),
        (lambda gone: gone[2].updateValue(("k",), ("a",)), "updating map state value: state 'map'"),
        (lambda gone: list(gone[2].keys()), "getting map state: state 'map'"),
    ],
)
def test_what_was_declared_and_deleted_is_refused_where_it_is_used_as_spark_does(
    use: Callable[[Any], object], words: str
) -> None:
    owned = OwnedState(declared_and_deleted)
    owned.prefetch(("key",))
    with (
        owned.at("key") as (_, _, gone),
        pytest.raises(PySparkRuntimeError, match=f"^Error {words} was deleted in init"),
    ):
        use(gone)


def test_state_is_deleted_in_init_only() -> None:
    handle = TaskHandle()
    handle.seal()
    with pytest.raises(StateMisuse, match="in init\\(\\) only"):
        handle.deleteIfExists("value")
