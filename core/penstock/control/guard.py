"""What stands around every policy: bounds and budget, up at once and down slowly, no plan again that brought
nothing.

A guard lets a decision pass or turns it into HOLD, with the reason. It takes one of its own only where an
operator is out of bounds and the policy does not lead it back (`bounds`). With `PAPER_RULES` it lets through
whatever is within bounds, as the papers run. Neighbours: `outcomes` measures what decisions brought, any
`Policy` is inside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from penstock.control.bounds import back_into_bounds, wanted_tasks
from penstock.control.decision import (
    AddExecutor,
    AssignCores,
    Health,
    MoveShards,
    Outcome,
    PolicyDecision,
    RemoveExecutor,
    Treatment,
)
from penstock.control.executor_names import CountingNames, NameExecutor
from penstock.control.outcomes import OutcomeWatch, load_has_grown, plan_of, promise_words
from penstock.control.policy import Policy
from penstock.control.sliding_extreme import SlidingMax
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope
from penstock.control.wording import counted, in_time, of_rate

OUTCOMES_KEPT = 256

_CORES_EPSILON = 1e-9
_FOR_LATENCY = (Treatment.CORES, Treatment.SCALE_OUT, Treatment.LOAD_BALANCE)
"""Treatments whose only aim is a lower latency."""


@dataclass(frozen=True, slots=True)
class GuardRules:
    """`scale_in_after_us`: how long an operator must have been in good health, and its last scale-in ago,
    before it gives up a task; what is left must then hold the greatest load of that time. 0: at once.
    `share_min`: a plan that brought less than this share of its promise is not repeated for
    `blocked_us`, as long as no more arrives than it was made for. 0: none is blocked, not even one that made
    things worse. `asks_for_need`: no task comes for an operator of which nothing is severe, and which is
    expected to keep its bound if nothing is done."""

    scale_in_after_us: int = 10_000_000
    share_min: float = 0.1
    blocked_us: int = 60_000_000
    asks_for_need: bool = True


PAPER_RULES = GuardRules(scale_in_after_us=0, share_min=0.0, asks_for_need=False)
"""Without what the papers do not have: only bounds and budget are kept."""


class Guard:
    """See `Policy`; has the name of the one inside. `name_executor` names executors that bounds ask for."""

    def __init__(
        self,
        inner: Policy,
        scope: Scope,
        rules: GuardRules | None = None,
        name_executor: NameExecutor | None = None,
    ) -> None:
        self._inner = inner
        self._scope = scope
        self._rules = rules or GuardRules()
        self._name_executor = name_executor or CountingNames("b")
        self._watches: dict[str, Watch] = {}
        self._outcomes: deque[Outcome] = deque(maxlen=OUTCOMES_KEPT)

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What decisions brought, the oldest first; the last 256."""
        return tuple(self._outcomes)

    def retarget(self, targets: Mapping[str, LatencyTarget]) -> None:
        """Other targets for operators in scope; the policy inside is told by whoever has it."""
        self._scope = replace(self._scope, targets={**self._scope.targets, **targets})

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        """What the policy inside decides, within bounds. Of decisions that ask for more tasks at one moment
        the first come first; tasks given up at that moment do not count as free yet."""
        tasks = snapshot.tasks
        return tuple(
            self._judged(snapshot, self._led_back(snapshot, decision, tasks), tasks)
            for decision in self._inner.decide(snapshot)
        )

    def _watch(self, operator: str) -> Watch:
        watch = self._watches.get(operator)
        if watch is None:
            watch = self._watches[operator] = Watch(self._rules, self._window_us(operator))
        return watch

    def _judged(
        self, snapshot: TopologySnapshot, decision: PolicyDecision, tasks: dict[str, int]
    ) -> PolicyDecision:
        """`tasks` is operator -> tasks, with those that decisions before this one ask for."""
        watch = self._watch(decision.operator)
        self._record(watch, watch.outcomes.look(snapshot, decision), snapshot.at_us)
        watch.look(decision)
        if not decision.actions:
            return self._with_bounds(decision)
        after = tasks_after(snapshot, decision)
        held = self._refusal(snapshot, decision, watch, tasks, after)
        if held is not None:
            rule, why = held
            return self._with_bounds(
                replace(
                    decision,
                    treatment=Treatment.HOLD,
                    rule=rule,
                    reason=f"{why}; otherwise: {decision.reason}",
                    actions=(),
                    expected=None,
                )
            )
        if _is_down(snapshot, after):
            watch.scaled_in(decision)
        for operator, count in after.items():
            tasks[operator] = max(tasks[operator], count)
        self._record(watch, watch.outcomes.began(decision, decision), snapshot.at_us)
        return decision

    def _is_outside(self, seen: OperatorSnapshot) -> bool:
        limits = self._scope.limits.get(seen.operator)
        return limits is not None and not seen.treatment and not limits.min <= seen.tasks <= limits.max

    def _led_back(
        self, snapshot: TopologySnapshot, decision: PolicyDecision, tasks: Mapping[str, int]
    ) -> PolicyDecision:
        """`decision`, or one that leads its operator back into bounds where that does not. Counts of tasks
        need no metrics: this waits for none."""
        seen = snapshot.operators.get(decision.operator)
        if seen is None or not self._is_outside(seen):
            return decision
        limits = self._scope.limits[decision.operator]
        if decision.actions:
            after = tasks_after(snapshot, decision)[decision.operator]
            if after > seen.tasks if seen.tasks < limits.min else after < seen.tasks:
                return decision
        free = self._scope.cores_allowed(snapshot.cores_max) - self._scope.cores_used(tasks) + _CORES_EPSILON
        spare = free / self._scope.cores_of(decision.operator)
        wanted = wanted_tasks(seen, limits, spare)
        actions = back_into_bounds(seen, wanted, self._name_executor)
        few = seen.tasks < limits.min
        asked = f"{limits.min} at least" if few else f"{limits.max} at most"
        reason = f"{decision.operator} has {counted(seen.tasks, 'task')}, {asked} are asked for"
        if not actions:
            return replace(
                decision,
                treatment=Treatment.HOLD,
                rule="guard-bounds",
                reason=f"{reason}, and the budget has no core left",
                actions=(),
                expected=None,
            )
        return replace(
            decision,
            treatment=Treatment.SCALE_OUT if few else Treatment.SCALE_IN,
            rule="back-into-bounds",
            reason=reason,
            actions=actions,
            expected=None,
        )

    def _window_us(self, operator: str) -> int:
        targets = self._scope.targets
        if operator in targets:
            return targets[operator].window_us
        return max((target.window_us for target in targets.values()), default=1_000_000)

    def _record(self, watch: Watch, outcome: Outcome | None, at_us: int) -> None:
        if outcome is None:
            return
        self._outcomes.append(outcome)
        if outcome.share is not None and self._rules.share_min > max(outcome.share, 0.0):
            watch.blocked[plan_of(outcome.decision)] = (at_us + self._rules.blocked_us, outcome)

    def _refusal(
        self,
        snapshot: TopologySnapshot,
        decision: PolicyDecision,
        watch: Watch,
        tasks: Mapping[str, int],
        after: Mapping[str, int],
    ) -> tuple[str, str] | None:
        """(rule, why) it must not be done now."""
        if any(snapshot.operators[operator].treatment for operator in after):
            return "guard-treatment", "a treatment is under way"
        # To give back what helped nobody is no repetition, though it names the same executors.
        blocked = None if _is_down(snapshot, after) else watch.is_blocked(decision)
        if blocked is not None:
            return "guard-blocked", blocked
        over = self._over_bounds(tasks, after, snapshot.cores_max)
        if over is not None:
            return "guard-bounds", over
        without_need = self._without_need(snapshot, decision, after) if self._rules.asks_for_need else None
        if without_need is not None:
            return "guard-need", without_need
        is_due = decision.rule == "back-into-bounds"
        if self._rules.scale_in_after_us > 0 and _is_down(snapshot, after) and not is_due:
            too_soon = watch.is_too_soon(decision, self._scope.targets.get(decision.operator))
            if too_soon is not None:
                return "guard-scale-in", too_soon
        return None

    def _without_need(
        self, snapshot: TopologySnapshot, decision: PolicyDecision, after: Mapping[str, int]
    ) -> str | None:
        """Why the operator needs none of the tasks that it is to have more. Executors that are split to be
        nearer to their cores, and an operator with too few tasks, have reasons of their own."""
        target = self._scope.targets.get(decision.operator)
        if target is None or decision.without is None or decision.treatment not in _FOR_LATENCY:
            return None
        tasks = snapshot.operators[decision.operator].tasks
        is_up = after[decision.operator] > tasks >= self._scope.limits_of(decision.operator).min
        is_severe = any(view.health is Health.SEVERE for view in decision.seen)
        if not is_up or is_severe or decision.without.latency_us > target.latency_us:
            return None
        return (
            f"{in_time(decision.without.latency_us)} is expected if nothing is done, "
            f"{in_time(target.latency_us)} is allowed"
        )

    def _over_bounds(self, tasks: Mapping[str, int], after: Mapping[str, int], left: float) -> str | None:
        """A change that leads out of bounds, or further out. One that leads back is let through. Others leave
        `left` cores."""
        for operator, count in after.items():
            limits = self._scope.limits.get(operator)
            if limits is None:
                continue
            if count > limits.max and count > tasks[operator]:
                return f"{operator} may have {counted(limits.max, 'task')} at most"
            if count < limits.min and count < tasks[operator]:
                return f"{operator} must have {counted(limits.min, 'task')} at least"
        most = self._scope.cores_allowed(left)
        now, then = self._scope.cores_used(tasks), self._scope.cores_used({**tasks, **after})
        if then > most + _CORES_EPSILON and then > now + _CORES_EPSILON:
            own = most == self._scope.cores_max
            budget = f"the budget is {most:g} cores" if own else f"others leave {most:g} cores of maxCores"
            return f"{budget}, and {now:g} are in use"
        return None

    def _with_bounds(self, decision: PolicyDecision) -> PolicyDecision:
        """Says so where even the most tasks allowed cannot serve what arrives."""
        limits = self._scope.limits.get(decision.operator)
        if (
            decision.health is not Health.SEVERE
            or limits is None
            or "Infeasible" in decision.conditions
            or decision.without is None
            or not decision.seen
        ):
            return decision
        arrival = sum(view.arrival_per_s or 0.0 for view in decision.seen)
        served = sum(view.service_per_s or 0.0 for view in decision.seen) / max(decision.without.tasks, 1)
        if not 0 < served * limits.max < arrival:
            return decision
        words = (
            f"{of_rate(arrival)} arrive, and {counted(limits.max, 'task')}, the most allowed, "
            f"serve {of_rate(served * limits.max)}"
        )
        return replace(decision, conditions={**decision.conditions, "Infeasible": words})


