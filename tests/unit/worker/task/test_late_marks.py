"""Marks of a routing table that come when it is carried out and nobody goes by tables any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow.routing_table import (
    RoutingTable,
    bare_table,
    encode_table,
    is_carried_out,
    moved_count,
    next_table,
)
from penstock.dataflow.wire_keys import wire_router
from penstock.store.codec import decode_counts, pack
from penstock.store.port import Append, Bounds, Failures, Measure, PutTable, Request, ShardCounters
from penstock_worker.stages.control_entries import Mark, encode
from penstock_worker.task.loop import TaskLoop
from scenes.task_scene import Between, Scene
from unit.worker.task.test_dead_letters import last_totals
from unit.worker.task.test_task_loop import with_tables

SOURCE, BOTH = "lines/a.txt", ("count/0", "count/1")
ROUTE = wire_router(("string",), len(BOTH))
ASH = ("ash",)
HOME, AWAY = ROUTE(ASH), 1 - ROUTE(ASH)
FILLS = next(word for word in ("sea", "oak", "elm", "bay", "fir", "yew") if ROUTE((word,)) == HOME)
"""A word that no table names, on the shard where `ash` is at home."""


class Ended(Exception):
    """The process of a task."""


class EndsOnce(Between):
    """A task's process ends when something is so, before it says any more."""

    def __init__(self, scene: Scene, is_so: Callable[[], bool]) -> None:
        super().__init__(scene.store)
        self._is_so = is_so

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        if self._is_so():
            raise Ended
        return super().pipeline(calls)


class Slow:
    """Tasks on a node whose inboxes take one entry, first with tables; `ash` is away."""

    def __init__(self, folder: Path) -> None:
        self.scene = Scene(folder, bounds=Bounds(inbox_entries_max=1))
        self.asked_for_none = self.scene.plan
        self.scene.plan = with_tables(self.scene.plan)
        (folder / "a.txt").write_text("ash ash\n")
        self.scene.publish([SOURCE])
        self.tasks = [self.task("lines", [SOURCE]), self.task("count", BOTH)]
        self.turns()
        self.table = self.put(next_table(None, {pack(ASH): AWAY}, lambda _: HOME, [SOURCE]))
        self.turns()
        assert self.is_carried_out()

    def task(self, operator: str, shards: Sequence[str], store: Between | None = None) -> TaskLoop:
        return self.scene.task(operator, shards, ready=f"{operator}.{self.scene.clock.now_us()}", store=store)

    def put(self, table: RoutingTable) -> RoutingTable:
        self.scene.store.call(PutTable("count", table.version, encode_table(table)))
        return table

    def turns(self, count: int = 30) -> None:
        for _ in range(count):
            self.scene.clock.sleep_us(100_000)
            for task in self.tasks:
                self.scene.turns(task, 1)

    def write(self, words: str) -> None:
        path = self.scene.folder / "a.txt"
        path.write_text(path.read_text() + words + "\n")

    def counters(self, shard: str) -> ShardCounters:
        (found,) = self.scene.store.call(Measure((shard,)))
        assert found is not None
        return found

    def is_carried_out(self) -> bool:
        counts = {shard: decode_counts(self.counters(shard).counts) for shard in (*BOTH, SOURCE)}
        return is_carried_out("count", self.table, counts)

    def come_home(self) -> None:
        """The empty table is carried out, and its mark has not come where `ash` is at home: rows fill that
        inbox, and state waits for no room."""
        home = BOTH[HOME]
        self.tasks = [self.tasks[0], self.task("count", [BOTH[AWAY]])]
        self.write(FILLS)
        self.turns()
        assert self.counters(home).inbox_entries == 1
        self.table = self.put(next_table(self.table, {}, lambda _: HOME, [SOURCE]))
        self.turns()
        assert self.counters(home).inbox_entries == 2, "rows, and the key's state"
        assert self.counters(SOURCE).outbox_entries == 1, "the mark"
        self.tasks = [self.task("count", BOTH, EndsOnce(self.scene, self.is_carried_out))]
        with pytest.raises(Ended):
            self.turns()
        assert self.counters(home).inbox_entries == 1, "the mark"

    def ask_for_none(self) -> None:
        """Tasks of a manifest that asks for no tables any more, beside a bare one."""
        self.put(bare_table(self.table))
        self.scene.plan = self.asked_for_none
        self.tasks = [self.task("lines", [SOURCE]), self.task("count", BOTH)]


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Slow(tmp_path)


def test_a_mark_that_comes_behind_its_table_is_committed_away_by_a_stage_without_tables(slow: Slow) -> None:
    slow.come_home()
    slow.ask_for_none()
    slow.write("ash")
    slow.turns()
    assert slow.scene.store.call(Failures()) == {}
    assert slow.scene.waiting() == 0
    assert last_totals(slow.scene) == {"ash": 3, FILLS: 1}


def test_a_mark_of_a_table_under_way_stops_a_stage_without_tables(slow: Slow) -> None:
    """It has to begin anew, by that table."""
    slow.come_home()
    slow.ask_for_none()
    slow.turns()
    mark = encode(Mark(slow.table.version + 2, "lines/b.txt"))
    slow.scene.store.call(Append("lines/b.txt", BOTH[HOME], 1, mark, 0, slow.scene.clock.now_us()))
    slow.turns()
    found = slow.scene.store.call(Failures())
    assert list(found) == ["count"]
    assert f"{BOTH[HOME]} hears of version {slow.table.version + 2} of a routing table" in found["count"]
    assert decode_counts(slow.counters(BOTH[HOME]).counts)[moved_count("count")] == slow.table.version
