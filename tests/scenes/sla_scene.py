"""A run that keeps a LatencySLA, whole, on the twins of store and fleet; the policy does as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from backends.fleet_harness import launch_of
from penstock.control.decision import Action, Health, PolicyDecision, Prediction, Treatment
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.dataflow.plan import WorkerRange
from penstock.schedule.record import WorkerPlace
from penstock.sla.loop import SlaLoop
from penstock.sla.promise import Promise
from penstock.sla.treatment import single_tasks
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, OpenStore
from penstock_operator.local.kept.decision_log import DecisionLog
from penstock_operator.local.local_run import LocalRun
from penstock_operator.local.run_placement import first_schedules
from penstock_operator.local.run_state import Result, RunState, StartWorker, WorkerCare, worker_uid
from penstock_operator.local.showing.run_summary import RunSummary
from penstock_simulation.twins.memory_fleet import MemoryFleet
from processes.orders_plan import expected_names, orders_plan
from scenes.scripted_run import Keeper, Recorder, ScriptedTicks, orders_shards
from worlds.fleet_workers import FleetWorkers

RECORDS = 60
TARGET = LatencyTarget(latency_us=250_000, window_us=500_000, alert_us=100_000, interval_us=100_000)

Choose = Callable[[OperatorSnapshot], tuple[Treatment, tuple[Action, ...]]]


class Scripted:
    """A policy that decides as `choose` says, and keeps the snapshots that it was shown."""

    name = "Scripted"

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self.shown: list[OperatorSnapshot] = []

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        seen = snapshot.operators["count"]
        self.shown.append(seen)
        treatment, actions = (Treatment.NONE, ()) if seen.treatment else self._choose(seen)
        expected = Prediction(1_000.0, 2) if actions else None
        return (
            PolicyDecision(
                snapshot.at_us, self.name, "count", treatment, "script", "as the test says", Health.MODERATE,
                actions, expected=expected,
            ),
        )  # fmt: skip


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
        loop: type[SlaLoop] = SlaLoop,
    ) -> None:
        self.folder = folder
        plan = replace(orders_plan(RECORDS), workers=range_of_workers)
        node = MemoryNode()
        store = MemoryStore(node, "t", Bounds())
        store.call(OpenStore("local"))
        shards = orders_shards(store)
        self.ticks = ScriptedTicks()
        self.fleet = MemoryFleet(self.ticks.now_s)
        self.workers = FleetWorkers(self.fleet, node, plan, RECORDS, self.ticks.now_us)
        self.ticks.at_wait = self._at_wait
        self.ticks.before_wait = self._before_wait
        self.worker_cycle_s = 0.0
        self._turned_s = 0.0
        self.steps: dict[int, Callable[[], None]] = {}
        self.versions_s: dict[int, float] = {}
        """When each version of count's schedule was first there."""
        self.output = Recorder(tick_s=0.0)
        self.policy = Scripted(choose)
        cares = {
            name: WorkerCare(name, worker_uid("run", name, 0)) for name in (f"w{n}" for n in range(workers))
        }
        schedules = first_schedules(
            plan,
            shards,
            [WorkerPlace(care.name, "local", "local", care.uid) for care in cares.values()],
        )
        schedules["count"] = single_tasks(schedules["count"], set())
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
            slas=[loop(promise, self.policy, shards, (("orders", "count"),), DecisionLog(folder))],
        )

    def _launch(self, start: StartWorker) -> None:
        launch = launch_of(start.worker, start.attempt)
        self.workers.launch(launch.model_copy(update={"uid": start.uid}))

    def _at_wait(self, number: int) -> None:
        if number in self.steps:
            self.steps[number]()
        if self.ticks.passed_s - self._turned_s >= self.worker_cycle_s:
            self._turned_s = self.ticks.passed_s
            self.workers.turn()

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
