"""Static(n), the baseline that never adapts (StreamSwitch, section 6): n executors, shards spread by count.

An executor is one task here, as in StreamSwitch. The paper's static solutions begin with their n executors
and have no switching overhead; where a topology runs with another number, one treatment brings it to n, and
from then on nothing is ever decided. Neighbours: `drs` and the adapting policies are compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.control.decision import Action, Health, PolicyDecision, Treatment
from penstock.control.executor_names import CountingNames, NameExecutor
from penstock.control.resizing import resize
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.target import Scope


class Static:
    """Holds every operator in scope at as many executors as `executors` says for it.

    It looks at no metric: the health of its decisions is UNKNOWN. ValueError for a number outside an
    operator's limits, or for none.
    """

    def __init__(
        self, scope: Scope, executors: Mapping[str, int], name_executor: NameExecutor | None = None
    ) -> None:
        for operator in scope.targets:
            wanted, limits = executors.get(operator, 0), scope.limits.get(operator)
            if wanted < 1 or (limits is not None and not limits.min <= wanted <= limits.max):
                raise ValueError(
                    f"operator {operator} cannot have {wanted} executors, its limits are {limits}"
                )
        self._executors = {operator: executors[operator] for operator in scope.targets}
        self._name_executor = name_executor or CountingNames()

    @property
    def name(self) -> str:
        return "Static"

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        """One decision an operator in scope: NONE, or REPARTITION to the number that was asked for."""
        return tuple(
            self._one(snapshot.at_us, seen, self._executors[operator])
            for operator, seen in snapshot.operators.items()
            if operator in self._executors
        )

    def _one(self, at_us: int, seen: OperatorSnapshot, wanted: int) -> PolicyDecision:
        has = len(seen.executors)
        actions: tuple[Action, ...] = ()
        treatment, rule, reason = Treatment.NONE, "static-size", f"{has} executors, as asked for"
        if seen.treatment:
            rule, reason = "treatment", "a treatment is under way"
        elif has != wanted:
            actions = resize(seen, wanted, self._name_executor)
            treatment, reason = Treatment.REPARTITION, f"{has} executors, {wanted} are asked for"
        return PolicyDecision(
            at_us=at_us,
            policy=self.name,
            operator=seen.operator,
            treatment=treatment,
            rule=rule,
            reason=reason,
            health=Health.UNKNOWN,
            actions=actions,
        )
