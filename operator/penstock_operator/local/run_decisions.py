"""What `penstock run` does next: pure decisions from what it sees.

`decide(state, seen, now_s)` answers the next state and what to carry out; it knows no process, no store and
no clock. Workers that die are started again and their shards go to the living at once; the run ends when
its input is used up, its time is over, it is told to, user code failed, or a worker cannot be started.
Neighbours: `local_run` sees and carries out, `penstock.schedule.placement` says where shards go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.dataflow.plan import Plan
from penstock.metrics.rows import WorkerRow
from penstock.schedule.placement import (
    announce_executors,
    reassign_worker_lost,
    renew_worker,
    spread_to_returned_worker,
    without_announced,
)
from penstock.schedule.record import OperatorSchedule, WorkerPlace
from penstock_operator.fleet import FleetWorker, WorkerState
from penstock_operator.local.plan_outline import is_source

RESTART_DELAYS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 10.0)
"""Before the first, second, ... start after deaths that came one upon the other."""
STEADY_AFTER_S = 30.0
"""A worker that was ready for so long starts again without delay."""
EARLY_DEATHS_MAX = 5
"""Deaths in a row, none of them after having been ready, that end the run."""
DRAIN_S = 30.0
STALL_S = 5.0
"""A drain that gets nowhere for so long is over."""
WARM_S = 10.0
"""A worker that is back gets its shards after this time, its tasks up or not."""
GRACE_S = 10.0
"""From the wish that a worker leaves to its SIGKILL."""
_NOTHING_LOST = "Nothing is lost: mend what is wrong and run again; that goes on where this run stopped."


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    ENDED = "ended"


class Result(StrEnum):
    """Why the run ends. FAILED alone is a failure."""

    FINISHED = "finished"
    TIME_OVER = "time over"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WorkerCare:
    """One worker: the start of it that counts, and how its starts went.

    `is_up` holds between ready and death, `restart_at_s` is set between death and the next start.
    """

    name: str
    uid: str
    attempt: int = 0
    is_up: bool = False
    up_since_s: float = 0.0
    restart_at_s: float | None = None
    early_deaths: int = 0
    deaths_in_row: int = 0
    restarts: int = 0
    warm_until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What still waits, over all shards. While `generation` and `commits` (the sum of the shards' commit
    numbers) stay, no shard worked."""

    generation: int
    commits: int
    inbox_entries: int
    outbox_entries: int
    sources_finished: bool

    @property
    def is_empty(self) -> bool:
        return self.inbox_entries == 0 and self.outbox_entries == 0


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything that the supervision remembers. `token` is unique to this run; uids are made from it.

    `working_since_s` is when the first task ran, and `time_limit_s` counts from there. `message` says why a
    run failed; `log_of` names the worker whose last lines belong to it.
    """

    plan: Plan
    token: str
    node: str
    workers: Mapping[str, WorkerCare]
    schedules: Mapping[str, OperatorSchedule]
    time_limit_s: float | None = None
    phase: Phase = Phase.STARTING
    working_since_s: float | None = None
    drain_until_s: float = 0.0
    progressed_at_s: float = 0.0
    last_backlog: Backlog | None = None
    interrupts: int = 0
    result: Result | None = None
    message: str = ""
    log_of: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. `rows`, `backlog` and `failures` are None when the store was not looked at, or is away.

    `store_fault` is a sentence when the store cannot come back; `interrupts` counts signals so far.
    """

    fleet: tuple[FleetWorker, ...]
    rows: Mapping[str, WorkerRow] | None
    backlog: Backlog | None
    failures: Mapping[str, str] | None
    interrupts: int = 0
    store_fault: str = ""


@dataclass(frozen=True, slots=True)
class PublishSchedules:
    """Write these into the store, before anything that follows."""

    schedules: tuple[OperatorSchedule, ...]


@dataclass(frozen=True, slots=True)
class StartWorker:
    worker: str
    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StopWorker:
    worker: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Say:
    """An event for people."""

    text: str
    is_trouble: bool = False


Action = PublishSchedules | StartWorker | StopWorker | Say


@dataclass(frozen=True, slots=True)
class Decision:
    """`actions` are carried out in their order."""

    state: RunState
    actions: tuple[Action, ...] = ()


def worker_uid(token: str, worker: str, attempt: int) -> str:
    """Unique to one start of one worker of one run."""
    return f"{token}-{worker}-{attempt}"


def begin(state: RunState) -> Decision:
    """Publish the first schedules and start all workers."""
    starts = (StartWorker(care.name, care.uid, care.attempt) for care in state.workers.values())
    return Decision(state, (PublishSchedules(tuple(state.schedules.values())), *starts))


