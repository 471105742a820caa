"""What one call did to its key's state is undone, and nothing else is."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.dataflow.plan import PROCESSING_TIME
from penstock_worker.state.clients import TimerClient
from penstock_worker.state.handle import TaskHandle
from scenes.owned_state import OwnedState

KEYS = ("ash", "elm", "oak")


class Declared:
    """One variable of each kind, and timers."""

    def __init__(self, handle: TaskHandle) -> None:
        self.value = handle.getValueState("value", "n long")
        self.rows = handle.getListState("rows", "n long")
        self.marks = handle.getMapState("marks", "n long", "n long")
        timers = handle.timers
        assert isinstance(timers, TimerClient)
        self.timers = timers


def owned() -> OwnedState:
    return OwnedState(Declared, time_mode=PROCESSING_TIME)


def changed(state: Any, rng: random.Random) -> None:
    """Some calls of user code."""
    for _ in range(rng.randint(1, 6)):
        n = rng.randint(0, 5)
        match rng.randrange(10):
            case 0:
                state.value.update((n,))
            case 1:
                state.value.clear()
            case 2:
                state.rows.appendValue((n,))
            case 3:
                state.rows.put([(n,), (n + 1,)])
            case 4:
                state.rows.clear()
            case 5:
                state.marks.updateValue((n,), (n,))
            case 6:
                state.marks.removeKey((n,))
            case 7:
                state.marks.clear()
            case 8:
                state.timers.register(n)
            case 9:
                state.timers.delete(n)


@pytest.mark.parametrize("seed", range(60))
def test_calls_that_are_undone_leave_what_would_be_there_without_them(seed: int) -> None:
    rng = random.Random(seed)
    with_failures, without = owned(), owned()
    for _ in range(rng.randint(1, 4)):
        timers: list[Any] = []
        if rng.random() < 0.5:
            # Some batches find their state loaded, others load it as they go.
            for one in (with_failures, without):
                one.prefetch(*[(key,) for key in KEYS])
        for _ in range(rng.randint(1, 8)):
            key, fails, calls = rng.choice(KEYS), rng.random() < 0.5, rng.getrandbits(32)
            state = with_failures.state
            saved = state.savepoint((key,))
            with with_failures.at(key) as variables:
                changed(variables, random.Random(calls))
            if fails:
                state.undo(saved)
            else:
                with without.at(key) as variables:
                    changed(variables, random.Random(calls))
        for one in (with_failures, without):
            one.commit()
            timers.append(sorted(one.state.take_timers()))
        assert timers[0] == timers[1]
        assert with_failures.stored() == without.stored()
        if rng.random() < 0.5:
            for one in (with_failures, without):
                one.new_owner()


def test_what_is_undone_takes_no_room_in_the_cache() -> None:
    one = owned()
    one.prefetch(("ash",))
    with one.at("ash") as state:
        state.value.update((1,))
    one.commit()
    before = one.cache.bytes
    saved = one.state.savepoint(("ash",))
    with one.at("ash") as state:
        state.rows.put([(n,) for n in range(1000)])
    one.state.undo(saved)
    assert one.commit() == ()
    assert one.cache.bytes <= before
