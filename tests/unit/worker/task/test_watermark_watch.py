"""A task that goes by event time looks often while watermarks move, and asks for nothing while they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.port import (
    Listen,
    Request,
    StoreUnreachable,
    TakeFacts,
    WaitReady,
    Watermark,
    WatermarkFact,
)
from penstock_worker.task.loop import WAIT_MS_MAX, TaskLoop
from penstock_worker.task.watermark_watch import CALM_US, WATERMARK_LOOK_US
from scenes.task_scene import MANIFEST, Between, Scene

CODE = """
import datetime

from pyspark.sql.streaming import StatefulProcessor


def split(line):
    word, ms = line.value.split()
    yield word, datetime.datetime.fromtimestamp(int(ms) / 1000, datetime.UTC)


class Count(StatefulProcessor):
    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timers):
        for row in rows:
            self.handle.registerTimer(int(row.at.timestamp() * 1000) + 1000)
        return []

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield (key[0], expiredTimerInfo.getExpiryTimeInMs())

    def close(self):
        pass
"""


class _Counted(Between):
    """Counts what a task asks; where `is_away`, the store is."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.store)
        self._clock = scene.clock
        self.asked: Counter[str] = Counter()
        self.is_away = False

    def call(self, call: Request[Any]) -> Any:
        self._see([call])
        answer = self._store.call(call)
        if isinstance(call, WaitReady) and not answer:
            self._clock.sleep_us(call.timeout_ms * 1000)
        return answer

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self._see(calls)
        return self._store.pipeline(calls)

    def _see(self, calls: Sequence[Request[Any]]) -> None:
        if self.is_away:
            raise StoreUnreachable("away")
        self.asked.update(type(call).__name__ for call in calls)


class Windows:
    """A task of "count", by event time, whose source is this test: `tell` says how far that is."""

    def __init__(self, folder: Path) -> None:
        self.scene = Scene(folder)
        manifest = MANIFEST.replace('outputSchema: "word string"', TIMED).replace(
            "shards: 2", "shards: 2\n    timeMode: EventTime"
        )
        (folder / "topology.yaml").write_text(manifest)
        (folder / "loop_code.py").write_text(CODE)
        self.scene.plan = compile_topology(load_topology(folder / "topology.yaml"))
        self.scene.publish(["lines/a.txt"])
        self.store = _Counted(self.scene)
        self.task: TaskLoop = self.scene.task(
            "count", self.scene.count_shards, store=self.store, waiter=self.store
        )
        self._version = 0

    def give(self, *lines: str) -> None:
        (self.scene.folder / "a.txt").write_text("".join(f"{line}\n" for line in lines))
        self.scene.turns(self.scene.task("lines", ["lines/a.txt"]))

    def tell(self, ms: int) -> None:
        self._version += 1 << 60
        fact = WatermarkFact("lines/a.txt", self._version, Watermark(ms))
        self.scene.store.call(TakeFacts("lines", (fact,)))

    def pass_us(self, us: int) -> Counter[str]:
        """What it asked in this time."""
        self.store.asked.clear()
        until_us = self.scene.clock.time_us + us
        while self.scene.clock.time_us < until_us:
            self.task.turn()
        return self.store.asked


TIMED = 'outputSchema: "word string, at timestamp"\n    eventTime: {column: at}'


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Windows:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Windows(tmp_path)


def test_a_task_without_news_asks_for_nothing_but_now_and_then(windows: Windows) -> None:
    windows.tell(1000)
    windows.pass_us(2 * CALM_US)
    asked = windows.pass_us(60_000_000)
    assert asked["Fetch"] <= 60_000_000 // (WAIT_MS_MAX * 1000) + 2
    assert asked["Listen"] == 0


def test_it_looks_often_for_as_long_as_the_watermark_moves(windows: Windows) -> None:
    windows.pass_us(2 * CALM_US)
    for ms in range(1000, 1050):
        windows.tell(ms)
        asked = windows.pass_us(WATERMARK_LOOK_US)
        assert asked["Fetch"] >= 1
        assert asked["Listen"] == 0


def test_a_watermark_after_a_long_rest_fires_timers_at_once(windows: Windows) -> None:
    windows.give("a 5000", "b 7000")
    windows.tell(1000)
    windows.pass_us(60_000_000)
    windows.tell(6001)
    assert windows.scene.store.call(WaitReady("count.ready", 1)), "nobody rings"
    windows.task.turn()
    assert windows.scene.out() == ['{"word":"a","total":6000}']


def test_a_store_that_was_away_is_listened_to_anew(windows: Windows) -> None:
    """What it was to ring for may be gone."""
    windows.pass_us(60_000_000)
    windows.store.is_away = True
    windows.task.turn()
    windows.store.is_away = False
    assert windows.pass_us(10 * CALM_US)["Listen"] == 1


def test_a_store_that_cannot_ring_is_looked_at_often(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose agent is of the version before."""
    call = windows.store.call
    monkeypatch.setattr(windows.store, "call", lambda one: not isinstance(one, Listen) and call(one))
    windows.pass_us(10 * CALM_US)
    assert windows.pass_us(1_000_000)["Fetch"] >= 1_000_000 // WATERMARK_LOOK_US - 5
