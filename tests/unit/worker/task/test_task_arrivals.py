"""How a task takes up a shard that came from another node: in how few round trips, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.moving.mover import move_once
from penstock.store.moving.progress import MoveStep
from penstock.store.port import Bounds, OpenStore, Publish, Request, SetTasks
from penstock_worker.task.held_shards import AWAITED_MAX
from penstock_worker.task.loop import TaskLoop
from scenes.task_scene import INCARNATION, Between, Scene

WORDS = "ash sea elm oak fig yew bay ivy\n"
WORKERS = (("w1", "n1", "localhost", "u1"), ("w2", "n2", "elsewhere", "u2"))
EXECUTORS = (("count-w1", "w1", 1), ("count-w2", "w2", 1))


class Rounds(Between):
    """Keeps what a task sends at a time, by the calls' names."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.sent: list[list[str]] = []

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self.sent.append([type(call).__name__ for call in calls if type(call).__name__ != "PutMetrics"])
        return super().pipeline(calls)


class Arrival:
    """All shards but count/0 are in another node's store, with what waits for them, and have to come back."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.far = MemoryStore(MemoryNode(), "t", Bounds())
        self.far.call(OpenStore("n2"))
        self.version = 1
        scene.turns(scene.task("lines", ["lines/a.txt"]))
        self.travelling = scene.count_shards[1:]
        self._publish("count-w2", "n2")
        self._send(scene.store, self.far, "n2")
        self.rounds = Rounds(scene.store)
        self.task: TaskLoop = scene.task("count", scene.count_shards, store=self.rounds)
        self._publish("count-w1", "n1")
        scene.turns(self.task)

    def come(self) -> None:
        """They are here; the task has not been asked since."""
        self._send(self.far, self.scene.store, "n1")
        self.rounds.sent.clear()

    def _publish(self, executor: str, home: str) -> None:
        self.version += 1
        places = tuple((shard, executor, home) for shard in self.travelling)
        for store in (self.scene.store, self.far):
            shards = (("count/0", "count-w1", "n1"), *places)
            store.call(Publish("count", self.version, 0, WORKERS, EXECUTORS, shards))

    def _send(self, source: MemoryStore, target: MemoryStore, home: str) -> None:
        for shard in self.travelling:
            step = MoveStep.PRECOPY
            while step is not MoveStep.DONE:
                step = move_once(source, {home: target}.get, shard, target_id=home, version=self.version).step


def arrival(folder: Path, monkeypatch: pytest.MonkeyPatch, shards: int = 2) -> Arrival:
    monkeypatch.syspath_prepend(str(folder))
    scene = Scene(folder, shards)
    (folder / "a.txt").write_text(WORDS)
    scene.publish(["lines/a.txt"])
    return Arrival(scene)


@pytest.fixture
def arriving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arrival:
    return arrival(tmp_path, monkeypatch)


def test_a_shard_that_has_come_is_claimed_and_fetched_in_one_round_trip(arriving: Arrival) -> None:
    assert arriving.scene.waiting() == 0
    arriving.come()
    assert arriving.scene.waiting() > 0
    arriving.task.turn()
    assert arriving.scene.waiting() == 0
    assert arriving.rounds.sent[0] == ["Claim", "Fetch"]
    before_commit = arriving.rounds.sent[: arriving.rounds.sent.index(["Commit", "Fetch"])]
    assert all("Tasks" not in sent for sent in before_commit), "the map is not what its work waits for"


def test_what_else_the_map_says_is_read_after_the_first_batch(arriving: Arrival) -> None:
    arriving.come()
    mapping = (("count/0", "other"), ("count/1", "count.ready"))
    arriving.scene.store.call(SetTasks("w1", INCARNATION, "count-w1", mapping))
    arriving.task.turn()
    sent = arriving.rounds.sent
    assert sent.index(["Tasks", "Measure"]) > sent.index(["Commit", "Fetch"])
    assert arriving.task._held.leaving.keys() == {"count/0"}


def test_a_shard_that_has_not_come_is_asked_for_again_with_each_fetch(arriving: Arrival) -> None:
    arriving.rounds.sent.clear()
    arriving.scene.turns(arriving.task, 3)
    asked = [sent for sent in arriving.rounds.sent if "Fetch" in sent]
    assert asked
    assert all(sent == ["Claim", "Fetch"] for sent in asked)


def test_a_claim_under_an_old_schedule_is_not_repeated(arriving: Arrival) -> None:
    arriving.come()
    arriving._publish("count-w2", "n2")
    arriving.task.turn()
    assert arriving.rounds.sent[0] == ["Claim", "Fetch"]
    assert arriving.task._held.take_awaited() == []


def test_only_some_of_many_awaited_shards_are_claimed_with_a_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arriving = arrival(tmp_path, monkeypatch, shards=AWAITED_MAX + 5)
    arriving.rounds.sent.clear()
    arriving.task.turn()
    assert arriving.rounds.sent[0] == ["Claim"] * AWAITED_MAX + ["Fetch"]
