"""How long a key that changes its shard is silent: shards are woken by what they wait for. On the store's
twin, in told time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow.routing_table import RoutingTable, encode_table, moved_count, next_table
from penstock.dataflow.wire_keys import wire_router
from penstock.store.codec import decode_counts, pack
from penstock.store.port import Measure, PutTable, ReadTable, Request, ShardCounters, TableVersions, Wake
from penstock_worker.stages.receiving import OUTBOX_LOOK_US
from penstock_worker.stages.table_shelf import LOOK_US
from penstock_worker.task.loop import TaskLoop
from penstock_worker.task.tellings import ACKNOWLEDGE_US
from scenes.task_scene import Between, Scene
from unit.worker.task.test_task_loop import with_tables

SOURCE, BOTH = "lines/a.txt", ("count/0", "count/1")
WITHIN_US = min(LOOK_US, ACKNOWLEDGE_US) // 2


class WithoutTables(Between):
    """A store that lacks the newest tables, as long as `lacks` them."""

    lacks = True

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        hidden = {TableVersions: (), ReadTable: None} if self.lacks else {}
        answers = self._store.pipeline(calls)
        return [hidden.get(type(call), answer) for call, answer in zip(calls, answers, strict=True)]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.syspath_prepend(str(tmp_path))
    scene = Scene(tmp_path)
    scene.plan = with_tables(scene.plan)
    (tmp_path / "a.txt").write_text("ash sea ash\nsea ash\n")
    scene.publish([SOURCE])
    return scene


def put_table(scene: Scene) -> RoutingTable:
    """`ash` goes to the other shard."""
    route = wire_router(("string",), len(BOTH))
    key = ("ash",)
    table = next_table(None, {pack(key): 1 - route(key)}, lambda _: route(key), [SOURCE])
    scene.store.call(PutTable("count", table.version, encode_table(table)))
    return table


def counters(scene: Scene) -> list[ShardCounters]:
    return [one for one in scene.store.call(Measure(BOTH)) if one is not None]


def took_us(scene: Scene, task: TaskLoop, table: RoutingTable) -> int:
    """Turn a task until it has carried a table out."""
    began_us = scene.clock.time_us
    while not all(
        decode_counts(one.counts).get(moved_count("count"), 0) == table.version for one in counters(scene)
    ):
        assert scene.clock.time_us < began_us + 2 * WITHIN_US
        task.turn()
        scene.clock.sleep_us(OUTBOX_LOOK_US)
    return scene.clock.time_us - began_us


def test_a_shard_that_met_a_mark_before_its_table_goes_on_when_its_task_is_told(scene: Scene) -> None:
    late = WithoutTables(scene.store)
    lines, count = scene.task("lines", [SOURCE]), scene.task("count", BOTH, store=late)
    scene.turns(lines)
    scene.turns(count)
    table = put_table(scene)
    scene.store.call(Wake("lines.ready"))
    lines.turn()
    scene.clock.sleep_us(ACKNOWLEDGE_US)
    count.turn()
    assert not any(moved_count("count") in decode_counts(one.counts) for one in counters(scene))
    late.lacks = False
    scene.store.call(Wake("count.ready"))
    assert took_us(scene, count, table) < WITHIN_US


def test_a_shard_that_waits_for_its_outbox_has_its_sinks_acknowledge_at_once(scene: Scene) -> None:
    lines, count = scene.task("lines", [SOURCE]), scene.task("count", BOTH)
    scene.turns(lines)
    count.turn()
    assert any(one.outbox_entries for one in counters(scene)), "what was written is not acknowledged yet"
    table = put_table(scene)
    scene.store.call(Wake("lines.ready"))
    lines.turn()
    scene.store.call(Wake("count.ready"))
    assert took_us(scene, count, table) < WITHIN_US
