"""What wakes a worker's main process, and what does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.store.port import Request, StoreUnreachable, WaitControl
from penstock_worker.main_process.control_watch import ControlStream, ControlWatch

WAIT_S = 10.0


class ScriptedStore:
    """Answers each wait by the next of `answers`, an error or a number; `asked` holds what each one had seen.
    At their end it blocks until it is closed."""

    def __init__(self, *answers: int | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[int] = []
        self.at_the_end = threading.Event()
        self._closed = threading.Event()

    def call(self, call: Request[Any]) -> Any:
        assert isinstance(call, WaitControl)
        self.asked.append(call.after)
        if not self._answers:
            self.at_the_end.set()
            self._closed.wait(WAIT_S)
            return call.after
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        raise AssertionError(f"a watch only waits, it does not call {calls}")

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        raise AssertionError(f"a watch only waits, it does not call {calls}")

    def close(self) -> None:
        self._closed.set()


def watched(*answers: int | Exception) -> tuple[ScriptedStore, bool]:
    """The store after the script, and whether the watch was woken by it."""
    store = ScriptedStore(*answers)
    watch = ControlWatch(ControlStream(store, "w0"))
    watch.start()
    assert store.at_the_end.wait(WAIT_S)
    woken = watch.wait(0)
    store.close()
    watch.stop()
    return store, woken


@pytest.mark.parametrize(
    ("answers", "is_woken"), [((), False), ((0, 0), False), ((0, 4), True), ((4,), True)]
)
def test_only_a_new_number_wakes(answers: tuple[int, ...], is_woken: bool) -> None:
    assert watched(*answers)[1] is is_woken


def test_after_the_store_was_away_any_number_is_new() -> None:
    store, woken = watched(7, StoreUnreachable("away"), 2)
    assert woken
    assert store.asked == [0, 7, 0, 2]


def test_who_is_not_woken_goes_on_when_the_time_is_over() -> None:
    watch = ControlWatch(ControlStream(ScriptedStore(), "w0"))
    assert not watch.wait(0.01)
    watch.wake()
    assert watch.wait(WAIT_S)
    assert not watch.wait(0), "a wake counts once"