class Watch:
    """What is remembered of one operator: health, loads, outcomes."""

    def __init__(self, rules: GuardRules, window_us: int) -> None:
        self.outcomes = OutcomeWatch(window_us)
        self.blocked: dict[Hashable, tuple[int, Outcome]] = {}
        """By plan: until when, and what it brought."""
        self._span_us = rules.scale_in_after_us
        self._good_since_us: int | None = None
        self._loads: dict[str, SlidingMax] = {}
        self._slowness: dict[str, SlidingMax] = {}
        """Seconds a row of one task: the greatest is the least service rate."""

    def look(self, decision: PolicyDecision) -> None:
        if self._span_us <= 0:
            return
        if decision.health is not Health.GOOD:
            self._good_since_us = None
        elif self._good_since_us is None:
            self._good_since_us = decision.at_us
        for view in decision.seen:
            if view.arrival_per_s is not None:
                self._of(self._loads, view.name).add(decision.at_us, view.arrival_per_s)
            if view.service_per_s:
                self._of(self._slowness, view.name).add(decision.at_us, view.tasks / view.service_per_s)
        self._forget(tuple([view.name for view in decision.seen]))

    def _of(self, kept: dict[str, SlidingMax], executor: str) -> SlidingMax:
        if executor not in kept:
            kept[executor] = SlidingMax(self._span_us)
        return kept[executor]

    def _forget(self, there: tuple[str, ...]) -> None:
        """Executors that have gone; `there` is empty where none was looked at."""
        if there and len(self._loads) > len(there):
            self._loads = {name: load for name, load in self._loads.items() if name in there}
            self._slowness = {name: slow for name, slow in self._slowness.items() if name in there}

    def scaled_in(self, decision: PolicyDecision) -> None:
        """The clock starts anew: one step down at a time."""
        self._good_since_us = None

    def is_blocked(self, decision: PolicyDecision) -> str | None:
        plan = plan_of(decision)
        until_us, outcome = self.blocked.get(plan, (0, None))
        if outcome is None:
            return None
        # What a plan brought says something of the load that it was tried under, and of no greater one.
        if decision.at_us >= until_us or load_has_grown(outcome.decision, decision):
            del self.blocked[plan]
            return None
        ago_us = decision.at_us - outcome.decision.at_us
        return f"the same {decision.treatment} {in_time(ago_us)} ago did not help: {promise_words(outcome)}"

    def is_too_soon(self, decision: PolicyDecision, target: LatencyTarget | None) -> str | None:
        """Why a scale-in has to wait."""
        good_us = 0 if self._good_since_us is None else decision.at_us - self._good_since_us
        if good_us < self._span_us:
            return f"good health for {in_time(good_us)}, {in_time(self._span_us)} are asked for"
        if target is None:
            return None
        return self._would_not_hold(decision, target)

    def _would_not_hold(self, decision: PolicyDecision, target: LatencyTarget) -> str | None:
        """Whether the greatest loads of the last while would not fit where shards go, at the least service
        rates: lambda_s + lambda_d against (1 - epsilon) mu_d of all tasks that it will have, both over that
        while. Shards of one executor that go to several weigh alike."""
        tasks = {view.name: view.tasks for view in decision.seen}
        for action in decision.actions:
            if isinstance(action, AssignCores):
                tasks[action.name] = sum(action.cores.values())
        held: dict[str, int] = {}
        for action in decision.actions:
            if isinstance(action, MoveShards):
                held[action.source] = held.get(action.source, 0) + len(action.shards)
        coming: dict[str, float] = {}
        for action in decision.actions:
            if isinstance(action, MoveShards):
                share = len(action.shards) / held[action.source]
                coming[action.destination] = coming.get(action.destination, 0.0) + share * self._peak(
                    action.source
                )
        for destination, load in coming.items():
            slow = self._slowness.get(destination)
            slowest = slow.greatest if slow is not None else None
            if slowest is None:
                continue
            count = max(1, tasks.get(destination, 1))
            capacity = count * (1 - target.safety_margin) / slowest
            peak = load + self._peak(destination)
            if capacity - peak < count * 1e6 / target.latency_us:
                return (
                    f"{of_rate(peak)} came to both in the last {in_time(self._span_us)}, "
                    f"{destination} should get {of_rate(capacity)} at most"
                )
        return None

    def _peak(self, executor: str) -> float:
        load = self._loads.get(executor)
        return (load.greatest if load is not None else None) or 0.0


