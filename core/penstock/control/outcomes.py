"""What decisions brought: an `Outcome` for each that was carried out, a window after its treatment ended.

Gains are compared as 1 / latency, which in the model of section 4.2 is the rate in reserve: there a plan that
begins where nothing keeps up has a finite promise. Neighbour: `guard` asks, and blocks what brought nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    ExecutorView,
    MoveShards,
    Outcome,
    PolicyDecision,
    RemoveExecutor,
    Treatment,
)
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.wording import in_time

LOAD_GROWTH_MAX = 1.1
"""A promise is for the load that was seen. By how much it may have grown until the promise is void."""


@dataclass(slots=True)
class _Pending:
    decision: PolicyDecision
    was_treated: bool = False
    ended_us: int | None = None


class OutcomeWatch:
    """The treatment under way or just ended of one operator (or of a topology, where decisions are about
    all)."""

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._pending: _Pending | None = None

    def until_us(self, first: TopologySnapshot) -> float:
        """Up to when, not including, `look` does nothing at snapshots in a row that differ from `first` in
        their counts alone; what it would remember of them is remembered."""
        pending = self._pending
        if pending is None:
            return math.inf
        if any(operator.treatment for operator in _touched(first, pending.decision)):
            pending.was_treated = True
            return math.inf
        return first.at_us if pending.ended_us is None else pending.ended_us + self._window_us

    def began(self, decision: PolicyDecision, now: PolicyDecision | None) -> Outcome | None:
        """`decision` is to be carried out. Answers what is known of one before it, whose window is cut short:
        nothing that could be held against its promise."""
        before, self._pending = self._pending, _Pending(decision)
        if before is None or before.ended_us is None:
            return None
        return _outcome(before.decision, now, share_known=False)

    def look(self, snapshot: TopologySnapshot, now: PolicyDecision) -> Outcome | None:
        """`now` is the same policy's decision on `snapshot`, for what it has seen."""
        pending = self._pending
        if pending is None:
            return None
        operators = _touched(snapshot, pending.decision)
        if any(operator.treatment for operator in operators):
            pending.was_treated = True
            return None
        since_us = snapshot.at_us - (pending.ended_us or pending.decision.at_us)
        if pending.ended_us is None:
            if _is_carried_out(operators, pending.decision.actions):
                pending.ended_us = snapshot.at_us
            elif since_us >= self._window_us:
                self._pending = None
                if pending.was_treated:
                    # It was tried and came to nothing: that is less than any promise.
                    return Outcome(pending.decision, None, _tasks(operators), 0.0)
            return None
        if since_us < self._window_us or (not now.seen and since_us < 2 * self._window_us):
            return None
        self._pending = None
        return _outcome(pending.decision, now, share_known=True)


def sources_of(decision: PolicyDecision) -> tuple[str, ...]:
    """The executors that a decision relieves or removes."""
    names: set[str] = set()
    for action in decision.actions:
        match action:
            case MoveShards(_, source, _):
                names.add(source)
            case RemoveExecutor(name) | AssignCores(name, _):
                names.add(name)
            case AddExecutor():
                pass
    return tuple(sorted(names))


def plan_of(decision: PolicyDecision) -> tuple[Treatment, tuple[tuple[str, int], ...]]:
    """Which plan a decision is: its treatment, the executors that it relieves or removes, and how many cores
    each is to have where it says so (else 0). Three cores for an executor are another plan than two."""
    given = (each for each in decision.actions if isinstance(each, AssignCores))
    cores = {each.name: sum(each.cores.values()) for each in given}
    return decision.treatment, tuple((name, cores.get(name, 0)) for name in sources_of(decision))


def share_of_promise(decision: PolicyDecision, measured_us: float | None, latency_us: float) -> float | None:
    """Measured gain over promised gain, None where no lower latency was promised. The gain is that in 1 /
    latency, or in latency against `measured_us` before it, whichever share is greater: where rows had piled
    up, a window later they are still being worked off, and the expected latency is that of later on."""
    if decision.without is None or decision.expected is None or decision.treatment is Treatment.SCALE_IN:
        return None
    reserve = 1 / decision.without.latency_us if decision.without.latency_us < math.inf else 0.0
    promised = (
        1 / decision.expected.latency_us if decision.expected.latency_us < math.inf else 0.0
    ) - reserve
    if promised <= 0 or latency_us <= 0:
        return None
    share = (1 / latency_us - reserve) / promised
    if measured_us is not None and measured_us > decision.expected.latency_us:
        share = max(share, (measured_us - latency_us) / (measured_us - decision.expected.latency_us))
    return share


