"""The worker's main process: one session, and the executors that the schedule assigns to it.

Every cycle (the control stream's message, a task that ended, or T_W = 300 ms) it reads its
assignment from its node's store, compares it with what runs (thread-level update, N-Storm III.C),
starts and retires resident tasks, and every 0.5 s balances the shards of each executor over
its tasks (Elasticutor 3.1). It decides nothing else, and nothing waits for it: while it is away, tasks go on.

In a cluster it outlives what ends a local worker, since its pod would only start it again: without a store,
or while the schedule names another start of it, it runs nothing and asks again. Only where a start again is
what helps does it end: a later start of this very pod has come in between, and is silent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.dataflow.plan import Plan, Processor
from penstock.errors import PenstockError
from penstock.metrics.heard_rows import HeardRows
from penstock.metrics.rows import ShardRow, TaskRow, unpack, worker_row_name
from penstock.schedule.diff import update
from penstock.store.failure_names import failures_of
from penstock.store.port import (
    Answer,
    AssignedExecutor,
    Assignment,
    Bounds,
    Enroll,
    Failures,
    MintStart,
    NodeStore,
    Owner,
    ReadMetrics,
    SetTasks,
    StoreUnreachable,
    TableVersions,
    Tasks,
    Wake,
    WorkerAssignment,
)
from penstock_worker.main_process.resident_task import ResidentTask, TaskStarter
from penstock_worker.main_process.running_executor import RunningExecutor
from penstock_worker.main_process.shard_loads import ShardLoads
from penstock_worker.main_process.source_announcer import SourceAnnouncer
from penstock_worker.main_process.vitals import Vitals
from penstock_worker.main_process.worker_report import WorkerReport
from penstock_worker.process.clock import Clock
from penstock_worker.task.launch import TaskLaunch

_LOG = logging.getLogger(__name__)

WORKER_CYCLE_S = 0.3
"""T_W of N-Storm: the safety net under the control stream."""
STARTING_CYCLE_S = 0.02
"""While a task starts, its shards wait for the map that names it."""
BALANCE_US = 500_000
REPORT_US = 1_000_000
RETIRE_US_MAX = 5_000_000
SUCCESSOR_SILENT_US_MAX = 30_000_000
"""A start that works writes its worker's row every second."""


class Replaced(Exception):
    """The schedule names another start of this worker, or none: there is nothing to do here any more."""


class SuccessorSilent(Replaced):
    """The later start of this pod is gone, and this one's number is behind it for good: the pod's next start
    comes before both."""


