"""A run that keeps a LatencySLA, whole, on the twins of store and fleet; the policy does as the test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fleet_harness import launch_of
from penstock.control.decision import (
    Action,
    AddExecutor,
    Decision,
    Health,
    MoveShards,
    Prediction,
    RemoveExecutor,
    Treatment,
)
from penstock.control.sla_scope import Promise
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.streamswitch.treat import single_tasks
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.dataflow.plan import WorkerRange
from penstock.schedule.placement import initial_schedules
from penstock.schedule.record import WorkerPlace
from penstock.store.memory_node import MemoryNode
from penstock.store.memory_store import MemoryStore
from penstock.store.port import Bounds, Create, OpenStore
from penstock_operator.local.decision_log import DecisionLog, read_decisions
from penstock_operator.local.local_run import LocalRun
from penstock_operator.local.run_state import Result, RunState, StartWorker, WorkerCare, worker_uid
from penstock_operator.local.run_status import RunEvent, RunStatus
from penstock_operator.local.run_summary import RunSummary, summary_json
from penstock_operator.memory_fleet import MemoryFleet
from penstock_operator.sla.loop import SlaLoop
from stand_in_run import PARTITIONS, expected_names, orders_plan
from stand_in_workers import KEYED_SHARDS, StandInWorkers

RECORDS = 60
TARGET = LatencyTarget(latency_us=250_000, window_us=500_000, alert_us=100_000, interval_us=100_000)

Choose = Callable[[OperatorSnapshot], tuple[Treatment, tuple[Action, ...]]]


class Scripted:
    """A policy that decides as `choose` says, and keeps the snapshots that it was shown."""

    name = "Scripted"

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self.shown: list[OperatorSnapshot] = []

    def decide(self, snapshot: TopologySnapshot) -> tuple[Decision, ...]:
        seen = snapshot.operators["count"]
        self.shown.append(seen)
        treatment, actions = (Treatment.NONE, ()) if seen.treatment else self._choose(seen)
        expected = Prediction(1_000.0, 2) if actions else None
        return (
            Decision(
                snapshot.at_us, self.name, "count", treatment, "script", "as the test says", Health.MODERATE,
                actions, expected=expected,
            ),
        )  # fmt: skip


class Ticks:
    """Time passes by waiting, and at each wait the workers take a turn."""

    interrupts = 0

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.waits = 0
        self.at_wait: Callable[[int], None] = lambda _: None
        self.before_wait: Callable[[], None] = lambda: None

    def now_s(self) -> float:
        return self.passed_s

    def now_us(self) -> int:
        return int(1e15 + self.passed_s * 1e6)

    def wait(self, seconds: float) -> None:
        self.before_wait()
        self.passed_s += seconds
        self.waits += 1
        assert self.waits < 5_000, "the run does not end"
        self.at_wait(self.waits)


class Output:
    tick_s = 0.0

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.events: list[str] = []
        self.statuses: list[RunStatus] = []

    def show(self, status: RunStatus) -> None:
        self.statuses.append(status)

    def tell(self, event: RunEvent) -> None:
        self.events.append(event.text)

    def rows(self, lines: list[str]) -> None:
        self.lines.extend(lines)

    def end(self, summary: RunSummary) -> None:
        """The tests look at the summary themselves."""

    def close(self) -> None:
        """Nothing is held."""


class Keeper:
    restarts = 0

    def keep(self) -> str:
        return ""


class Scene:
    """Workers w0, ...; every executor of `count` has one task. `limits` are those of the SLA."""

    def __init__(
        self,
        folder: Path,
        choose: Choose,
        workers: int = 1,
        limits: TaskLimits = TaskLimits(1, 4),  # noqa: B008 - frozen
        *,
        dry_run: bool = False,
        range_of_workers: WorkerRange = WorkerRange(),  # noqa: B008 - frozen
    ) -> None:
        self.folder = folder
        plan = replace(orders_plan(RECORDS), workers=range_of_workers)
        node = MemoryNode()
        store = MemoryStore(node, "t", Bounds())
        store.call(OpenStore("local"))
        shards = {
            "orders": [f"orders/{n}" for n in range(PARTITIONS)],
            "count": [f"count/{n}" for n in range(KEYED_SHARDS)],
        }
        for operator, names in shards.items():
            for name in names:
                store.call(Create(name, source=operator == "orders"))
        self.ticks = Ticks()
        self.fleet = MemoryFleet(self.ticks.now_s)
        self.workers = StandInWorkers(self.fleet, MemoryStore(node, "t", Bounds()), RECORDS, "count", "shown")
        self.ticks.at_wait = self._at_wait
        self.ticks.before_wait = self._before_wait
        self.worker_cycle_s = 0.0
        self._turned_s = 0.0
        self.steps: dict[int, Callable[[], None]] = {}
        self.versions_s: dict[int, float] = {}
        """When each version of count's schedule was first there."""
        self.output = Output()
        self.policy = Scripted(choose)
        cares = {
            name: WorkerCare(name, worker_uid("run", name, 0)) for name in (f"w{n}" for n in range(workers))
        }
        schedules = initial_schedules(
            plan,
            shards,
            [WorkerPlace(care.name, "local", "local", care.uid) for care in cares.values()],
            {"local": "local"},
        )
        schedules["count"] = replace(single_tasks(schedules["count"], set()), version=1)
        promise = Promise(
            "fast", "count", "Scripted", 250_000, 500_000, 100_000, dry_run,
            Scope({"count": TARGET}, {"count": limits}),
        )  # fmt: skip
        self.run = LocalRun(
            RunState(plan, "run", "local", cares, schedules),
            shards,
            store,
            Keeper(),
            self.fleet,
            self._launch,
            self.output,
            self.ticks,
            slas=[SlaLoop(promise, self.policy, shards, (), DecisionLog(folder))],
        )

    def _launch(self, start: StartWorker) -> None:
        launch = launch_of(start.worker, start.attempt)
        self.workers.launch(launch.model_copy(update={"uid": start.uid}))

    def _at_wait(self, number: int) -> None:
        if number in self.steps:
            self.steps[number]()
        if self.ticks.passed_s - self._turned_s >= self.worker_cycle_s:
            self._turned_s = self.ticks.passed_s
            self.workers.turn(self.ticks.now_us())

    def _before_wait(self) -> None:
        self.versions_s.setdefault(self.run._state.schedules["count"].version, self.ticks.passed_s)

    def printed(self) -> list[str]:
        return sorted(json.loads(line)["name"] for line in self.output.lines)

    def finish(self) -> RunSummary:
        """Run to the end: whatever was decided, no row is lost or printed twice."""
        summary = self.run.run()
        assert summary.result is Result.FINISHED
        assert self.printed() == expected_names(RECORDS)
        return summary


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
    assert held[0].conditions["Held"] == "worker w1 is not up"
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