def tasks_after(snapshot: TopologySnapshot, decision: PolicyDecision) -> dict[str, int]:
    """Operator -> tasks once `decision` is carried out, of the operators that it touches."""
    owner = {
        executor.name: name
        for name, operator in snapshot.operators.items()
        for executor in operator.executors
    }
    tasks = {
        executor.name: executor.tasks
        for operator in snapshot.operators.values()
        for executor in operator.executors
    }
    touched: set[str] = {decision.operator} & snapshot.operators.keys()
    for action in decision.actions:
        match action:
            case AddExecutor(name, count):
                owner[name] = decision.operator or _operator_of(snapshot, decision, name)
                tasks[name] = count
            case RemoveExecutor(name):
                tasks[name] = 0
            case AssignCores(name, cores):
                tasks[name] = sum(cores.values())
            case MoveShards(_, name, _):
                pass
        if owner.get(name):
            touched.add(owner[name])
    return {
        operator: sum(count for name, count in tasks.items() if owner.get(name) == operator)
        for operator in sorted(touched)
    }


def _operator_of(snapshot: TopologySnapshot, decision: PolicyDecision, executor: str) -> str:
    """Whose shards go to a new executor, in a decision about a whole topology; "" if none do."""
    for action in decision.actions:
        if isinstance(action, MoveShards) and action.destination == executor:
            for name, operator in snapshot.operators.items():
                if any(shard in operator.assignment for shard in action.shards):
                    return name
    return ""


def _is_down(snapshot: TopologySnapshot, after: Mapping[str, int]) -> bool:
    """Tasks are given up and none come. What takes from one operator for another is no step down."""
    changes = [count - snapshot.operators[operator].tasks for operator, count in after.items()]
    return any(change < 0 for change in changes) and not any(change > 0 for change in changes)
