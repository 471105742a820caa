"""Two time scales: Elasticutor's future work (Wang et al., SIGMOD 2019, appendix B), with StreamSwitch on the
slow one.

The fast parent (Elasticutor) gives executors cores at every look. It cannot help an executor that has
outgrown its node (more cores would be remote ones, and rows go there and back), nor join executors that have
become small (each holds a core in reserve). So every `every_us` (10 s and up) each operator is looked at once
more, and at most one thing is done, in this order:

1. split: an executor that needs more cores than its node has, or has most of them elsewhere, gives the shards
   of these to a new executor, on the node where it has most remote cores, else where most are free;
2. the slow parent's load balance or scale-out, where its source is congested and cores do not cure it;
3. the slow parent's scale-in, where what comes together fits its node;
4. merge: the executor with least work joins another whose node then holds both with room to spare, if that
   saves a core (M/M/k systems put together always need fewer servers).

The slow parent is shown every snapshot, so that its averages are whole, and heard at these moments alone.
Neighbours: `elasticutor.policy` is the fast parent, any other policy may be the slow one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from penstock.control.decision import PolicyDecision, Treatment
from penstock.control.hybrid.peaks import Peaks
from penstock.control.hybrid.plans import Settings, heard, merge, split
from penstock.control.hybrid.scene import Scene
from penstock.control.policy import Policy, Watches
from penstock.control.samples.sample_table import ARRIVED
from penstock.control.samples.shard_rates import ServiceMemory, ShardRates
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.target import Scope

_SAMPLES = 8
"""Of the slow time scale's window."""


class Hybrid:
    """A policy made of two. Decisions of the fast one stand, except for an operator whose executors change
    now."""

    def __init__(
        self, scope: Scope, fast: Policy, slow: Policy | None = None, settings: Settings | None = None
    ) -> None:
        self._scope = scope
        self._fast = fast
        self._slow = slow
        self._settings = settings or Settings()
        self._rates: dict[str, ShardRates] = {}
        self._service: dict[str, ServiceMemory] = {}
        self._peaks: dict[str, Peaks] = {}
        self._looked_us: dict[str, int] = {}
        self._sampled_us: dict[str, int] = {}
        """When the next sample is due."""

    @property
    def name(self) -> str:
        """As users name it."""
        return "hybrid"

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        """The fast parent's decisions, one an operator, some replaced by a REPARTITION of the slow time
        scale."""
        fast = self._fast.decide(snapshot)
        slow: dict[str, PolicyDecision] = {}
        if isinstance(self._slow, Watches) and snapshot.at_us < self._due_us(snapshot.operators):
            self._slow.watch(snapshot)
        elif self._slow is not None:
            slow = {each.operator: each for each in self._slow.decide(snapshot)}
        answer = []
        for decision in fast:
            operator = snapshot.operators.get(decision.operator)
            planned = None
            if operator is not None and operator.operator in self._scope.targets:
                planned = self._planned(snapshot, operator, decision, slow.get(operator.operator))
            answer.append(planned or replace(decision, policy=self.name))
        return tuple(answer)

    def _due_us(self, operators: Iterable[str]) -> float:
        """When the first of `operators` is looked at on the slow time scale."""
        return min(
            (self._looked_us.get(name, math.inf) + self._settings.every_us for name in operators),
            default=math.inf,
        )

    def _planned(
        self,
        snapshot: TopologySnapshot,
        operator: OperatorSnapshot,
        fast: PolicyDecision,
        slow: PolicyDecision | None,
    ) -> PolicyDecision | None:
        rates = self._rates.setdefault(operator.operator, ShardRates(self._settings.every_us))
        looked_us = self._looked_us.setdefault(operator.operator, snapshot.at_us)
        is_due = not operator.treatment and snapshot.at_us - looked_us >= self._settings.every_us
        if not is_due and snapshot.at_us < self._sampled_us.get(operator.operator, snapshot.at_us):
            return None
        self._sampled_us[operator.operator] = snapshot.at_us + self._settings.every_us // _SAMPLES
        look = rates.observe(snapshot.at_us, operator)
        peaks = self._peaks.setdefault(operator.operator, Peaks(self._settings.calm_us))
        peaks.take(snapshot.at_us, look.executors, look.counted[ARRIVED])
        by_executor = self._service.setdefault(operator.operator, ServiceMemory()).rates([look])
        if not is_due:
            return None
        self._looked_us[operator.operator] = snapshot.at_us
        scene = Scene.of(snapshot, operator, look, by_executor, self._scope)
        if scene is None:
            return None
        limits = self._scope.limits.get(operator.operator)
        calm = self._calm(snapshot.at_us, scene)
        plan = split(scene, self._settings) or heard(scene, calm, fast, slow, self._settings)
        if plan is None and calm is not None:
            plan = merge(calm, self._settings, limits.min if limits else 0)
        if plan is None:
            return None
        return PolicyDecision(
            at_us=snapshot.at_us,
            policy=self.name,
            operator=operator.operator,
            treatment=Treatment.REPARTITION,
            rule=plan.rule,
            reason=plan.reason,
            health=fast.health,
            actions=plan.actions,
            seen=fast.seen,
            without=fast.without,
            expected=plan.expected,
            conditions=fast.conditions,
        )

    def _calm(self, at_us: int, scene: Scene) -> Scene | None:
        """`scene` with the loads that must fit where executors are joined; None where it is too soon."""
        if scene.target_us >= self._settings.start_us:
            return scene
        peaks = self._peaks[scene.operator.operator].of(at_us)
        return None if peaks is None else scene.with_loads(peaks)
