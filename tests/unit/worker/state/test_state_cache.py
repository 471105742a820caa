"""The cache of state: bounded, and only ever what the store could give again."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_worker.state import encoding
from scenes.owned_state import SHARD, OwnedState


def small_cache(cache_bytes_max: int) -> OwnedState:
    return OwnedState(
        lambda handle: handle.getValueState("v", "text string"), cache_bytes_max=cache_bytes_max
    )


def work(owned: OwnedState, *keys: str) -> None:
    """One batch that adds a letter to each key's text."""
    owned.prefetch(*[(key,) for key in keys])
    for key in keys:
        with owned.at(key) as value:
            value.update(((value.get() or ("",))[0] + "x",))
    owned.commit()


def test_the_cache_stays_within_its_bound_and_loses_nothing() -> None:
    owned = small_cache(50_000)
    for _ in range(3):
        for start in range(0, 500, 50):
            work(owned, *[f"k{n}" for n in range(start, start + 50)])
            assert owned.cache.bytes <= 50_000
    for n in range(500):
        with owned.at(f"k{n}") as value:
            assert value.get() == ("xxx",)


def test_keys_in_use_stay_in_the_cache() -> None:
    owned = small_cache(50_000)
    work(owned, "hot")
    owned.calls.clear()
    for n in range(300):
        work(owned, "hot", f"k{n}")
    assert all(b"hot" not in field for load in owned.calls for field in load.fields)
    owned.commit()
    assert owned.prefetch(("k0",)) is not None


def test_a_batch_larger_than_the_bound_is_worked_on_all_the_same() -> None:
    owned = small_cache(2_000)
    keys = [f"k{n}" for n in range(100)]
    work(owned, *keys)
    work(owned, *keys)
    owned.new_owner()
    for key in keys:
        with owned.at(key) as value:
            assert value.get() == ("xx",)


def test_what_another_batch_prefetched_is_not_let_go() -> None:
    owned = small_cache(2_000)
    work(owned, "a")
    owned.prefetch(*[(f"k{n}",) for n in range(100)])
    owned.cache.trim()
    owned.calls.clear()
    for n in range(100):
        with owned.at(f"k{n}") as value:
            assert value.get() is None
    assert owned.calls == []


def test_a_dropped_shard_takes_its_bytes_along() -> None:
    owned = small_cache(50_000)
    work(owned, "a", "b")
    assert owned.cache.bytes > 0
    owned.cache.drop(SHARD)
    assert owned.cache.bytes == 0


def test_bytes_are_counted_right_whatever_happens_to_a_batch() -> None:
    owned = OwnedState(
        lambda handle: (handle.getValueState("v", "n long"), handle.getMapState("m", "k long", "n long"))
    )
    for commit in (True, False, False, True):
        owned.prefetch(*[(f"k{n}",) for n in range(20)])
        for n in range(20):
            with owned.at(f"k{n}") as (value, map_):
                map_.exists()
                if n % 2:
                    value.update((n,))
                    map_.updateValue((n,), (n,))
        if commit:
            owned.commit()
        else:
            owned.state.rollback()
            owned.commit()
    owned.state.evict(1.0)
    assert (owned.state.bytes, owned.cache.bytes) == (0, 0)


def test_a_processor_without_state_loads_nothing() -> None:
    owned = OwnedState(lambda handle: None)
    assert owned.prefetch(("a",)) is None
    with owned.at("a"):
        pass
    assert owned.commit() == ()


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)


@given(st.tuples(SCALARS, SCALARS), st.tuples(SCALARS, SCALARS))
def test_packed_keys_are_equal_only_for_equal_values_of_equal_type(
    left: tuple[Any, ...], right: tuple[Any, ...]
) -> None:
    def tagged(values: tuple[Any, ...]) -> list[Any]:
        return [(type(value), str(value)) for value in values]

    assert (encoding.pack(left) == encoding.pack(right)) == (tagged(left) == tagged(right))


@pytest.mark.parametrize(
    ("left", "right"), [(1, 1.0), (1, True), ("1", 1), (b"1", "1"), (0, False), (None, "")]
)
def test_values_of_different_types_pack_differently(left: Any, right: Any) -> None:
    assert encoding.pack((left,)) != encoding.pack((right,))


def test_grouping_keys_that_are_one_group_pack_alike() -> None:
    packed = encoding.key_packer(["double", "float", "string"])
    assert packed((0.0, -0.0, "x")) == packed((-0.0, 0.0, "x"))
    assert packed((math.nan, None, None)) == packed((math.nan, None, None))
    assert packed((1.0, None, None)) == packed((1, None, None))


def several(handle: Any) -> Any:
    return tuple(handle.getValueState(name, "text string") for name in ("a", "b", "c"))


def test_loads_that_are_answered_in_parts_fill_the_cache_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owned = OwnedState(several)
    keys = [(f"k{n}",) for n in range(6)]
    for (key,) in keys:
        with owned.at(key) as (a, b, c):
            a.update((f"{key}a" * 100,))
            b.update((f"{key}b" * 100,))
            c.update((f"{key}c" * 100,))
    owned.commit()
    for answer_bytes in (1, 350, 700, 1_500):
        monkeypatch.setattr("penstock.store.memory.state.LOAD_BYTES", answer_bytes)
        owned.new_owner()
        owned.calls.clear()
        owned.prefetch(*keys)
        for (key,) in reversed(keys):
            with owned.at(key) as (a, b, c):
                assert (a.get(), b.get(), c.get()) == tuple((f"{key}{name}" * 100,) for name in "abc")
        assert len(owned.calls) <= 4 * len(keys) + 1
        owned.commit()


def test_a_value_in_parts_is_read_many_parts_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "PART_BYTES", 100)
    owned = small_cache(1 << 20)
    with owned.at("a") as value:
        value.update(("x" * 5_000,))
    owned.commit()
    owned.new_owner()
    owned.prefetch(("a",))
    owned.calls.clear()
    with owned.at("a") as value:
        assert value.get() == ("x" * 5_000,)
    assert len(owned.calls) == 1
