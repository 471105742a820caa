"""What `penstock run` does next: pure decisions from what it sees.

`decide(state, seen, now_s)` answers the next state and what to carry out; it knows no process, no store and
no clock. Workers that die are started again and their shards go to the living at once; the run ends when
its input is used up, its time is over, it is told to, user code failed, or a worker cannot be started.
Warm workers stand beside those that work; where the cores of all are given out, one of them joins and is
refilled behind, or another one is started. A worker that has lost its last executor leaves, or stays as a
warm one. Neighbours: `local_run` sees and carries out, `run_placement` asks the planner where shards go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.metrics.rows import WorkerRow
from penstock.schedule.announcing import announce
from penstock.schedule.hosts_and_wishes import ONE_MACHINE
from penstock.schedule.naming import forget_worker, name_worker
from penstock.schedule.record import OperatorSchedule
from penstock_operator.fleet import WorkerState
from penstock_operator.local.processes.spark_worker_care import keep_spark_workers
from penstock_operator.local.run_placement import (
    place_of,
    session_tasks,
    spare_tasks,
    with_returned,
    without_lost,
)
from penstock_operator.local.run_publishing import publish_changed, publish_decided, publish_first
from penstock_operator.local.run_state import (
    Action,
    Decision,
    Phase,
    Result,
    RunState,
    Say,
    Seen,
    StartWorker,
    StopWorker,
    WorkerCare,
    worker_uid,
)
from penstock_operator.local.showing.plan_outline import is_source

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
WANTED_S = 30.0
"""So long after it was last asked for another worker is kept that nothing was put on."""
_NOTHING_LOST = "Nothing is lost: mend what is wrong and run again; that goes on where this run stopped."


def begin(state: RunState) -> Decision:
    """Publish the first schedules and start all workers."""
    starts = (StartWorker(care.name, care.uid, care.attempt) for care in state.workers.values())
    state, published = publish_first(state)
    return Decision(state, (*published, *starts))


def decide(state: RunState, seen: Seen, now_s: float) -> Decision:
    """The next state, and what to carry out."""
    turn = _Turn(state, seen, now_s)
    turn.notice_interrupts()
    turn.notice_faults()
    turn.notice_troubles()
    turn.notice_deaths()
    turn.notice_ready()
    turn.notice_warm()
    turn.start_again()
    turn.notice_work()
    turn.keep_warm()
    turn.keep_remote()
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
    away = [
        care.name
        for care in state.workers.values()
        if not care.is_warm and (not care.is_up or care.warm_until_s is not None)
    ]
    if away:
        return f"worker {', '.join(away)} is not up"
    return ""


def want_worker(state: RunState, now_s: float) -> Decision:
    """More tasks are wanted than the workers that are up have room for."""
    return Decision(replace(state, wanted_until_s=now_s + WANTED_S))


def room_for_tasks(state: RunState) -> dict[str, int]:
    """Living worker -> tasks that it may still be given: as many as its cores are worth while another worker
    may come, afterwards as many as its session admits."""
    return _Turn(state, Seen((), None, None, None), 0.0).room()


def tasks_in_all(state: RunState) -> int:
    """Tasks that all workers together may be given, those that may still come among them."""
    given = sum(schedule.tasks for schedule in state.schedules.values())
    workers = state.plan.workers
    to_come = workers.most * workers.tasks_each if _may_grow(state) else 0
    return max(given + sum(room_for_tasks(state).values()), to_come)


def warm_workers(state: RunState) -> frozenset[str]:
    return frozenset(care.name for care in state.workers.values() if care.is_warm)


def _standing(state: RunState) -> int:
    """Workers that hold executors, or held some from the start."""
    return sum(not care.is_warm for care in state.workers.values())


def _may_grow(state: RunState) -> bool:
    return _standing(state) < state.plan.workers.most


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
                    told = f"Worker {care.name} cannot go on: {row.message}\n{_NOTHING_LOST}"
                    self._fail(told, log_of=care.name)
                    return

    def notice_troubles(self) -> None:
        """Tasks that ended by themselves, or stood still: their workers go on, and people are told."""
        for care, row in self._current_rows():
            if row.state == "ready" and row.message != self.state.troubles.get(care.name, ""):
                self.state = replace(self.state, troubles={**self.state.troubles, care.name: row.message})
                if row.message:
                    self.actions.append(Say(f"worker {care.name}: {row.message}", is_trouble=True))

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
        beside = (care.name for care in self.state.spark_workers.values())
        self.actions.extend(StopWorker(name, grace_s) for name in (*self.state.workers, *beside))

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
        # Without a warm worker the others go on: its next start may wait as long as it takes.
        if early_deaths >= EARLY_DEATHS_MAX and not care.is_warm:
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
        self._publish(without_lost(self.state, lost))
        moved = held - self._shards_on(care.name)
        text = f"worker {care.name} {ending}"
        if moved:
            able = {care.name for care in self.state.workers.values() if not care.is_warm} - lost
            text += f"; its {moved} shards went to {', '.join(sorted(able))}"
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
            self._publish(name_worker(self.state.schedules, place_of(self.state, new)))
            self.actions.append(StartWorker(new.name, new.uid, new.attempt))

    def notice_ready(self) -> None:
        if self._is_ending:
            return
        for known, row in self._current_rows():
            if known.is_up or known.restart_at_s is not None or row.state != "ready":
                continue
            care = replace(known, is_up=True, up_since_s=self.now_s, early_deaths=0)
            self._keep(care)
            if care.is_warm or not care.restarts:
                self.actions.append(Say(f"worker {care.name} is {'warm' if care.is_warm else 'ready'}"))
                continue
            planned = with_returned(self.state, care, self._lost())
            announced = {
                name: announce(old, planned[name], runtime=ONE_MACHINE)
                for name, old in self.state.schedules.items()
            }
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
            self._publish(with_returned(self.state, care, self._lost()))
            taken = self._shards_on(care.name) - before
            told = f" and takes {taken} shards" if taken else ""
            self.actions.append(Say(f"worker {care.name} is ready again{told}"))

    def adopt(self, schedules: Sequence[OperatorSchedule]) -> None:
        if held_back(self.state):
            return
        self.state, actions = publish_decided(self.state, schedules)
        self.actions += actions
        self._join_workers()

    def room(self) -> dict[str, int]:
        """Tasks that each worker may still be given."""
        room = spare_tasks(self.state, self._lost())
        if not _may_grow(self.state):
            warm = warm_workers(self.state)
            return {name: tasks for name, tasks in room.items() if name not in warm}
        most, each = session_tasks(self.state.plan), self.state.plan.workers.tasks_each
        return {name: max(0, tasks - max(0, most - each)) for name, tasks in room.items()}

    # --- workers that come and go -----------------------------------------------------------------

    def keep_warm(self) -> None:
        """Who was given an executor works; who lost the last one leaves or is warm; as many are warm as are
        asked for. Only while the run goes on."""
        if self.state.phase is not Phase.RUNNING:
            return
        self._join_workers()
        self._part_from_empty()
        warm = [care for care in self.state.workers.values() if care.is_warm]
        wanted = self._warm_wanted()
        for care in warm[wanted:]:
            self._dismiss(care)
        if len(warm) < wanted and all(care.is_up for care in warm):
            self._start_warm()

    def _warm_wanted(self) -> int:
        workers = self.state.plan.workers
        wanted = max(workers.warm, int(self.now_s < self.state.wanted_until_s))
        return min(wanted, max(0, workers.most - _standing(self.state)))

    def _working(self) -> set[str]:
        """Workers that hold executors."""
        return {e.worker for schedule in self.state.schedules.values() for e in schedule.executors}

    def _join_workers(self) -> None:
        working = self._working()
        for care in tuple(self.state.workers.values()):
            if care.name not in working:
                continue
            if care.is_warm:
                self.actions.append(Say(f"warm worker {care.name} joins"))
                self.state = replace(self.state, wanted_until_s=0.0)
            if care.is_warm or not care.has_worked:
                self._keep(replace(care, is_warm=False, has_worked=True))

    def _part_from_empty(self) -> None:
        """Those of which more stand than have to are warm from now on; one too many leaves then."""
        working = self._working()
        for care in tuple(self.state.workers.values()):
            is_empty = care.is_up and care.has_worked and not care.is_warm and care.name not in working
            if is_empty and _standing(self.state) > self.state.plan.workers.least:
                self.actions.append(Say(f"worker {care.name} is empty"))
                self._keep(replace(care, is_warm=True))

    def _start_warm(self) -> None:
        """Another worker, under the first name that nobody has or still leaves under."""
        living = {w.worker for w in self.seen.fleet if w.state is not WorkerState.ENDED}
        taken = living | self.state.workers.keys()
        number = 0
        while (name := f"w{number}") in taken:
            number += 1
        attempt = self.state.attempts.get(name, -1) + 1
        care = WorkerCare(name, worker_uid(self.state.token, name, attempt), attempt, is_warm=True)
        self._keep(care)
        self._publish(name_worker(self.state.schedules, place_of(self.state, care)))
        self.actions.append(StartWorker(care.name, care.uid, care.attempt))

    def _dismiss(self, care: WorkerCare) -> None:
        """A worker without executors leaves."""
        self.actions += [Say(f"worker {care.name} leaves"), StopWorker(care.name, GRACE_S)]
        self.state = replace(
            self.state,
            workers={name: other for name, other in self.state.workers.items() if name != care.name},
            attempts={**self.state.attempts, care.name: care.attempt},
        )
        self._publish(forget_worker(self.state.schedules, care.name))

    def keep_remote(self) -> None:
        if self._is_ending:
            return
        rows = [row for _, row in self._current_rows()]
        self.state, actions = keep_spark_workers(self.state, rows, self.seen.fleet, self.now_s)
        self.actions += actions

    def _keep(self, care: WorkerCare) -> None:
        self.state = replace(self.state, workers={**self.state.workers, care.name: care})

    def _publish(self, schedules: Mapping[str, OperatorSchedule]) -> None:
        self.state, actions = publish_changed(self.state, schedules)
        self.actions += actions

    def _current_rows(self) -> list[tuple[WorkerCare, WorkerRow]]:
        """Rows of the starts that count; older ones are last words."""
        rows = self.seen.rows or {}
        return [
            (care, rows[name])
            for name, care in self.state.workers.items()
            if name in rows and rows[name].uid == care.uid
        ]

    def _lost(self) -> set[str]:
        """Workers that died and are not ready again, and warm ones that are not up yet."""
        return {
            care.name
            for care in self.state.workers.values()
            if care.restart_at_s is not None or ((care.restarts > 0 or care.is_warm) and not care.is_up)
        }

    def _shards_on(self, worker: str) -> int:
        return sum(
            len(schedule.shards_of(executor.name))
            for schedule in self.state.schedules.values()
            for executor in schedule.executors
            if executor.worker == worker
        )
