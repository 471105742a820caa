"""Only a clock that is never set decides anything: the node's steady clock, and what goes by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clocks.turned_wall import HOUR_US, TurnedWall
from penstock.metrics.heard_rows import SKEW_US_MAX, HeardRows
from penstock.metrics.rows import WorkerRow, clock_row_name, pack, worker_row_name
from penstock.store.codec import encode_batch
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.node_clock import KEPT_US, HeardClock, SteadyClock
from penstock.store.port import Answer, Append, Bounds, Measure, OpenStore, PutMetrics, ReadMetrics
from penstock_worker.sources.pace import pace_of
from scenes.task_scene import CODE, Scene


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore(MemoryNode(), "t", Bounds())
    store.call(OpenStore("n1"))
    return store


def spoke(store: MemoryStore, at_us: int) -> None:
    row = WorkerRow("w0", "u", 0, 1, "ready", "", at_us, {})
    store.call(PutMetrics(((worker_row_name("w0"), pack(row)),)))


@pytest.mark.parametrize("step_us", [HOUR_US, -HOUR_US])
def test_a_step_of_the_wall_clock_changes_no_time_that_decides(step_us: int) -> None:
    clock = TurnedWall()
    before_us = clock.now_us()
    clock.ahead_us = step_us
    clock.sleep_us(7)
    assert clock.now_us() - before_us == 7
    assert clock.wall_us() == before_us + 7 + step_us


def test_a_process_that_starts_after_the_step_tells_the_time_of_those_before(store: MemoryStore) -> None:
    first = TurnedWall()
    first.share(store)
    spoke(store, first.now_us())
    second = TurnedWall(passed_us=9_000_000, ahead_us=-HOUR_US)
    assert second.now_us() - first.now_us() == 9_000_000 - HOUR_US
    second.share(store)
    assert second.now_us() - first.now_us() == 9_000_000


def test_a_clock_that_was_set_is_taken_once_the_topology_has_rested_at_the_node(store: MemoryStore) -> None:
    first = TurnedWall()
    first.share(store)
    spoke(store, first.now_us())
    later = TurnedWall(passed_us=KEPT_US, ahead_us=HOUR_US)
    later.share(store)
    assert later.now_us() == later.wall_us()
    spoke(store, later.now_us())
    third = TurnedWall(passed_us=KEPT_US)
    third.share(store)
    assert third.now_us() == later.now_us()


def test_who_has_no_part_in_a_topology_tells_its_time_and_lays_no_anchor(store: MemoryStore) -> None:
    wall = TurnedWall(ahead_us=-HOUR_US)
    heard = HeardClock(wall, look_every_us=10)
    alone_us = heard.now_us(store)
    assert store.call(ReadMetrics()) == {}
    worker = TurnedWall()
    worker.share(store)
    assert heard.now_us(store) == alone_us
    wall.sleep_us(10)
    worker.sleep_us(10)
    assert heard.now_us(store) == worker.now_us() == alone_us + 10 + HOUR_US


def test_a_task_goes_by_its_workers_anchor_but_not_on_another_machine() -> None:
    worker = TurnedWall()
    worker.ahead_us = HOUR_US
    assert TurnedWall(worker.anchor).now_us() == worker.now_us()
    assert TurnedWall(worker.anchor, boot="another").anchor.boot == "another"


def test_two_processes_of_this_machine_have_one_time() -> None:
    here = SteadyClock()
    there = SteadyClock(here.anchor)
    assert here.now_us() <= there.now_us() <= here.now_us()


def test_a_pace_neither_hurries_nor_stops_when_the_wall_clock_is_set() -> None:
    clock = TurnedWall()
    pace = pace_of(100.0, 4, 0, 0, clock.now_us())
    clock.sleep_us(60_000_000)
    due = pace.due_rows(0, clock.now_us())
    for step_us in (HOUR_US, -HOUR_US):
        clock.ahead_us = step_us
        clock.sleep_us(40_000)
        assert pace.due_rows(due, clock.now_us()) == 1
        due += 1


def test_sinks_are_acknowledged_while_the_wall_clock_is_an_hour_back(tmp_path: Path) -> None:
    class NoWait:
        def call(self, call: object) -> bool:
            return True

        def close(self) -> None: ...

    scene = Scene(tmp_path, shards=1)
    clock = TurnedWall()
    scene.clock = clock  # type: ignore[assignment]
    (tmp_path / "a.txt").write_text("x\n")
    scene.publish(("lines/a.txt",))
    task = scene.task("count", scene.count_shards, waiter=NoWait())
    scene.turns(task, 3)
    clock.ahead_us = -HOUR_US
    for number in range(1, 200):
        stamp_us = clock.now_us()
        entry = Append("up/0", "count/0", number, encode_batch([stamp_us], [("w",)]), 1, stamp_us)
        assert scene.store.call(entry) is Answer.OK
        scene.turns(task, 1)
        clock.sleep_us(60_000)
    counters = scene.store.call(Measure(("count/0",)))[0]
    assert counters is not None
    assert counters.outbox_entries < 10


def test_user_code_is_told_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    told = CODE.replace("yield (key[0], total)", "yield (key[0], timers.getCurrentProcessingTimeInMs())")
    scene = Scene(tmp_path)
    (tmp_path / "loop_code.py").write_text(told)
    clock = TurnedWall()
    scene.clock = clock  # type: ignore[assignment]
    (tmp_path / "a.txt").write_text("x\n")
    scene.publish(("lines/a.txt",))
    scene.turns(scene.task("lines", ("lines/a.txt",)))
    clock.ahead_us = HOUR_US
    scene.turns(scene.task("count", scene.count_shards))
    assert [json.loads(line)["total"] for line in scene.out()] == [clock.wall_us() // 1000]


def test_a_row_is_as_old_as_its_last_change_by_the_readers_clock() -> None:
    heard = HeardRows()
    assert heard.at_us("task:a", b"1", said_us=90, now_us=100) == 90
    assert heard.at_us("task:b", b"1", said_us=100 + HOUR_US, now_us=100) == 0
    assert heard.at_us("task:c", b"1", said_us=100 + SKEW_US_MAX, now_us=100) == 100
    heard.looked(["task:a", "task:b"])
    assert heard.at_us("task:a", b"1", said_us=90, now_us=200) == 90
    assert heard.at_us("task:b", b"2", said_us=200 + HOUR_US, now_us=200) == 200
    assert heard.at_us("task:c", b"1", said_us=5, now_us=200) == 200


def test_a_row_of_the_clock_that_is_none_is_no_anchor() -> None:
    """User code may have written it; who reads it delivers for the topology."""
    store = MemoryStore(MemoryNode(), "t1", Bounds())
    store.call(OpenStore("s1"))
    store.call(PutMetrics(((clock_row_name("boot"), b"\xc1"), ("worker:w1", b"\xc1"))))
    clock = SteadyClock(boot="boot", monotonic_ns=lambda: 0, wall_ns=lambda: 5_000)
    clock.hear(store)
    assert clock.now_us() == 5
    clock.share(store)
    assert clock.now_us() == 5
