"""The cycle collector looks through the same objects once, and not again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from penstock_operator.cluster.collector import TIMES_MAX, YOUNG_LOOKS, ShortCollections


class Clock:
    """Goes on by `step_s` at each look."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def no_other_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_other_collections")
def test_what_was_there_or_survives_a_long_collection_is_set_aside_and_after_a_short_one_nothing() -> None:
    clock, told = Clock(), list[str]()
    short = ShortCollections(clock, 0.05, lambda: told.append("aside"), lambda: told.append("back"))
    assert told == ["aside"]
    try:
        clock.step_s = 0.04
        gc.collect()
        assert told == ["aside"]
        clock.step_s = 0.06
        gc.collect(1)
        assert told == ["aside"]  # a young one says nothing of the old objects
        gc.collect()
        assert told == ["aside"] * 2
    finally:
        short.end()
    gc.collect()
    assert told == ["aside", "aside", "back"]


@pytest.mark.usefixtures("no_other_collections")
def test_after_many_times_all_is_looked_through_once_when_the_lease_was_renewed() -> None:
    clock, told = Clock(), list[str]()
    short = ShortCollections(clock, 0.05, lambda: told.append("aside"), lambda: told.append("back"))
    try:
        clock.step_s = 0.06
        for _ in range(TIMES_MAX - 1):
            short._told("start", {"generation": 2})
            short._told("stop", {"generation": 2})
        short.renewed()
        assert "back" not in told
        gc.collect()
        clock.step_s = 0.0
        short.renewed()
        assert told[-3:] == ["aside", "back", "aside"]
        short.renewed()
        assert told.count("back") == 1
    finally:
        short.end()


@pytest.mark.usefixtures("no_other_collections")
def test_what_was_set_aside_is_freed_when_nothing_refers_to_it_and_is_looked_through_no_more() -> None:
    class Thing:
        def __del__(self) -> None:
            freed.append(1)

    freed: list[int] = []
    short = ShortCollections(long_s=-1.0)
    try:
        things = [Thing() for _ in range(10)]
        assert any(one is things[0] for one in gc.get_objects())
        gc.collect()
        assert not any(one is things[0] for one in gc.get_objects())
        things.clear()
        assert len(freed) == 10
    finally:
        short.end()
    assert gc.get_freeze_count() == 0


def test_old_objects_are_looked_through_more_seldom_while_it_lasts() -> None:
    before = gc.get_threshold()
    short = ShortCollections()
    try:
        assert gc.get_threshold() == (*before[:2], YOUNG_LOOKS)
    finally:
        short.end()
    assert gc.get_threshold() == before
