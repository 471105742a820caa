"""A slow operator slows its source down: the source's task blocks, and nothing is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, Commit, Fetch, Measure, Request, WaitReady
from penstock_worker.task.loop import TaskLoop
from scenes.task_scene import Between, Scene, TurnedClock

LINES = 4_000
SMALL = Bounds(inbox_entries_max=2, outbox_entries_max=2, entry_bytes_max=2_000)


class Counted(Between):
    """Counts the calls of a task, by their kind. Time passes while one waits, and at no other."""

    def __init__(self, store: MemoryStore, clock: TurnedClock) -> None:
        super().__init__(store)
        self.calls: Counter[type[Request[Any]]] = Counter()
        self._clock = clock

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self.calls.update(map(type, calls))
        self._clock.sleep_us(sum(call.timeout_ms * 1000 for call in calls if isinstance(call, WaitReady)))
        return self._store.pipeline(calls)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "a.txt").write_text("ash sea\n" * LINES)
    scene = Scene(tmp_path, bounds=SMALL)
    scene.publish(["lines/a.txt"])
    return scene


def rows_read(scene: Scene) -> int:
    (counters,) = scene.store.call(Measure(("lines/a.txt",)))
    assert counters is not None
    return counters.completed_rows


def totals(scene: Scene) -> dict[str, int]:
    found: Counter[str] = Counter()
    for line in scene.out():
        row = json.loads(line)
        found[row["word"]] = max(found[row["word"]], row["total"])
    return found


def turns_until_held(scene: Scene, source: TaskLoop) -> None:
    """Until a turn reads nothing more."""
    before = -1
    while before != (read := rows_read(scene)):
        before = read
        source.turn()


def test_a_source_without_room_blocks_and_reads_on_when_there_is_some(scene: Scene) -> None:
    store = Counted(scene.store, scene.clock)
    source = scene.task("lines", ["lines/a.txt"], store=store, waiter=store)
    turns_until_held(scene, source)
    assert 0 < rows_read(scene) < LINES
    store.calls.clear()
    scene.turns(source, 10)
    assert store.calls[Commit] == 0
    # Each turn looks once and then blocks: in a real store until it is woken, or half a second has passed.
    assert store.calls[Fetch] <= store.calls[WaitReady] == 10

    count = scene.task("count", scene.count_shards, store=store, waiter=store)
    read = [rows_read(scene)]
    while read[-1] < LINES:
        scene.turns(count, 1)
        scene.turns(source, 1)
        read.append(rows_read(scene))
        assert len(read) < LINES, "a source whose outputs were worked off goes on"
    # The last outputs come out of the outbox in some turns more.
    while totals(scene) != {"ash": LINES, "sea": LINES}:
        scene.turns(count, 1)
        read.append(LINES)
        assert len(read) < LINES
    assert len(set(read)) > 3, "it went on by and by"