def decide(state: RunState, seen: Seen, now_s: float) -> Decision:
    """The next state, and what to carry out."""
    turn = _Turn(state, seen, now_s)
    turn.notice_interrupts()
    turn.notice_faults()
    turn.notice_deaths()
    turn.notice_ready()
    turn.notice_warm()
    turn.start_again()
    turn.notice_work()
    turn.watch_end()
    turn.watch_stopped()
    return Decision(turn.state, tuple(turn.actions))


def adopt(state: RunState, schedules: Sequence[OperatorSchedule]) -> Decision:
    """Publish schedules that were made from those of `state`; one made from an older one is dropped."""
    turn = _Turn(state, Seen((), None, None, None), 0.0)
    turn.adopt(schedules)
    return Decision(turn.state, tuple(turn.actions))


def held_back(state: RunState) -> str:
    """Why shards and tasks may not be moved about now, in words; "" when they may."""
    if state.phase is not Phase.RUNNING:
        return f"the run is {state.phase}"
    away = [care.name for care in state.workers.values() if not care.is_up or care.warm_until_s is not None]
    if away:
        return f"worker {', '.join(away)} is not up"
    return ""


def spare_tasks(state: RunState) -> dict[str, int]:
    """Living worker -> tasks that it may still be given."""
    return _Turn(state, Seen((), None, None, None), 0.0).room()


