"""A small topology and its supervision in memory, for the tests of `penstock run`'s decisions."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from backends.fleet_harness import launch_of
from penstock.connectors.files import FilesSource, JsonlSink
from penstock.dataflow.plan import Fanout, KeyedEdge, Plan, Processor, Stage, Step, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.metrics.rows import WorkerRow
from penstock.schedule.record import OperatorSchedule, WorkerPlace
from penstock_operator.fleet.port import FleetWorker, WorkerState
from penstock_operator.local.run_decisions import begin, decide
from penstock_operator.local.run_placement import first_schedules
from penstock_operator.local.run_state import (
    Action,
    Backlog,
    Decision,
    PublishSchedules,
    RunState,
    Say,
    Seen,
    StartSparkWorker,
    StartWorker,
    StopWorker,
    WorkerCare,
    worker_uid,
)
from penstock_simulation.twins.memory_fleet import MemoryFleet

SHARDS = 8
TOKEN = "run"
WORD = Schema((Column("word", "string"),))
LINE = Schema((Column("value", "string"),))


def word_count_plan(shards: int = SHARDS) -> Plan:
    """lines (files) -> words (step) -> count (keyed) -> totals (files)."""
    words = Step("words", "word_count:split", Fanout(WORD, (), (), (KeyedEdge("count", (0,), shards),)))
    lines = Stage(
        "lines",
        FilesSource("texts/*.txt", "text", None),
        Tasks(1, 4, 1),
        Fanout(LINE, (words,), (), ()),
    )
    count = Stage(
        "count",
        Processor("word_count:Count", WORD, (0,), shards),
        Tasks(1, 8, 2),
        Fanout(
            Schema((Column("word", "string"), Column("total", "bigint"))),
            (),
            (JsonlSink("totals", "out/"),),
            (),
        ),
    )
    return Plan("word-count", "word_count", "Process", 2, 1 << 31, (lines, count))


def shards_of_word_count() -> dict[str, list[str]]:
    return {
        "lines": ["lines/a.txt", "lines/b.txt"],
        "count": [f"count/{part}" for part in range(SHARDS)],
    }


class RunScene:
    """Workers in a `MemoryFleet`; what the store would say is set by hand."""

    def __init__(
        self, workers: int, time_limit_s: float | None = None, *, remote_tasks: bool = False
    ) -> None:
        self.now_s = 0.0
        self.fleet = MemoryFleet(lambda: self.now_s)
        names = [f"w{number}" for number in range(workers)]
        cares = {name: WorkerCare(name, worker_uid(TOKEN, name, 0)) for name in names}
        plan = replace(word_count_plan(), remote_tasks=remote_tasks)
        schedules = first_schedules(
            plan,
            shards_of_word_count(),
            [WorkerPlace(care.name, "local", "local", care.uid) for care in cares.values()],
        )
        self.state = RunState(plan, TOKEN, "local", cares, schedules, time_limit_s)
        self.rows: dict[str, WorkerRow] | None = {}
        self.backlog: Backlog | None = Backlog(1, 0, 1, 0, sources_finished=False)
        self.failures: dict[str, str] | None = {}
        self.interrupts = 0
        self.store_fault = ""
        self.published: dict[str, OperatorSchedule] = {}
        self.said: list[str] = []
        self.started: list[tuple[str, str, int]] = []
        self.joined: list[StartSparkWorker] = []
        self._carry_out(begin(self.state))

    def turn(self, seconds: float = 0.0) -> tuple[Action, ...]:
        """Let time pass, look, decide, carry out."""
        self.now_s += seconds
        seen = Seen(
            self.fleet.workers(), self.rows, self.backlog, self.failures, self.interrupts, self.store_fault
        )
        decision = decide(self.state, seen, self.now_s)
        self._carry_out(decision)
        return decision.actions

    def ready(self, worker: str, state: str = "ready", message: str = "", tasks: int = 1) -> None:
        """The worker's current start reports its state and how many tasks run."""
        care = self.state.workers[worker]
        assert self.rows is not None
        self.rows[worker] = WorkerRow(
            worker, care.uid, care.attempt, 1, state, message, 0, self.tasks_of(worker, tasks)
        )
        if self.state.plan.remote_tasks:
            master = f"spark://{care.uid}:7077"
            self.rows[worker] = msgspec.structs.replace(self.rows[worker], spark_master=master)

    def tasks_of(self, worker: str, tasks: int) -> dict[str, int]:
        """`tasks` tasks in each executor that the schedules give the worker."""
        return {
            executor.name: tasks
            for schedule in self.state.schedules.values()
            for executor in schedule.executors
            if executor.worker == worker
        }

    def all_ready(self) -> None:
        for worker in self.state.workers:
            self.ready(worker)
        self.turn()

    def work(self) -> None:
        """Some shard commits."""
        assert self.backlog is not None
        self.backlog = replace(self.backlog, commits=self.backlog.commits + 1)

    def shards_on(self, worker: str) -> set[str]:
        """By the schedules as published."""
        return {
            shard
            for schedule in self.published.values()
            for shard, place in schedule.shards.items()
            if any(e.name == place.executor and e.worker == worker for e in schedule.executors)
        }

    def uid_of(self, worker: str) -> set[str]:
        return {w.uid for schedule in self.published.values() for w in schedule.workers if w.name == worker}

    def living(self) -> dict[str, FleetWorker]:
        return {w.worker: w for w in self.fleet.workers() if w.state is not WorkerState.ENDED}

    def _carry_out(self, decision: Decision) -> None:
        self.state = decision.state
        for action in decision.actions:
            match action:
                case PublishSchedules(schedules):
                    for schedule in schedules:
                        known = self.published.get(schedule.operator)
                        assert known is None or schedule.version > known.version
                        self.published[schedule.operator] = schedule
                case StartWorker(worker, uid, attempt):
                    assert self.uid_of(worker) == {uid}, "a worker must be named before it enrols"
                    self.started.append((worker, uid, attempt))
                    self.fleet.start(launch_of(worker, attempt).model_copy(update={"uid": uid}))
                case StartSparkWorker(name, attempt):
                    self.joined.append(action)
                    self.fleet.start(launch_of(name, attempt))
                case StopWorker(worker, grace_s):
                    self.fleet.stop(worker, grace_s)
                case Say(text):
                    self.said.append(text)
