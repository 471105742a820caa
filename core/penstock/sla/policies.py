"""From a LatencySLA's `policy` to the code that decides, with what stands around every policy in a live run.

Policies are imported where they are asked for: a run without an SLA needs none of them. Neighbours:
`penstock.control` holds the policies and `guard`, `loop` asks one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.control.decision import Outcome, PolicyDecision
from penstock.control.policy import Policy
from penstock.control.snapshot import TopologySnapshot
from penstock.control.target import LatencyTarget, Scope
from penstock.sla.promise import Promise

if TYPE_CHECKING:
    from penstock.control.guard import Guard
    from penstock.control.split_sla import EndToEndSplit
    from penstock.control.streamswitch.policy import StreamSwitch


SCALE_IN_WINDOWS = 2
"""An operator is in good health for so many windows before it gives up a task, one after the other: what is
slow goes by T. The first one begins before a burst has ended, the second one is all good."""
SWITCH_SCALE_IN_WINDOWS = 1
"""The same under StreamSwitch, which gives up an executor only where another one has room for all of its
load: as long as they are more than half full all stay. That is patience enough."""


def policy_of(promise: Promise, edges: Sequence[tuple[str, str]]) -> Policy:
    """The policy that `promise` names, guarded; `edges` are the plan's (upstream, downstream).

    ValueError for a name that the manifest's model does not know.
    """
    from penstock.control.guard import Guard, GuardRules
    from penstock.control.split_sla import EndToEndSplit
    from penstock.control.streamswitch.policy import StreamSwitch

    scope = promise.scope
    inner = _inner(promise.policy, scope)
    longest_us = max(target.window_us for target in scope.targets.values())
    windows = SWITCH_SCALE_IN_WINDOWS if isinstance(inner, StreamSwitch) else SCALE_IN_WINDOWS
    guard = Guard(inner, scope, GuardRules(scale_in_after_us=windows * longest_us))
    if isinstance(inner, StreamSwitch) and not promise.operator and len(scope.targets) > 1:
        within = [edge for edge in edges if set(edge) <= scope.targets.keys()]
        return EndToEnd(inner, guard, EndToEndSplit(promise.latency_us, scope.targets, within))
    return guard


class EndToEnd:
    """StreamSwitch under an end-to-end bound, whose parts follow the operators' success (section 6.6)."""

    def __init__(self, switch: StreamSwitch, guard: Guard, split: EndToEndSplit) -> None:
        self._switch = switch
        self._guard = guard
        self._split = split
        self._retarget()

    @property
    def name(self) -> str:
        return self._guard.name

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return self._guard.outcomes

    @property
    def targets(self) -> Mapping[str, LatencyTarget]:
        """Operator -> its part of the bound now."""
        return self._split.targets

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        decisions = self._guard.decide(snapshot)
        if self._split.look(decisions):
            self._retarget()
        return decisions

    def _retarget(self) -> None:
        self._switch.retarget(self._split.targets)
        self._guard.retarget(self._split.targets)


def has_single_tasks(name: str) -> bool:
    """Whether an executor has exactly one task under this policy, as in StreamSwitch."""
    return name == "StreamSwitch"


def _inner(name: str, scope: Scope) -> Policy:
    from penstock.control.streamswitch.policy import StreamSwitch

    if name == "StreamSwitch":
        return StreamSwitch(scope)
    from penstock.control.elasticutor.policy import KEYED, Elasticutor

    if name == "Elasticutor":
        return Elasticutor(scope, KEYED)
    from penstock.control.hybrid.policy import Hybrid

    if name == "Hybrid":
        return Hybrid(scope, Elasticutor(scope, KEYED), StreamSwitch(scope, one_at_a_time=True))
    raise ValueError(f"there is no policy {name}")