class _Turn:
    """One call of `decide`: the state as it becomes, the actions as they gather."""

    def __init__(self, state: RunState, seen: Seen, now_s: float) -> None:
        self.state = state
        self.seen = seen
        self.now_s = now_s
        self.actions: list[Action] = []

    @property
    def _is_ending(self) -> bool:
        return self.state.phase in (Phase.STOPPING, Phase.ENDED)

    # --- reasons to end -------------------------------------------------------------------------

    def notice_interrupts(self) -> None:
        """The first signal drains, the next one ends at once; nothing is lost by either."""
        news = self.seen.interrupts - self.state.interrupts
        self.state = replace(self.state, interrupts=self.seen.interrupts)
        if news <= 0 or self.state.phase is Phase.ENDED:
            return
        if self.state.phase is Phase.STOPPING:
            self._stop_workers(0.0)
        elif self.state.phase is Phase.DRAINING or news > 1:
            self.actions.append(Say("told again: ending at once"))
            self._stop(self.state.result or Result.STOPPED, 0.0)
        else:
            self._drain(Result.STOPPED, "told to stop")

    def notice_faults(self) -> None:
        """User code that raised, a store that is lost, a worker that can run no tasks."""
        if self._is_ending:
            return
        if self.seen.store_fault:
            self._fail(self.seen.store_fault)
        elif self.seen.failures:
            operator, message = min(self.seen.failures.items())
            self._fail(f"Operator {operator} failed. {_NOTHING_LOST}\n{message.rstrip()}")
        else:
            for care, row in self._current_rows():
                if row.state == "failed":
                    self._fail(f"Worker {care.name} cannot go on: {row.message}", log_of=care.name)
                    return

    def notice_work(self) -> None:
        """The run is running once a task does: a worker that is ready has yet to start them."""
        if self._is_ending or self.state.working_since_s is not None:
            return
        backlog, before = self.seen.backlog, self.state.last_backlog
        has_committed = backlog is not None and before is not None and backlog.commits > before.commits
        if has_committed or any(count for _, row in self._current_rows() for count in row.tasks.values()):
            self.state = replace(self.state, working_since_s=self.now_s, phase=Phase.RUNNING)

    def watch_end(self) -> None:
        """Input used up, time over, a drain done."""
        if self._is_ending:
            return
        backlog, before = self.seen.backlog, self.state.last_backlog
        if backlog is not None:
            if backlog != before:
                self.state = replace(self.state, progressed_at_s=self.now_s)
            self.state = replace(self.state, last_backlog=backlog)
        # One look is not one moment: only two that are equal show that nothing was under way.
        is_quiet = backlog is not None and backlog == before and backlog.is_empty
        if self.state.phase is Phase.DRAINING:
            self._watch_drain(is_quiet)
        elif is_quiet and backlog is not None and backlog.sources_finished:
            self.actions.append(Say("the input is used up and worked through"))
            self._stop(Result.FINISHED)
        elif self._is_time_over():
            self._drain(Result.TIME_OVER, "the time is over")

    def watch_stopped(self) -> None:
        ended = all(worker.state is WorkerState.ENDED for worker in self.seen.fleet)
        if self.state.phase is Phase.STOPPING and ended:
            self.state = replace(self.state, phase=Phase.ENDED)

    def _is_time_over(self) -> bool:
        limit_s, since_s = self.state.time_limit_s, self.state.working_since_s
        return limit_s is not None and since_s is not None and self.now_s - since_s >= limit_s

    def _watch_drain(self, is_quiet: bool) -> None:
        is_late = self.now_s >= self.state.drain_until_s
        is_stalled = self.now_s - self.state.progressed_at_s >= STALL_S
        if not (is_quiet or is_late or is_stalled):
            return
        if not is_quiet:
            last = self.state.last_backlog
            waiting = last.inbox_entries + last.outbox_entries if last else "an unknown number of"
            self.actions.append(Say(f"{waiting} entries still wait; the next run goes on from there"))
        self._stop(self.state.result or Result.STOPPED)

    def _drain(self, result: Result, reason: str) -> None:
        """Sources stop where they are: their schedules hold no shards any more."""
        if self.state.working_since_s is None:
            self.actions.append(Say(f"{reason} before the work began"))
            self._stop(result)
            return
        sources = [stage.operator for stage in self.state.plan.stages if is_source(stage)]
        idle = {
            name: replace(
                old,
                version=old.version + 1,
                executors=tuple(replace(executor, tasks=0) for executor in old.executors),
                shards={},
            )
            for name, old in self.state.schedules.items()
            if name in sources
        }
        self.state = replace(
            self.state,
            phase=Phase.DRAINING,
            result=result,
            drain_until_s=self.now_s + DRAIN_S,
            progressed_at_s=self.now_s,
            last_backlog=None,
        )
        self.actions.append(Say(f"{reason}: no more input is read, what waits is worked through"))
        self._publish({**self.state.schedules, **idle})

    def _fail(self, message: str, log_of: str = "") -> None:
        self.state = replace(self.state, message=message, log_of=log_of)
        self._stop(Result.FAILED)

    def _stop(self, result: Result, grace_s: float = GRACE_S) -> None:
        self.state = replace(self.state, phase=Phase.STOPPING, result=result)
        self._stop_workers(grace_s)

    def _stop_workers(self, grace_s: float) -> None:
        self.actions.extend(StopWorker(name, grace_s) for name in self.state.workers)

    # --- workers --------------------------------------------------------------------------------

    def notice_deaths(self) -> None:
        for worker in self.seen.fleet:
            care = self.state.workers.get(worker.worker)
            if care is None or worker.uid != care.uid or care.restart_at_s is not None:
                continue
            if worker.state is WorkerState.ENDED and not self._is_ending:
                self._bury(care, worker.ending)

    def _bury(self, care: WorkerCare, ending: str) -> None:
        """A worker is dead: its shards go to the living, and it is to start again."""
        early_deaths = 0 if care.is_up else care.early_deaths + 1
        if early_deaths >= EARLY_DEATHS_MAX:
            told = f"Worker {care.name} ended {early_deaths} times before it was ready (last: {ending})."
            self._fail(told, log_of=care.name)
            return
        was_steady = care.is_up and self.now_s - care.up_since_s >= STEADY_AFTER_S
        deaths_in_row = 1 if was_steady else care.deaths_in_row + 1
        delay_s = RESTART_DELAYS_S[min(deaths_in_row, len(RESTART_DELAYS_S)) - 1]
        dead = replace(
            care,
            is_up=False,
            restart_at_s=self.now_s + delay_s,
            early_deaths=early_deaths,
            deaths_in_row=deaths_in_row,
            warm_until_s=None,
        )
        self._keep(dead)
        held = self._shards_on(care.name)
        lost = self._lost()
        self._publish(reassign_worker_lost(self.state.schedules, lost, self._spare_tasks(lost)))
        moved = held - self._shards_on(care.name)
        text = f"worker {care.name} {ending}"
        if moved:
            text += f"; its {moved} shards went to {', '.join(sorted(set(self.state.workers) - lost))}"
        elif held:
            text += f"; its {held} shards wait for its return"
        self.actions.append(Say(text, is_trouble=True))

    def start_again(self) -> None:
        """Start whoever is due. The schedules name the new start before it enrols."""
        if self._is_ending:
            return
        for care in tuple(self.state.workers.values()):
            if care.restart_at_s is None or self.now_s < care.restart_at_s:
                continue
            attempt = care.attempt + 1
            new = replace(
                care,
                uid=worker_uid(self.state.token, care.name, attempt),
                attempt=attempt,
                restart_at_s=None,
                restarts=care.restarts + 1,
            )
            self._keep(new)
            self._publish(renew_worker(self.state.schedules, self._place(new)))
            self.actions.append(StartWorker(new.name, new.uid, new.attempt))

    def notice_ready(self) -> None:
        if self._is_ending:
            return
        for known, row in self._current_rows():
            if known.is_up or known.restart_at_s is not None or row.state != "ready":
                continue
            care = replace(known, is_up=True, up_since_s=self.now_s, early_deaths=0)
            self._keep(care)
            if not care.restarts:
                self.actions.append(Say(f"worker {care.name} is ready"))
                continue
            planned = self._with_returned(care, self.state.schedules)
            announced = announce_executors(self.state.schedules, planned, care.name)
            warm_s = WARM_S if announced != self.state.schedules else 0.0
            self._keep(replace(care, warm_until_s=self.now_s + warm_s))
            self._publish(announced)

    def notice_warm(self) -> None:
        """Shards go to a worker that is back once its tasks are up: none of them waits for a start."""
        if self._is_ending:
            return
        for care, row in self._current_rows():
            if care.warm_until_s is None:
                continue
            announced = [
                executor.name
                for schedule in self.state.schedules.values()
                for executor in schedule.executors
                if executor.worker == care.name
                if not schedule.shards_of(executor.name)
            ]
            if self.now_s < care.warm_until_s and not all(row.tasks.get(name) for name in announced):
                continue
            self._keep(replace(care, warm_until_s=None))
            before = self._shards_on(care.name)
            bare = without_announced(self.state.schedules, care.name)
            self._publish(self._with_returned(care, bare))
            taken = self._shards_on(care.name) - before
            told = f" and takes {taken} shards" if taken else ""
            self.actions.append(Say(f"worker {care.name} is ready again{told}"))

    def _with_returned(
        self, care: WorkerCare, schedules: Mapping[str, OperatorSchedule]
    ) -> dict[str, OperatorSchedule]:
        """`schedules` with this worker's share in them."""
        wanted = {
            stage.operator: min(stage.tasks.initial, len(schedules[stage.operator].shards))
            for stage in self.state.plan.stages
        }
        return spread_to_returned_worker(schedules, self._place(care), wanted, self._lost())

    def adopt(self, schedules: Sequence[OperatorSchedule]) -> None:
        if held_back(self.state):
            return
        fit = (new for new in schedules if new.version == self.state.schedules[new.operator].version + 1)
        self._publish({**self.state.schedules, **{new.operator: new for new in fit}})

    def room(self) -> dict[str, int]:
        """Tasks that each worker may still be given."""
        return self._spare_tasks(self._lost())

    def _keep(self, care: WorkerCare) -> None:
        self.state = replace(self.state, workers={**self.state.workers, care.name: care})

    def _publish(self, schedules: Mapping[str, OperatorSchedule]) -> None:
        """Take new schedules, and publish those that changed; versions only grow."""
        kept = dict(self.state.schedules)
        changed = []
        for name, new in schedules.items():
            before = kept[name]
            if new == before:
                continue
            kept[name] = new if new.version > before.version else replace(new, version=before.version + 1)
            changed.append(kept[name])
        self.state = replace(self.state, schedules=kept)
        if changed:
            self.actions.append(PublishSchedules(tuple(changed)))

    def _current_rows(self) -> list[tuple[WorkerCare, WorkerRow]]:
        """Rows of the starts that count; older ones are last words."""
        rows = self.seen.rows or {}
        return [
            (care, rows[name])
            for name, care in self.state.workers.items()
            if name in rows and rows[name].uid == care.uid
        ]

    def _lost(self) -> set[str]:
        """Workers that died and are not ready again."""
        return {
            care.name
            for care in self.state.workers.values()
            if care.restart_at_s is not None or (care.restarts > 0 and not care.is_up)
        }

    def _shards_on(self, worker: str) -> int:
        return sum(
            len(schedule.shards_of(executor.name))
            for schedule in self.state.schedules.values()
            for executor in schedule.executors
            if executor.worker == worker
        )

    def _spare_tasks(self, lost: set[str]) -> dict[str, int]:
        """A worker's session has room for every operator's `tasks.max`."""
        room = sum(stage.tasks.max for stage in self.state.plan.stages)
        scheduled = dict.fromkeys(self.state.workers.keys() - lost, 0)
        for schedule in self.state.schedules.values():
            for executor in schedule.executors:
                if executor.worker in scheduled:
                    scheduled[executor.worker] += executor.tasks
        return {name: max(0, room - tasks) for name, tasks in scheduled.items()}

    def _place(self, care: WorkerCare) -> WorkerPlace:
        return WorkerPlace(care.name, self.state.node, self.state.node, care.uid)
