"""A thread that a bug ends begins anew, and the bug is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from penstock_operator.agent.kept_thread import KeptThread, ThreadFaults

WAIT_S = 20


class Scene:
    def __init__(self) -> None:
        self.ending = threading.Event()
        self.faults = ThreadFaults()
        self.runs = 0
        self.pauses: list[float] = []
        self.now_s = 0.0

    def keep(self, work: Callable[[], object]) -> None:
        """Until the work returns, or the scene ends."""
        thread = KeptThread(
            "mover", work, self.faults, self.ending,
            name="mover-1", clock_s=lambda: self.now_s, rest=self.pauses.append,
        )  # fmt: skip
        thread.start()
        thread.join(WAIT_S)
        assert not thread.is_alive()

    def fail(self, times: int, *, after_s: float = 0.0) -> None:
        self.runs += 1
        self.now_s += after_s
        if self.runs <= times:
            raise KeyError("h")


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_work_that_returns_ends_its_thread(scene: Scene) -> None:
    scene.keep(lambda: scene.fail(0))
    assert (scene.runs, scene.faults.counts, scene.faults.last) == (1, {}, "")


def test_a_bug_is_counted_told_in_full_and_the_work_begins_anew(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        scene.keep(lambda: scene.fail(2))
    assert scene.runs == 3
    assert scene.faults.counts == {"mover": 2}
    assert scene.faults.last == "mover: KeyError: 'h'"
    assert "mover-1 met a bug" in caplog.text
    assert "in fail" in caplog.text


def test_pauses_grow_up_to_ten_seconds(scene: Scene) -> None:
    scene.keep(lambda: scene.fail(9))
    assert scene.pauses[:3] == [0.1, 0.2, 0.4]
    assert scene.pauses[-1] == 10.0


def test_after_a_calm_minute_a_bug_is_like_the_first(scene: Scene) -> None:
    scene.keep(lambda: scene.fail(3, after_s=61))
    assert scene.pauses == [0.1, 0.1, 0.1]


def test_nothing_begins_anew_once_it_is_time_to_end(scene: Scene) -> None:
    scene.ending.set()
    scene.keep(lambda: scene.fail(5))
    assert scene.runs == 1
    assert scene.faults.counts == {"mover": 1}
