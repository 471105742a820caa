"""Decide: what a policy says of a snapshot, and which of it can be begun.

Neighbours: `policies` makes the policy that is asked, `fitting` cuts a decision to the schedules that there
are, `treatment` makes its first step; `follow` carries it on, `journal` keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from penstock.control.decision import Health, PolicyDecision, Treatment
from penstock.control.policy import Policy
from penstock.control.snapshot import TopologySnapshot
from penstock.control.target import LatencyTarget
from penstock.sla.fitting import begin_what_fits, by_operator, without_remote_cores
from penstock.sla.journal import REFUSED, Journal
from penstock.sla.look import Places, SlaLook
from penstock.sla.promise import Promise
from penstock.sla.treatment import ActionRefused, Advance, NoRoom, begin_single_tasks
from penstock.sla.turn import HELD, NEWS_WINDOWS, UNAVAILABLE, Ways


@runtime_checkable
class Splits(Protocol):
    """A policy that splits an end-to-end bound anew: `targets` are the parts of now."""

    @property
    def targets(self) -> Mapping[str, LatencyTarget]: ...


@dataclass(frozen=True, slots=True)
class Begun:
    """A decision about one operator that has begun, by its number, with its first step."""

    decision: PolicyDecision
    number: int
    advance: Advance


class Decider:
    """For one SLA."""

    def __init__(self, promise: Promise, policy: Policy, ways: Ways, journal: Journal) -> None:
        self._promise = promise
        self._policy = policy
        self._ways = ways
        self._journal = journal
        self._since_us: dict[str, int] = {}
        self.conditions: dict[str, str] = {}
        """Those that hold now, each with its sentence."""
        self.expected_us: dict[str, float] = {}
        """Operator -> the latency that the policy last expected of it."""
        self.lacks_room = False
        """More tasks were wanted at this look than there is room for."""

    @property
    def targets(self) -> Mapping[str, LatencyTarget]:
        """Operator -> its part of the bound, where the policy has split it anew; {} where it does not."""
        return self._policy.targets if isinstance(self._policy, Splits) else {}

    def away(self, why: str) -> None:
        """Nothing can be decided: the store said nothing."""
        self.conditions = {UNAVAILABLE: why}

    def ask(self, snapshot: TopologySnapshot, held: str) -> tuple[PolicyDecision, ...]:
        """What the policy says. `held` says why nothing may be done, "" when it may."""
        self.lacks_room = False
        decisions = self._policy.decide(snapshot)
        self.conditions = {HELD: held} if held else {}
        for decision in decisions:
            self.conditions.update(decision.conditions)
        self._since_us = {kind: self._since_us.get(kind, snapshot.at_us) for kind in self.conditions}
        return decisions

    def begin(self, decision: PolicyDecision, look: SlaLook, is_free: Callable[[str], bool]) -> list[Begun]:
        """What of a decision begins now: a part for each operator that it is about and that `is_free`."""
        prediction = decision.expected or decision.without
        if prediction is not None:
            self.expected_us[decision.operator] = prediction.latency_us
        if not decision.actions or look.leeway.held or look.leeway.busy or self._promise.dry_run:
            self._show(decision)
            return []
        parts = (
            replace(decision, operator=operator, actions=actions)
            for operator, actions in by_operator(decision, look.places.schedules).items()
            if is_free(operator)
        )
        begun = (self._begin(part, look) for part in parts)
        return [one for one in begun if one is not None]

    def split_tasks(self, look: SlaLook, free: Collection[str]) -> list[Begun]:
        """Executors of several tasks become executors of one each, where the policy knows no others: of
        those operators that are `free`."""
        if not self._ways.are_tasks_single or self._promise.dry_run:
            return []
        begun = (self._split(name, look.places, look.at_us) for name in free)
        return [one for one in begun if one is not None]

    def _begin(self, decision: PolicyDecision, look: SlaLook) -> Begun | None:
        """None where it does not fit what there is; that is kept, and told."""
        schedule = look.places.schedules[decision.operator]
        try:
            if not self._ways.has_remote_cores:
                decision = without_remote_cores(decision, schedule)
            decision, advance, lacks = begin_what_fits(
                decision, schedule, self._promise.scope, look.places, look.at_us
            )
            self.lacks_room |= lacks
        except ActionRefused as refused:
            self.lacks_room |= isinstance(refused, NoRoom)
            reason = f"{decision.reason}; it does not fit what there is: {refused}"
            self._show(replace(decision, treatment=Treatment.HOLD, rule=REFUSED, reason=reason, actions=()))
            return None
        return Begun(decision, self._journal.begun(decision), advance)

    def _split(self, operator: str, places: Places, at_us: int) -> Begun | None:
        decision = PolicyDecision(
            at_us=at_us,
            policy=self._promise.policy,
            operator=operator,
            treatment=Treatment.REPARTITION,
            rule="single-tasks",
            reason=f"an executor has one task each under {self._promise.policy}",
            health=Health.UNKNOWN,
        )
        advance = begin_single_tasks(decision, places.schedules[operator], places.executors, at_us)
        if advance is None or advance.course is None:
            return None
        decision = advance.course.decision
        return Begun(decision, self._journal.begun(decision), advance)

    def _show(self, decision: PolicyDecision) -> None:
        lasting = sorted(kind for kind in decision.conditions if self._lasts(kind, decision.at_us))
        self._journal.shown(decision, lasting)

    def _lasts(self, condition: str, at_us: int) -> bool:
        """After each move a window has to be seen anew: what is missing only then is no news."""
        since_us = self._since_us.get(condition, at_us)
        return at_us - since_us >= NEWS_WINDOWS * self._promise.window_us