class MainProcess:
    """`store` is the main thread's connection; `resident` starts and ends tasks. It has `ended` soon after
    `request_stop`. A local worker raises Replaced, or what the store's first call raises; one in a cluster
    raises SuccessorSilent alone."""

    def __init__(
        self,
        launch: WorkerLaunch,
        plan: Plan,
        store: NodeStore,
        resident: TaskStarter,
        report: WorkerReport,
        clock: Clock,
        vitals: Vitals,
        announcer: SourceAnnouncer | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    ) -> None:
        self._launch = launch
        self._plan = plan
        self._store = store
        self._resident = resident
        self._report = report
        self._clock = clock
        self._vitals = vitals
        self._announcer = announcer
        self._bounds = bounds
        self._stays = launch.runtime == "cluster"
        self._start = 0
        self._enrolled = False
        self._resting = ""
        self._successor = HeardRows()
        self._executors: dict[str, RunningExecutor] = {}
        self._assigned: dict[str, AssignedExecutor] = {}
        self._loads = ShardLoads()
        self._routed = tuple(
            stage.operator
            for stage in plan.stages
            if isinstance(stage.head, Processor) and stage.head.locality
        )
        """Operators whose keys may go by tables,"""
        self._tables: list[tuple[int, ...]] = [() for _ in self._routed]
        """and the versions of these that tasks were told of."""
        self._starts = 0
        self._balance_us = 0
        self._report_us = 0
        self._stopping = False
        self._leave_by_us: int | None = None
        self.ended = False

    def request_stop(self) -> None:
        """From a signal handler: retire all tasks, then end."""
        self._stopping = True

    def run(self, wait: Callable[[float], object]) -> None:
        """Until it has ended. `wait` waits for something new, for so many seconds at most."""
        while not self.ended:
            wait(self.step())

    def step(self) -> float:
        """One round; answers after how many seconds the next one is due if nothing is new before."""
        if self._stopping:
            self._leave()
            return 0.0 if self.ended else STARTING_CYCLE_S
        self.turn()
        self._vitals.turned()
        starting = any(executor.starting for executor in self._executors.values())
        return STARTING_CYCLE_S if starting else WORKER_CYCLE_S

    def turn(self) -> None:
        """Enrol where that is still to be done, and go through one cycle."""
        try:
            if not self._enrolled:
                self._enroll()
            self._cycle()
        except Replaced as replaced:
            if not self._stays or isinstance(replaced, SuccessorSilent):
                raise
            self._rest(str(replaced))
        except StoreUnreachable as error:
            if not (self._enrolled or self._stays):
                raise
            self._miss(error)
        except PenstockError as error:
            # The agent may be about to load the library, or somebody to mend a login.
            if not self._stays:
                raise
            self._miss(error)
        else:
            self._resting = ""
            self._vitals.worked()

    def _enroll(self) -> None:
        launch = self._launch
        answer: int | Answer = self._start
        if not self._start:
            # Once in its life: one that another start has replaced must not come before that again.
            answer = self._store.call(MintStart(launch.worker))
        if isinstance(answer, int):
            self._start = answer
            answer = self._store.call(Enroll(launch.worker, launch.uid, self._start, launch.attempt))
        if answer is not Answer.OK:
            why = f"enrolling worker {launch.worker} was answered {answer}"
            if self._stays and self._is_successor_silent():
                raise SuccessorSilent(f"{why}, and the start that came after this one is silent")
            raise Replaced(why)
        self._clock.share(self._store)
        self._enrolled = True
        _LOG.info("enrolled as %s", self._incarnation)

    def _is_successor_silent(self) -> bool:
        """Another start of this pod is enrolled, and has not written the worker's row for long."""
        name = worker_row_name(self._launch.worker)
        assignment, rows = self._store.pipeline([Assignment(self._launch.worker), ReadMetrics()])
        if assignment.retracted or assignment.uid not in {"", self._launch.uid}:
            return False
        now_us = self._clock.monotonic_us()
        heard_us = self._successor.at_us(name, rows.get(name, b""), now_us, now_us)
        return now_us - heard_us > SUCCESSOR_SILENT_US_MAX

    def _miss(self, error: PenstockError) -> None:
        """A turn without the store: tasks go on by what they know."""
        if str(error) != self._resting:
            _LOG.warning("store away: %s", error)
        self._resting = str(error)
        if not self._enrolled:
            self._vitals.resting(self._resting)

    def _rest(self, why: str) -> None:
        """Run nothing, and go on asking: this start may be the one that is named next."""
        if why != self._resting:
            _LOG.warning("resting: %s", why)
        self._resting = why
        self._vitals.resting(why)
        self._enrolled = False
        self._assigned = {}
        now_us = self._clock.monotonic_us()
        for executor in self._executors.values():
            executor.stop()
            executor.turn(now_us, set(), {})
        self._forget_idle()

    @property
    def _incarnation(self) -> str:
        return f"{self._launch.uid}/{self._start}/{self._launch.attempt}"

    # --- one cycle ------------------------------------------------------------------------------

    def _cycle(self) -> None:
        now_us = self._clock.monotonic_us()
        assignment, failures, rows, *tables = self._store.pipeline(
            [
                Assignment(self._launch.worker),
                Failures(),
                ReadMetrics(),
                *(TableVersions(operator) for operator in self._routed),
            ]
        )
        self._follow(assignment, failures_of(failures, self._launch.template))
        if self._announcer is not None:
            self._announcer.under(assignment.generation)
        tasks, shard_rows = self._own_rows(rows)
        self._loads.observe(shard_rows, now_us)
        balancing = now_us >= self._balance_us
        if balancing:
            self._balance_us = now_us + BALANCE_US
        up = {row.ready for row in tasks}
        busy_share = 0.0
        for name, executor in self._executors.items():
            loads = self._loads.last_second(self._shards_of(name), now_us)
            executor.turn(now_us, up, loads, balance=balancing)
            if self._may_grow(executor.operator):
                busy_share = max(busy_share, executor.busy_share(loads))
        self._tell_tasks()
        self._tell_of_tables(tables)
        self._resident.prepare(busy_share)
        self._forget_idle()
        if now_us >= self._report_us:
            self._report_us = now_us + REPORT_US
            self._tell_others(tasks)

    def _may_grow(self, operator: str) -> bool:
        """Whether another task of an operator may come to this worker, and find a shard there."""
        here = [executor for executor in self._assigned.values() if executor.operator == operator]
        shards = sum(len(executor.shards) for executor in here)
        return sum(executor.tasks for executor in here) < min(self._plan.stage(operator).tasks.max, shards)

    def _forget_idle(self) -> None:
        for name in [name for name, executor in self._executors.items() if executor.idle]:
            if name not in self._assigned:
                del self._executors[name]

    def _follow(self, assignment: WorkerAssignment, failures: dict[str, str]) -> None:
        """Bring the set of executors to the assignment; operators that failed run nothing."""
        # One that nobody names is warm: in a cluster it enrols first, and the schedules follow.
        named = assignment.uid or (self._launch.uid if self._stays else "")
        if named != self._launch.uid and not assignment.retracted:
            raise Replaced("the schedule names another start of this worker")
        assigned = {executor.executor: executor for executor in assignment.executors}
        change = update(self._assigned, assigned, topology_gone=assignment.retracted)
        if change.turn_off:
            raise Replaced("the topology is gone")
        if change:
            _LOG.info("schedule: %s", change)
        self._assigned = assigned
        for name in change.start:
            # One that was stopped a moment ago may still have tasks that leave.
            if name not in self._executors:
                self._executors[name] = self._new_executor(assigned[name])
        for name, executor in self._executors.items():
            now = assigned.get(name)
            if now is None or executor.operator in failures:
                executor.stop()
            else:
                executor.assign(now.tasks, now.shards, now.remote)

    def _new_executor(self, executor: AssignedExecutor) -> RunningExecutor:
        stage = self._plan.stage(executor.operator)

        def start(index: int, node: str) -> ResidentTask:
            self._starts += 1
            ready = f"{executor.executor}.{index}.{self._starts}.{self._incarnation}"
            return self._resident.start(
                TaskLaunch(
                    topology_uid=self._launch.topology_uid,
                    store_url=(node and self._launch.remote_store_url) or self._launch.store_url,
                    worker=self._launch.worker,
                    owner=Owner(executor.executor, self._incarnation, ready),
                    task=index,
                    stage=stage,
                    base_dir=self._launch.base_dir,
                    durable=self._plan.durability != "Process",
                    bounds=self._bounds,
                    template=self._launch.template,
                    prints=self._stays,
                    node=node,
                    careful=self._has_crashed(stage.operator),
                    topology=self._plan.topology,
                    anchor=self._clock.anchor,
                    poison=made.poison,
                )
            )

        resident = self._resident
        made = RunningExecutor(
            executor.executor,
            executor.operator,
            start,
            resident.cancel,
            resident.can_start,
            resident.is_standing,
            spares=stage.on_error.keeps_letters,
        )
        return made

    def _has_crashed(self, operator: str) -> bool:
        """A task of the operator's, here and not long ago."""
        return any(e.has_crashed for e in self._executors.values() if e.operator == operator)

    def _shards_of(self, executor: str) -> tuple[str, ...]:
        assigned = self._assigned.get(executor)
        return assigned.shards if assigned else ()

    def _own_rows(self, rows: dict[str, bytes]) -> tuple[list[TaskRow], dict[str, ShardRow]]:
        mine = {shard for executor in self._assigned.values() for shard in executor.shards}
        tasks = []
        shard_rows = {}
        for name, data in rows.items():
            if not name.startswith(("task:", "shard:")):
                continue
            row = unpack(name, data)
            if isinstance(row, TaskRow) and row.executor in self._executors:
                tasks.append(row)
            elif isinstance(row, ShardRow):
                shard = name.removeprefix("shard:")
                if shard in mine:
                    shard_rows[shard] = row
        return tasks, shard_rows

    def _tell_tasks(self) -> None:
        """Write the shard-to-task maps that differ from the store's; it wakes the tasks concerned.

        The store's are read anew each time: a write of ours that came late may have put an old one there.
        """
        executors = list(self._executors.values())
        maps = self._store.pipeline([Tasks(executor.name, executor.operator) for executor in executors])
        told = []
        for executor, there in zip(executors, maps, strict=True):
            mapping, idle = executor.mapping(), executor.without_shards()
            if (there.incarnation, there.mapping, there.idle) != (self._incarnation, mapping, idle):
                shards, waiting = tuple(sorted(mapping.items())), tuple(sorted(idle))
                told.append(SetTasks(self._launch.worker, self._incarnation, executor.name, shards, waiting))
        if Answer.STALE in self._store.pipeline(told):
            raise Replaced("another start of this worker has enrolled")

    def _tell_of_tables(self, versions: list[tuple[int, ...]]) -> None:
        """Wake all tasks where a table is new, so that they switch together: from the first switch to the
        last rows of keys that move wait. A wake that is lost costs the tasks' own look."""
        if versions == self._tables:
            return
        self._tables = versions
        self._store.pipeline([Wake(ready) for one in self._executors.values() for ready in one.ready_lists()])

    # --- what others see --------------------------------------------------------------------------

    def _tell_others(self, tasks: list[TaskRow]) -> None:
        # Rows of an earlier start stay until a task of this one overwrites them.
        own = (task for task in tasks if task.ready.endswith(f".{self._incarnation}"))
        self._report.tell(self._executors, self._assigned.values(), own, self._sources())

    def _sources(self) -> tuple[str, ...]:
        return self._announcer.announced if self._announcer is not None else ()

    # --- the end ------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Let every task finish its batch and go; bounded, because the session's end kills the rest."""
        now_us = self._clock.monotonic_us()
        try:
            if self._leave_by_us is None:
                self._leave_by_us = now_us + RETIRE_US_MAX
                if self._enrolled:
                    self._report.put_state("stopping", "", self._executors, self._sources())
                for executor in self._executors.values():
                    executor.stop()
            self.ended = now_us > self._leave_by_us or all(e.idle for e in self._executors.values())
            if self.ended:
                return
            for executor in self._executors.values():
                executor.turn(now_us, set(), {})
            self._tell_tasks()
        except (PenstockError, Replaced) as error:
            _LOG.warning("stopping without the store: %s", error)
            self.ended = True
