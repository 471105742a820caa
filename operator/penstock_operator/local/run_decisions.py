"""What `penstock run` does next: pure decisions from what it sees.

`decide(state, seen, now_s)` answers the next state and what to carry out; it knows no process, no store and
no clock. Workers that die are started again and their shards go to the living at once; the run ends when
its input is used up, its time is over, it is told to, user code failed, or a worker cannot be started.
Neighbours: `run_workers` keeps workers, by the supervision that the operator has too, `run_end` says when it
is over; `local_run` sees and carries out, `run_placement` asks the planner where shards go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.schedule.record import OperatorSchedule
from penstock.supervision import settled
from penstock.supervision.worker import WorkerState
from penstock_operator.local.run_end import (
    notice_faults,
    notice_interrupts,
    notice_work,
    watch_end,
    watch_stopped,
)
from penstock_operator.local.run_placement import session_tasks, spare_tasks
from penstock_operator.local.run_publishing import publish_decided, publish_first
from penstock_operator.local.run_state import Decision, Phase, RunState, Seen, StartWorker
from penstock_operator.local.run_turn import RunTurn
from penstock_operator.local.run_workers import (
    awaited,
    count_hosts,
    joined,
    judged,
    keep_hosts,
    keep_numbers,
    may_grow,
    notice_deaths,
    notice_ready,
    notice_troubles,
)
from penstock_operator.local.spark_worker_care import keep_spark_workers

WANTED_S = 30.0
"""So long after it was last asked for another worker is kept that nothing was put on."""


def begin(state: RunState) -> Decision:
    """Publish the first schedules and start all workers."""
    starts = (StartWorker(care.name, care.uid, care.attempt) for care in state.workers.values())
    state, published = publish_first(count_hosts(state))
    return Decision(state, (*published, *starts))


def decide(state: RunState, seen: Seen, now_s: float) -> Decision:
    """The next state, and what to carry out."""
    turn = RunTurn(state, seen, now_s)
    notice_interrupts(turn)
    notice_faults(turn)
    notice_troubles(turn)
    deaths = notice_deaths(turn)
    back = notice_ready(turn)
    keep_hosts(turn, deaths, back)
    notice_work(turn)
    keep_numbers(turn)
    _keep_remote(turn)
    watch_end(turn)
    watch_stopped(turn)
    turn.state = replace(turn.state, since_s=turn.since.after)
    return turn.decision


def adopt(state: RunState, schedules: Sequence[OperatorSchedule]) -> Decision:
    """Publish schedules that were made from those of `state`; one made from an older one is dropped."""
    turn = RunTurn(state)
    if not held_back(state):
        turn.state, actions = publish_decided(state, schedules)
        turn.actions += actions
        joined(turn)
    return turn.decision


def held_back(state: RunState) -> str:
    """Why shards and tasks may not be moved about now, in words; "" when they may."""
    if state.phase is not Phase.RUNNING:
        return f"the run is {state.phase}"
    return settled.held_back(judged(state, (), 0.0), awaited(state))


def want_worker(state: RunState, now_s: float) -> Decision:
    """More tasks are wanted than the workers that are up have room for."""
    return Decision(replace(state, wanted_until_s=now_s + WANTED_S))


def room_for_tasks(state: RunState) -> dict[str, int]:
    """Living worker -> tasks that it may still be given: as many as its cores are worth while another worker
    may come, afterwards as many as its session admits."""
    warm = warm_workers(state)
    lost = {
        worker.name
        for worker in judged(state, (), 0.0)
        if worker.state is WorkerState.DEAD or (worker.name in warm and not worker.is_idle)
    }
    room = spare_tasks(state, lost)
    if not may_grow(state):
        return {name: tasks for name, tasks in room.items() if name not in warm}
    most, each = session_tasks(state.plan), state.plan.workers.tasks_each
    return {name: max(0, tasks - max(0, most - each)) for name, tasks in room.items()}


def tasks_in_all(state: RunState) -> int:
    """Tasks that all workers together may be given, those that may still come among them."""
    given = sum(schedule.tasks for schedule in state.schedules.values())
    workers = state.plan.workers
    to_come = workers.most * workers.tasks_each if may_grow(state) else 0
    return max(given + sum(room_for_tasks(state).values()), to_come)


def warm_workers(state: RunState) -> frozenset[str]:
    return frozenset(care.name for care in state.workers.values() if care.is_warm)


def _keep_remote(turn: RunTurn) -> None:
    if turn.is_ending:
        return
    rows = [row for _, row in turn.current_rows()]
    turn.state, actions = keep_spark_workers(turn.state, rows, turn.seen.fleet, turn.since)
    turn.actions += actions