def promise_words(outcome: Outcome) -> str:
    """ "100 ms was promised, 2.0 s came"; of a treatment that came to nothing, that."""
    if outcome.latency_us is None or outcome.decision.expected is None:
        return "it was not carried out"
    promised_us = outcome.decision.expected.latency_us
    return f"{in_time(promised_us)} was promised, {in_time(outcome.latency_us)} came"


def before_us(decision: PolicyDecision) -> float | None:
    """The worst latency measured at the executors that `decision` is about, when it was made."""
    return _latency_us(decision, views_by_name(decision))


def _outcome(decision: PolicyDecision, now: PolicyDecision | None, *, share_known: bool) -> Outcome:
    views = {} if now is None else views_by_name(now)
    latency_us = _latency_us(decision, views)
    tasks = now.without.tasks if now is not None and now.without is not None else 0
    share = None
    if share_known and latency_us is not None and not _has_grown(decision, views, _involved(decision)):
        share = share_of_promise(decision, before_us(decision), latency_us)
    return Outcome(decision, latency_us, tasks, share)


def views_by_name(decision: PolicyDecision) -> dict[str, ExecutorView]:
    """Executor -> as `decision` has seen it."""
    return {view.name: view for view in decision.seen}


def _latency_us(decision: PolicyDecision, views: Mapping[str, ExecutorView]) -> float | None:
    """The worst l_i of the executors that `decision` is about, as `views` have it."""
    latencies = [
        view.instantaneous_us
        for name in _involved(decision)
        if (view := views.get(name)) is not None and view.instantaneous_us is not None
    ]
    return max(latencies, default=None)


def load_has_grown(decision: PolicyDecision, now: PolicyDecision) -> bool:
    """Whether at `now` more arrives at the executors that `decision` relieves than when it was made, by so
    much that what it brought says nothing any more."""
    return _has_grown(decision, views_by_name(now), set(sources_of(decision)))


def _has_grown(decision: PolicyDecision, now: Mapping[str, ExecutorView], executors: set[str]) -> bool:
    before = sum(view.arrival_per_s or 0.0 for view in decision.seen if view.name in executors)
    after = sum(view.arrival_per_s or 0.0 for name, view in now.items() if name in executors)
    return after > LOAD_GROWTH_MAX * before


def _involved(decision: PolicyDecision) -> set[str]:
    names: set[str] = set()
    for action in decision.actions:
        match action:
            case MoveShards(_, source, destination):
                names |= {source, destination}
            case AddExecutor(name) | RemoveExecutor(name) | AssignCores(name):
                names.add(name)
    return names


def _touched(snapshot: TopologySnapshot, decision: PolicyDecision) -> list[OperatorSnapshot]:
    if decision.operator:
        seen = snapshot.operators.get(decision.operator)
        return [seen] if seen is not None else []
    involved = _involved(decision)
    return [
        operator
        for operator in snapshot.operators.values()
        if any(executor.name in involved for executor in operator.executors)
    ]


def _is_carried_out(operators: list[OperatorSnapshot], actions: tuple[Action, ...]) -> bool:
    """Shards have left, who was to go is gone, cores are as assigned. Names of new executors may have
    changed."""
    tasks = {executor.name: executor.tasks for operator in operators for executor in operator.executors}
    holder = {shard: name for operator in operators for shard, name in operator.assignment.items()}
    for action in actions:
        match action:
            case MoveShards(shards, source, _):
                if any(holder.get(shard) == source for shard in shards):
                    return False
            case RemoveExecutor(name):
                if name in tasks:
                    return False
            case AssignCores(name, cores):
                if tasks.get(name) != sum(cores.values()):
                    return False
            case AddExecutor():
                pass
    return True


def _tasks(operators: list[OperatorSnapshot]) -> int:
    return sum(operator.tasks for operator in operators)
