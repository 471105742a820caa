"""A run that keeps a LatencySLA, whole, on the twins of store and fleet; the policy does as the test says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.control.decision import Action, AddExecutor, MoveShards, RemoveExecutor, Treatment
from penstock.control.snapshot import OperatorSnapshot
from penstock.control.target import TaskLimits
from penstock.dataflow.plan import WorkerRange
from penstock_operator.local.kept.decision_log import read_decisions
from penstock_operator.local.showing.run_summary import summary_json
from processes.orders_plan import KEYED_SHARDS, PARTITIONS
from scenes.sla_scene import RECORDS, TARGET, Scene


def scale_out(seen: OperatorSnapshot) -> tuple[Treatment, tuple[Action, ...]]:
    """From the first executor to a new one, up to four."""
    if len(seen.executors) >= 4:
        return Treatment.NONE, ()
    source = seen.executors[0].name
    moved = tuple(shard for shard, executor in seen.assignment.items() if executor == source)[:1]
    new = f"extra-{len(seen.executors)}"
    return Treatment.SCALE_OUT, (AddExecutor(new), MoveShards(moved, source, new))


def scale_in(seen: OperatorSnapshot) -> tuple[Treatment, tuple[Action, ...]]:
    """The second executor into the first, while there are two."""
    if len(seen.executors) < 2:
        return Treatment.NONE, ()
    into, out = seen.executors[0].name, seen.executors[1].name
    moved = tuple(shard for shard, executor in seen.assignment.items() if executor == out)
    return Treatment.SCALE_IN, (MoveShards(moved, out, into), RemoveExecutor(out))


def nothing(_: OperatorSnapshot) -> tuple[Treatment, tuple[Action, ...]]:
    return Treatment.NONE, ()


def test_a_scale_out_goes_on_to_the_bound_and_loses_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, scale_out)
    summary = scene.finish()
    assert [len(seen.executors) for seen in scene.policy.shown][-1] == 4
    (sla,) = summary.slas
    assert sla.decisions == {"scale-out": 2}
    assert sla.mean_tasks is not None
    assert 2 < sla.mean_tasks < 4


def test_a_scale_in_takes_the_executor_away_and_loses_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, scale_in)
    summary = scene.finish()
    assert [len(seen.executors) for seen in scene.policy.shown][-1] == 1
    assert summary.slas[0].decisions == {"scale-in": 1}


def test_every_decision_is_explained_and_told_with_what_it_brought(tmp_path: Path) -> None:
    scene = Scene(tmp_path, scale_out)
    scene.finish()
    first, second = read_decisions(tmp_path)
    assert first.actions == ("executor extra-2 with 1 task", "shard count/0 from count-w0 to extra-2")
    assert first.brought is not None
    assert first.brought.latency_us is not None
    assert first.brought.tasks >= 3
    assert first.brought.stuck == ""
    assert second.number == 2
    assert "fast: count #1 scale-out: as the test says" in scene.output.events


def test_nothing_is_decided_while_a_treatment_is_under_way(tmp_path: Path) -> None:
    scene = Scene(tmp_path, scale_out)
    scene.worker_cycle_s = 2 * TARGET.interval_us / 1e6
    scene.finish()
    shown = scene.policy.shown
    begun = next(i for i, seen in enumerate(shown) if seen.treatment)
    assert len(shown[begun].executors) == 3, "the new executor is announced"
    assert "extra-2" not in shown[begun].assignment.values()


def test_shards_move_as_soon_as_the_announced_task_is_up_and_not_at_the_next_interval(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, scale_out)
    scene.finish()
    assert scene.versions_s[3] - scene.versions_s[2] < TARGET.interval_us / 2e6


def test_a_dry_run_decides_and_shows_without_acting(tmp_path: Path) -> None:
    scene = Scene(tmp_path, scale_out, dry_run=True)
    summary = scene.finish()
    assert {len(seen.executors) for seen in scene.policy.shown} == {2}
    assert summary.slas[0].mean_tasks == 2
    assert all(record.dry_run for record in read_decisions(tmp_path))
    assert "fast: dry run: count #1 scale-out: as the test says" in scene.output.events


def test_a_decision_that_leaves_the_bounds_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, scale_out, limits=TaskLimits(1, 2))
    scene.finish()
    assert {len(seen.executors) for seen in scene.policy.shown} == {2}
    record = read_decisions(tmp_path)[0]
    assert (record.treatment, record.rule) == ("hold", "refused")
    assert "3 tasks are more than the 2 that are allowed" in record.reason


def test_a_worker_that_dies_in_the_middle_of_it_costs_no_row(tmp_path: Path) -> None:
    scene = Scene(tmp_path, scale_out, workers=2)
    for number in (5, 20, 35, 60):
        scene.steps[number] = lambda number=number: scene.fleet.die(f"w{number % 2}")  # type: ignore[misc]
    scene.finish()
    assert any("killed by SIGKILL" in event for event in scene.output.events)


def test_where_the_cores_of_a_worker_are_given_out_another_one_starts_and_takes_the_executor(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, scale_out, range_of_workers=WorkerRange(1, 2, 0, tasks_each=4))
    scene.finish()
    events = scene.output.events
    started, joined = events.index("worker w1 is warm"), events.index("warm worker w1 joins")
    assert "no worker has room for 1 more task" in read_decisions(tmp_path)[0].reason
    assert started < joined
    assert len(scene.policy.shown[-1].executors) == 4, "the last one fits where no other worker may come"


def test_a_warm_worker_takes_the_executor_without_a_start_in_between(tmp_path: Path) -> None:
    def choose(seen: OperatorSnapshot) -> tuple[Treatment, tuple[Action, ...]]:
        return scale_out(seen) if scene.ticks.waits > 20 else nothing(seen)

    scene = Scene(tmp_path, choose, range_of_workers=WorkerRange(1, 2, 1, tasks_each=4))
    scene.finish()
    first = read_decisions(tmp_path)[0]
    assert first.treatment == "scale-out"
    assert "warm worker w1 joins" in scene.output.events


def test_while_a_worker_is_away_nothing_is_decided_and_it_is_said(tmp_path: Path) -> None:
    scene = Scene(tmp_path, nothing, workers=2)
    scene.steps[12] = lambda: scene.fleet.die("w1")
    scene.finish()
    held = [line for status in scene.output.statuses for line in status.slas if "Held" in line.conditions]
    assert held
    assert held[0].conditions["Held"] == "worker w1 is not ready"
    assert any(seen.treatment for seen in scene.policy.shown)


def test_samples_count_what_the_shards_did(tmp_path: Path) -> None:
    scene = Scene(tmp_path, nothing)
    scene.finish()
    samples = [sample for sample in scene.policy.shown[-1].samples.values() if sample is not None]
    assert len(samples) == KEYED_SHARDS
    assert sum(sample.arrived for sample in samples) == RECORDS * PARTITIONS
    assert all(executor.tasks_ready == 1 for executor in scene.policy.shown[-1].executors)


def test_view_and_summary_tell_target_latency_and_success(tmp_path: Path) -> None:
    scene = Scene(tmp_path, scale_out)
    summary = scene.finish()
    line = scene.output.statuses[-1].slas[0]
    assert (line.name, line.about, line.bound_ms) == ("fast", "count", 250.0)
    assert line.success == pytest.approx(1.0)
    assert line.last_decision == "count: scale-out, as the test says"
    told = json.loads(summary_json(summary))["slas"]["fast"]
    assert told["success_rate"] == pytest.approx(1.0)
    assert told["timeline"][-1]["tasks"] == 4
    assert told["mean_executors"] == pytest.approx(told["mean_tasks"])
