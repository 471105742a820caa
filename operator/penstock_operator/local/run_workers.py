"""The workers of `penstock run` as supervision sees them, and its decisions about them as the run's own.

A run knows processes: it is told when one ends, and there is nobody else to start it again. Pure. Neighbours:
`penstock.supervision` judges, chooses hosts, counts and brings up, as for the operator; `run_placement` asks
the planner what the hosts run, `run_decisions` calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from penstock.schedule.hosts_and_wishes import ONE_MACHINE
from penstock.schedule.naming import forget_worker, name_worker
from penstock.schedule.record import ExecutorPlace
from penstock.supervision.bringing_up import next_step
from penstock.supervision.hosts import Group, Hosts, choose_hosts
from penstock.supervision.judge import PROCESSES, Sight, judge
from penstock.supervision.numbers import workers_to_end, workers_to_make
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Holding, Worker, holdings
from penstock_operator.fleet import port as fleet
from penstock_operator.local.run_placement import place_of, planned_on
from penstock_operator.local.run_state import (
    Phase,
    RunState,
    StartWorker,
    StopWorker,
    WorkerCare,
    worker_name,
    worker_number,
    worker_uid,
)
from penstock_operator.local.run_turn import GRACE_S, RunTurn

STARTS_AT_ONCE = 1
"""Of workers that no shard waits for: the cores are those of the others."""


def judged(state: RunState, seen: Iterable[fleet.FleetWorker], now_s: float) -> tuple[Worker, ...]:
    """All workers of the run, in their order."""
    ended = {(one.worker, one.uid) for one in seen if one.state is fleet.WorkerState.ENDED}
    held = holdings(state.schedules.values(), state.remote)
    since = SinceWhen({}, now_s)
    workers = []
    for care in state.workers.values():
        sight = Sight(
            name=care.name,
            uid="" if care.is_down else care.uid,
            is_within_reach=True,
            has_ended=(care.name, care.uid) in ended,
            says_ready=care.is_up,
            is_first_start=care.starts.again == 0,
        )
        workers.append(
            Worker(
                name=care.name,
                number=worker_number(care.name),
                state=judge(sight, PROCESSES, since),
                uid=sight.uid,
                node=state.node,
                may_start=not care.is_down or care.starts.may_start(now_s),
                holding=held.get(care.name, Holding()),
            )
        )
    return tuple(workers)


def awaited(state: RunState) -> frozenset[str]:
    """Workers that are to hold executors, and do not yet, or not again."""
    return frozenset(
        care.name
        for care in state.workers.values()
        if not care.is_warm and (not care.is_up or care.takes_share)
    )


def standing(state: RunState) -> int:
    """Workers that hold executors, or are there to hold some."""
    return sum(not care.is_warm for care in state.workers.values())


def may_grow(state: RunState) -> bool:
    return standing(state) < state.plan.workers.most


def count_hosts(state: RunState) -> RunState:
    """As many workers are to work as the schedules say: whoever wrote them has decided that."""
    return replace(state, hosts_wanted=len(_working(state)))


# --- what has happened --------------------------------------------------------------------------------


def notice_troubles(turn: RunTurn) -> None:
    """Tasks that ended by themselves, or stood still: their workers go on, and people are told."""
    for care, row in turn.current_rows():
        if row.state == "ready" and row.message != turn.state.troubles.get(care.name, ""):
            turn.state = replace(turn.state, troubles={**turn.state.troubles, care.name: row.message})
            if row.message:
                turn.say(f"worker {care.name}: {row.message}", is_trouble=True)


def notice_deaths(turn: RunTurn) -> dict[str, str]:
    """Who has died, and how: each is to start again, or the run ends with it."""
    deaths: dict[str, str] = {}
    for seen in turn.seen.fleet:
        care = turn.state.workers.get(seen.worker)
        if care is None or seen.uid != care.uid or care.is_down or turn.is_ending:
            continue
        if seen.state is not fleet.WorkerState.ENDED:
            continue
        care = replace(care, starts=care.starts.died(turn.now_s), shards_before=None)
        # Without a warm worker the others go on: its next start may wait as long as it takes.
        if care.starts.is_hopeless and not care.is_warm:
            times = care.starts.early_deaths
            told = f"Worker {care.name} ended {times} times before it was ready (last: {seen.ending})."
            turn.fail(told, log_of=care.name)
            return {}
        turn.keep(care)
        deaths[care.name] = seen.ending
    return deaths


def notice_ready(turn: RunTurn) -> list[str]:
    """Who is back after a death, and works on what it still holds, or is to be given work."""
    back = []
    for known, row in turn.current_rows():
        if turn.is_ending or known.is_up or known.is_down or row.state != "ready":
            continue
        turn.keep(replace(known, starts=known.starts.became_ready(turn.now_s)))
        if known.is_warm or not known.starts.again:
            turn.say(f"worker {known.name} is {'warm' if known.is_warm else 'ready'}")
        else:
            back.append(known.name)
    return back


# --- who works ----------------------------------------------------------------------------------------


def keep_hosts(turn: RunTurn, deaths: Mapping[str, str], back: Collection[str]) -> None:
    """What the dead held goes to others; who is back, or takes the place of one, gets its share, once its
    tasks are up."""
    if turn.is_ending:
        return
    workers = judged(turn.state, turn.seen.fleet, turn.now_s)
    hosts = choose_hosts(_group(turn), workers, may_change=True, has_room=True)
    before = _shards(turn.state)
    if hosts.leaving:
        turn.publish(planned_on(turn.state, hosts, frozenset()))
    _tell_of_lost(turn, hosts, deaths, before)
    taking = [] if hosts.leaving else [w for w in hosts.active if w.name in back or not w.holds_executors]
    for worker in taking:
        turn.keep(replace(turn.state.workers[worker.name], shards_before=worker.holding.shards))
    for name in set(back) - {worker.name for worker in taking}:
        turn.say(f"worker {name} is ready again")
    if not hosts.leaving:
        _give_shares(turn, hosts)
    _join(turn)


def _give_shares(turn: RunTurn, hosts: Hosts) -> None:
    takers = frozenset(care.name for care in turn.state.workers.values() if care.takes_share)
    if not takers:
        return
    planned = planned_on(turn.state, hosts, takers)
    rows = {care.name: row for care, row in turn.current_rows()}

    def is_up(executor: ExecutorPlace) -> bool:
        row = rows.get(executor.worker)
        return row is not None and bool(row.tasks.get(executor.name))

    steps = [
        next_step(old, planned[name], is_up, turn.since, runtime=ONE_MACHINE)
        for name, old in turn.state.schedules.items()
    ]
    turn.publish({step.schedule.operator: step.schedule for step in steps})
    if any(step.is_warming for step in steps):
        return
    now, working = _shards(turn.state), _working(turn.state)
    for name in sorted(takers):
        care = turn.state.workers[name]
        turn.keep(replace(care, shards_before=None))
        taken = now.get(name, 0) - (care.shards_before or 0)
        if care.starts.again or name in working:
            told = f" and takes {taken} shards" if taken > 0 else ""
            turn.say(f"worker {name} is ready{' again' if care.starts.again else ''}{told}")
    # Where there was nothing to give fewer are to work.
    idle = len(takers - working)
    turn.state = replace(turn.state, hosts_wanted=max(1, turn.state.hosts_wanted - idle))


def _tell_of_lost(turn: RunTurn, hosts: Hosts, deaths: Mapping[str, str], before: Mapping[str, int]) -> None:
    after = _shards(turn.state)
    others = ", ".join(sorted(worker.name for worker in hosts.active))
    for name, ending in deaths.items():
        text, held = f"worker {name} {ending}", before.get(name, 0)
        moved = held - after.get(name, 0)
        if moved:
            text += f"; its {moved} shards went to {others}"
        elif held:
            text += f"; its {held} shards wait for its return"
        turn.say(text, is_trouble=True)
    for worker in hosts.leaving:
        moved = before.get(worker.name, 0) - after.get(worker.name, 0)
        if moved and worker.name not in deaths:
            turn.say(f"the {moved} shards of worker {worker.name} went to {others}")


def _join(turn: RunTurn) -> None:
    """Who was given an executor works from now on."""
    working = _working(turn.state)
    for care in tuple(turn.state.workers.values()):
        if care.name not in working:
            continue
        if care.is_warm:
            turn.say(f"warm worker {care.name} joins")
            turn.state = replace(turn.state, wanted_until_s=0.0)
        if care.is_warm or not care.has_worked:
            turn.keep(replace(care, is_warm=False, has_worked=True))


def joined(turn: RunTurn) -> None:
    """After somebody else gave executors to workers, or took them."""
    turn.state = count_hosts(turn.state)
    _join(turn)


# --- how many there are -------------------------------------------------------------------------------


def keep_numbers(turn: RunTurn) -> None:
    """Who has died starts again; who lost the last executor leaves or is warm; as many are warm as are asked
    for. Workers come and go only while the run goes on."""
    if turn.is_ending:
        return
    if turn.state.phase is Phase.RUNNING:
        _part_from_empty(turn)
    group, workers = _group(turn), judged(turn.state, turn.seen.fleet, turn.now_s)
    living = {one.worker for one in turn.seen.fleet if one.state is not fleet.WorkerState.ENDED}
    is_running = turn.state.phase is Phase.RUNNING
    for made in workers_to_make(group, workers, worker_name, taken=living, at_once=STARTS_AT_ONCE):
        _start(turn, made.name)
    if not is_running:
        return
    kept = {care.name for care in turn.state.workers.values() if not care.is_warm}
    for gone in workers_to_end(group, workers, kept, is_settled=True):
        _dismiss(turn, turn.state.workers[gone.worker.name])
    for care in tuple(turn.state.workers.values()):
        if care.is_warm and care.starts.may_start(turn.now_s):
            _dismiss(turn, care)


def _group(turn: RunTurn) -> Group:
    """Those that are to work, and beside them who stands without work and who is warm."""
    state = turn.state
    warm = sum(care.is_warm for care in state.workers.values())
    if state.phase is Phase.RUNNING:
        workers = state.plan.workers
        warm = max(workers.warm, int(turn.now_s < state.wanted_until_s))
        warm = min(warm, max(0, workers.most - standing(state)))
    hosts = max(state.hosts_wanted, len(_working(state)))
    return Group("", hosts, max(0, standing(state) - hosts) + warm)


def _part_from_empty(turn: RunTurn) -> None:
    """Those of which more stand than have to are warm from now on; one too many leaves then."""
    working, least = _working(turn.state), turn.state.plan.workers.least
    for care in tuple(turn.state.workers.values()):
        is_empty = care.is_up and care.has_worked and care.name not in working
        is_kept = care.is_warm or care.takes_share or standing(turn.state) <= least
        if is_empty and not is_kept:
            turn.say(f"worker {care.name} is empty")
            turn.keep(replace(care, is_warm=True))


def _start(turn: RunTurn, name: str) -> None:
    """Start a worker anew, or again. The schedules name the new start before it enrols."""
    known = turn.state.workers.get(name)
    last = known.attempt if known is not None else turn.state.attempts.get(name, -1)
    uid = worker_uid(turn.state.token, name, last + 1)
    if known is not None:
        care = replace(known, uid=uid, attempt=last + 1, starts=known.starts.started_again())
    else:
        care = WorkerCare(name, uid, last + 1, is_warm=True)
    turn.keep(care)
    turn.publish(name_worker(turn.state.schedules, place_of(turn.state, care)))
    turn.actions.append(StartWorker(care.name, care.uid, care.attempt))


def _dismiss(turn: RunTurn, care: WorkerCare) -> None:
    """A worker without executors leaves."""
    turn.say(f"worker {care.name} leaves")
    turn.actions.append(StopWorker(care.name, GRACE_S))
    turn.state = replace(
        turn.state,
        workers={name: other for name, other in turn.state.workers.items() if name != care.name},
        attempts={**turn.state.attempts, care.name: care.attempt},
    )
    turn.publish(forget_worker(turn.state.schedules, care.name))


def _working(state: RunState) -> frozenset[str]:
    """Workers that hold executors."""
    return frozenset(e.worker for schedule in state.schedules.values() for e in schedule.executors)


def _shards(state: RunState) -> dict[str, int]:
    """Worker -> shards that it holds."""
    return {name: held.shards for name, held in holdings(state.schedules.values(), {}).items()}
