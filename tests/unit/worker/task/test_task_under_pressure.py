"""A task whose store is at its memory limit: sources stand, what waits is worked off, and then it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, Commit, Fetch, Measure, Request, SetTasks
from penstock_worker.task.store_pressure import PRESSED_US
from scenes.task_scene import INCARNATION, Between, Scene

READY = "lines.ready"


class Listening(Between):
    """Remembers what was sent."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.sent: list[Request[Any]] = []

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self.sent.extend(calls)
        return self._store.pipeline(calls)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.syspath_prepend(str(tmp_path))
    scene = Scene(tmp_path, bounds=replace(Bounds(), outputs_per_commit_max=8))
    (tmp_path / "a.txt").write_text("ash sea ash\nsea ash\n" * 50)
    scene.publish(["lines/a.txt"])
    return scene


def read(scene: Scene) -> int:
    (counters,) = scene.store.call(Measure(("lines/a.txt",)))
    assert counters is not None
    return counters.completed_rows + counters.commit


def test_a_source_reads_nothing_while_its_store_is_full_and_goes_on_afterwards(scene: Scene) -> None:
    scene.node.memory_bytes_max = 0
    task = scene.task("lines", ["lines/a.txt"])
    scene.turns(task, 30)
    assert read(scene) == 0
    scene.node.memory_bytes_max = None
    scene.turns(task, 30)
    assert read(scene) > 0
    scene.turns(scene.task("count", ["count/0", "count/1"]))
    assert scene.out()[-1].startswith('{"word":"sea"')


def test_a_source_that_stands_still_hears_of_a_new_assignment_within_a_rest(scene: Scene) -> None:
    task = scene.task("lines", ["lines/a.txt"])
    scene.node.memory_bytes_max = 0
    scene.turns(task, 3)
    scene.store.call(SetTasks("w1", INCARNATION, "lines-w1", ()))
    before_us = scene.clock.time_us
    while not task.retired:
        task.turn()
    assert scene.clock.time_us - before_us < PRESSED_US
    assert read(scene) == 0


def test_what_waits_in_a_full_store_is_worked_off_under_narrow_bounds(scene: Scene) -> None:
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    waited = scene.waiting()
    assert waited > 0
    scene.node.memory_bytes_max = 0
    listening = Listening(scene.store)
    scene.turns(scene.task("count", ["count/0", "count/1"], store=listening), 60)
    assert scene.waiting() == 0
    commits = [call for call in listening.sent if isinstance(call, Commit)]
    assert commits
    assert all(commit.pressed for commit in commits)


def test_a_full_store_is_asked_as_usual_only_now_and_then(scene: Scene) -> None:
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    scene.node.memory_bytes_max = 0
    listening = Listening(scene.store)
    task = scene.task("count", ["count/0", "count/1"], store=listening)
    before_us = scene.clock.time_us
    scene.turns(task, 400)
    asked = [call for call in listening.sent if isinstance(call, Fetch) and not call.pressed]
    assert len(asked) <= 1 + (scene.clock.time_us - before_us) // PRESSED_US
