"""The figures of `make bench-omega`, what its runs may serve at once, and its resource-centric side: a pause
of whoever is upstream, in which shards change hands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from bench import omega
from bench.omega import OMEGAS, SIDES, TOKENS, WARM_UP_S, load, outcome_of, result_of
from bench.repartitioning import TOLD, RepartitioningLoop
from bench.step_figures import Rows
from bench.waiting import HELD_CHARACTERS, Tokens

from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.connectors.zipf import ZipfSource
from penstock.control.decision import Action, MoveShards, Treatment
from penstock.control.snapshot import OperatorSnapshot
from penstock.dataflow.plan import Processor
from penstock.schedule.record import OperatorSchedule
from scenes.sla_scene import Scene

TOPOLOGY = ROOT / "bench" / "topologies" / "shuffling.yaml"
START_US = 1_700_000_000_000_000
SECONDS = 12.0


def rows_of(late_ms: Sequence[float]) -> Rows:
    """All records in their order, 5 ms after they were due, and so much later each."""
    trace = load(SECONDS)
    numbers = np.arange(round(trace.total))
    ages_us = 5_000 + np.asarray(late_ms) * 1000
    at_us = (START_US + trace.due_us(numbers.astype(np.float64)) + ages_us).astype(np.int64)
    order = np.argsort(at_us, kind="stable")
    return Rows(numbers[order], np.zeros(len(numbers), np.int64), at_us[order])


# --- figures ----------------------------------------------------------------------------------------


def test_throughput_is_what_came_in_the_measured_time_and_latency_that_of_what_fell_due_in_it() -> None:
    records = round(load(SECONDS).total)
    before = round(load(SECONDS).rows_before(WARM_UP_S * 1e6))
    late_ms = np.zeros(records)
    late_ms[:before] = 200  # the warm-up's count only by when they come
    late_ms[0] = 0
    late_ms[-100:] = 10_000  # they come after the end
    found = outcome_of(rows_of(late_ms), load(SECONDS), SECONDS)
    carried = 0.2 * omega.OFFERED_PER_S
    assert found.throughput_per_s == pytest.approx((records - before + carried - 100) / SECONDS, rel=1e-3)
    assert found.mean_latency_ms == pytest.approx(10_000 * 100 / (records - before), rel=1e-3)
    assert found.p99_latency_ms == pytest.approx(10_000, rel=1e-3)
    assert len(found.per_second) == WARM_UP_S + SECONDS


def test_a_run_tells_its_pauses() -> None:
    rows = rows_of(np.zeros(round(load(SECONDS).total)))
    told = f"9:9 x: {TOLD}drained for 31 ms, paused for 240 ms\nx: {TOLD}drained for 1 ms, paused for 60 ms"
    assert outcome_of(rows, load(SECONDS), SECONDS, told).pauses_ms == (240, 60)
    assert outcome_of(rows, load(SECONDS), SECONDS).pauses_ms == ()


def test_the_last_line_has_exactly_the_keys_that_were_asked_for() -> None:
    found = outcome_of(rows_of(np.zeros(round(load(SECONDS).total))), load(SECONDS), SECONDS)
    result = result_of({at: dict.fromkeys(SIDES, found) for at in OMEGAS})
    assert result["bench"] == "omega"
    assert list(result["omega"]) == ["0", "2", "16"]
    for sides in result["omega"].values():
        assert list(sides) == ["elasticutor", "static", "resource_centric"]
        for figures in sides.values():
            assert list(figures) == ["throughput_per_s", "mean_latency_ms", "p99_ms"]
    assert json.loads(json.dumps(result)) == result


# --- what runs --------------------------------------------------------------------------------------


def test_all_tokens_together_serve_more_than_is_offered_and_a_shard_holds_32_kib() -> None:
    plan = compile_topology(load_topology(TOPOLOGY))
    source, calculator = plan.stage("records").head, plan.stage("calculator")
    assert isinstance(source, ZipfSource)
    assert isinstance(calculator.head, Processor)
    assert calculator.tasks.initial == TOKENS
    assert 1e6 / source.service_time_us == omega.TASK_PER_S
    assert omega.OFFERED_PER_S < TOKENS * omega.TASK_PER_S
    held = HELD_CHARACTERS * source.keys / calculator.head.shards
    assert held == pytest.approx(32 * 1024, rel=0.01)


def test_no_more_serve_at_once_than_there_are_tokens_and_each_is_given_back(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("0", "1")]
    for file in files:
        file.touch()
    first, second, third = (Tokens(files) for _ in range(3))
    with first.held():
        with second.held():
            assert third._free() is None
        assert third._free() is not None
    third.close()
    with second.held():
        assert first._free() is not None
    for tokens in (first, second):
        tokens.close()


# --- resource-centric -------------------------------------------------------------------------------


def swap(seen: OperatorSnapshot) -> tuple[Treatment, tuple[Action, ...]]:
    """All shards of the first executor to the second one, while it has any."""
    source, destination = (executor.name for executor in seen.executors)
    moved = tuple(shard for shard, executor in seen.assignment.items() if executor == source)
    return (
        (Treatment.REPARTITION, (MoveShards(moved, source, destination),)) if moved else (Treatment.NONE, ())
    )


class Watched:
    """The schedules of a run, version by version, with what waited at the operator when they came."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.sources: list[tuple[int, ...]] = []
        self.moves: list[tuple[bool, int]] = []
        """Of each version that gave shards to others: whether sources were paused, and entries in inboxes."""
        self._last: OperatorSchedule | None = None
        before = scene.ticks.before_wait

        def look() -> None:
            before()
            self._look()

        scene.ticks.before_wait = look

    def _look(self) -> None:
        schedules = self._scene.run._state.schedules
        tasks = tuple(executor.tasks for executor in schedules["orders"].executors)
        if not self.sources or self.sources[-1] != tasks:
            self.sources.append(tasks)
        count = schedules["count"]
        if self._last is not None and self._last.shards != count.shards:
            look = self._scene.run._watch.look()
            assert look is not None
            waiting = sum(known.inbox_entries for known in look.shards["count"] if known is not None)
            self.moves.append((not any(tasks), waiting))
        self._last = count


def test_shards_change_hands_in_a_pause_with_nothing_queued_and_no_row_is_lost(tmp_path: Path) -> None:
    scene = Scene(tmp_path, swap, loop=RepartitioningLoop)
    watched = Watched(scene)
    summary = scene.finish()
    assert watched.moves == [(True, 0)]
    assert len(watched.sources) == 3
    assert watched.sources[0] == watched.sources[2], "they have their tasks again"
    assert summary.slas[0].decisions == {"repartition": 1}
    assert sum(TOLD in event for event in scene.output.events) == 1
