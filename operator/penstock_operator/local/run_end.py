"""Why and how a run ends: signals, faults, its time, its input used up, and the drain before.

Pure. Neighbours: `run_turn` is what is worked on, `run_decisions` calls, `run_workers` keeps workers until
then.
"""

from __future__ import annotations

from dataclasses import replace

from penstock_operator.fleet.port import WorkerState
from penstock_operator.local.run_state import Phase, Result
from penstock_operator.local.run_turn import RunTurn

DRAIN_S = 30.0
STALL_S = 5.0
"""A drain that gets nowhere for so long is over."""
_NOTHING_LOST = "Nothing is lost: mend what is wrong and run again; that goes on where this run stopped."


def notice_interrupts(turn: RunTurn) -> None:
    """The first signal drains, the next one ends at once; nothing is lost by either."""
    news = turn.seen.interrupts - turn.state.interrupts
    turn.state = replace(turn.state, interrupts=turn.seen.interrupts)
    if news <= 0 or turn.state.phase is Phase.ENDED:
        return
    if turn.state.phase is Phase.STOPPING:
        turn.stop_workers(0.0)
    elif turn.state.phase is Phase.DRAINING or news > 1:
        turn.say("told again: ending at once")
        turn.stop(turn.state.result or Result.STOPPED, 0.0)
    else:
        _drain(turn, Result.STOPPED, "told to stop")


def notice_faults(turn: RunTurn) -> None:
    """User code that raised, a store that is lost, a worker that can run no tasks."""
    if turn.is_ending:
        return
    if turn.seen.store_fault:
        turn.fail(turn.seen.store_fault)
    elif turn.seen.failures:
        operator, message = min(turn.seen.failures.items())
        turn.fail(f"Operator {operator} failed. {_NOTHING_LOST}\n{message.rstrip()}")
    else:
        for care, row in turn.current_rows():
            if row.state == "failed":
                told = f"Worker {care.name} cannot go on: {row.message}\n{_NOTHING_LOST}"
                turn.fail(told, log_of=care.name)
                return


def notice_work(turn: RunTurn) -> None:
    """The run is running once a task does: a worker that is ready has yet to start them."""
    if turn.is_ending or turn.state.working_since_s is not None:
        return
    backlog, before = turn.seen.backlog, turn.state.last_backlog
    has_committed = backlog is not None and before is not None and backlog.commits > before.commits
    if has_committed or any(count for _, row in turn.current_rows() for count in row.tasks.values()):
        turn.state = replace(turn.state, working_since_s=turn.now_s, phase=Phase.RUNNING)


def watch_end(turn: RunTurn) -> None:
    """Input used up, time over, a drain done."""
    if turn.is_ending:
        return
    backlog, before = turn.seen.backlog, turn.state.last_backlog
    if backlog is not None:
        if backlog != before:
            turn.state = replace(turn.state, progressed_at_s=turn.now_s)
        turn.state = replace(turn.state, last_backlog=backlog)
    # One look is not one moment: only two that are equal show that nothing was under way.
    is_quiet = backlog is not None and backlog == before and backlog.is_empty
    if turn.state.phase is Phase.DRAINING:
        _watch_drain(turn, is_quiet=is_quiet)
    elif is_quiet and backlog is not None and backlog.sources_finished and backlog.watermarks_through:
        turn.say("the input is used up and worked through")
        turn.stop(Result.FINISHED)
    elif _is_time_over(turn):
        _drain(turn, Result.TIME_OVER, "the time is over")


def watch_stopped(turn: RunTurn) -> None:
    ended = all(worker.state is WorkerState.ENDED for worker in turn.seen.fleet)
    if turn.state.phase is Phase.STOPPING and ended:
        turn.state = replace(turn.state, phase=Phase.ENDED)


def _is_time_over(turn: RunTurn) -> bool:
    limit_s, since_s = turn.state.time_limit_s, turn.state.working_since_s
    return limit_s is not None and since_s is not None and turn.now_s - since_s >= limit_s


def _watch_drain(turn: RunTurn, *, is_quiet: bool) -> None:
    is_late = turn.now_s >= turn.state.drain_until_s
    is_stalled = turn.now_s - turn.state.progressed_at_s >= STALL_S
    if not (is_quiet or is_late or is_stalled):
        return
    if not is_quiet:
        last = turn.state.last_backlog
        waiting = last.inbox_entries + last.outbox_entries if last else "an unknown number of"
        turn.say(f"{waiting} entries still wait; the next run goes on from there")
    turn.stop(turn.state.result or Result.STOPPED)


def _drain(turn: RunTurn, result: Result, reason: str) -> None:
    """Sources stop where they are: their schedules hold no shards any more."""
    if turn.state.working_since_s is None:
        turn.say(f"{reason} before the work began")
        turn.stop(result)
        return
    sources = [stage.operator for stage in turn.state.plan.stages if stage.is_source]
    idle = {
        name: replace(
            old,
            executors=tuple(replace(executor, tasks=0) for executor in old.executors),
            shards={},
        )
        for name, old in turn.state.schedules.items()
        if name in sources
    }
    turn.state = replace(
        turn.state,
        phase=Phase.DRAINING,
        result=result,
        drain_until_s=turn.now_s + DRAIN_S,
        progressed_at_s=turn.now_s,
        last_backlog=None,
    )
    turn.say(f"{reason}: no more input is read, what waits is worked through")
    turn.publish({**turn.state.schedules, **idle})
