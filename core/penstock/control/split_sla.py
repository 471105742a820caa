"""An end-to-end bound split over operators so that their success rates equalise (StreamSwitch, section 6.6).

The success rate from end to end is highest where the worst of the operators' is, and that is where all are
equal, since each grows with its bound. Every operator has a weight; its bound is its share of the heaviest
path that it is on. Weights begin as service times and follow measured success. Pure. Neighbours:
`penstock.sla.promise` says which operators and edges there are, `StreamSwitch.retarget` takes the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.control.decision import PolicyDecision
from penstock.control.target import LatencyTarget

GAIN = 2.0
"""How strongly a weight follows: an operator whose success is 10 points below the mean gets about a fifth
more."""

WEIGHT_MIN = 0.05
"""The least weight an operator can have, as a share of the greatest: a bound near zero could be kept by
nobody."""

STEP_MAX = 0.5
"""By how much the logarithm of a weight changes at once at most, so that one bad while does not turn
everything."""


def first_weights(service_us: Mapping[str, float | None]) -> dict[str, float]:
    """Operator -> weight, in proportion to its mean service time a row; who has none known gets the mean of
    the others, and all the same where nobody has one. ValueError for a time that is not positive."""
    known = [us for us in service_us.values() if us is not None]
    if any(us <= 0 for us in known):
        raise ValueError(f"service times are {dict(service_us)} us")
    mean = sum(known) / len(known) if known else 1.0
    return _bounded({operator: mean if us is None else us for operator, us in service_us.items()})


def adjusted_weights(weights: Mapping[str, float], success: Mapping[str, float | None]) -> dict[str, float]:
    """`weights` a step nearer to equal success rates (shares in [0, 1]): w_i exp(g (mean - s_i)).

    Who has no rate (None: nothing was measured) stays, and so do all as long as fewer than two have one.
    """
    known = {operator: rate for operator in weights if (rate := success.get(operator)) is not None}
    if len(known) < 2:
        return dict(weights)
    mean = sum(known.values()) / len(known)
    return _bounded(
        {
            operator: weight * math.exp(min(max(GAIN * (mean - known[operator]), -STEP_MAX), STEP_MAX))
            if operator in known
            else weight
            for operator, weight in weights.items()
        }
    )


def bounds_us(
    latency_us: float, weights: Mapping[str, float], edges: Iterable[tuple[str, str]] = ()
) -> dict[str, float]:
    """Operator -> its L_i, such that along every path of `edges` (upstream, downstream) they add up to at
    most `latency_us`, and to all of it along the heaviest. Without edges the operators are one path.

    ValueError for a bound that is not positive, for edges in a circle, or to operators without weight.
    """
    if latency_us <= 0:
        raise ValueError(f"an end-to-end latency of {latency_us} us")
    edges = tuple(edges)
    if not edges:
        whole = sum(weights.values())
        return {operator: latency_us * weight / whole for operator, weight in weights.items()}
    before = heaviest_until(weights, edges)
    after = heaviest_until(weights, tuple((downstream, upstream) for upstream, downstream in edges))
    return {
        operator: latency_us * weight / (before[operator] + after[operator] - weight)
        for operator, weight in weights.items()
    }


def heaviest_until(weights: Mapping[str, float], edges: tuple[tuple[str, str], ...]) -> dict[str, float]:
    """Operator -> the sum of weights along the heaviest path of `edges` that ends with it. ValueError for
    edges in a circle, or to operators without weight."""
    sums = dict(weights)
    for operator in _in_order(weights, edges):
        for upstream, downstream in edges:
            if upstream == operator:
                sums[downstream] = max(sums[downstream], sums[operator] + weights[downstream])
    return sums


@dataclass(slots=True)
class _Looks:
    good: int = 0
    all: int = 0


class EndToEndSplit:
    """Splits a bound anew every `interval_us`, by the success that each operator's decisions show.

    A look at an operator is a success if no executor's instantaneous latency l_i is above the operator's
    bound, as the paper proposes to measure it.
    """

    def __init__(
        self,
        latency_us: float,
        targets: Mapping[str, LatencyTarget],
        edges: Iterable[tuple[str, str]] = (),
        interval_us: int = 60_000_000,
        service_us: Mapping[str, float | None] | None = None,
    ) -> None:
        """`targets` give everything but the bounds. Service times that are not given are taken from the first
        decisions that know them all. ValueError as `bounds_us`."""
        self._latency_us = latency_us
        self._edges = tuple(edges)
        self._interval_us = interval_us
        self._has_service = service_us is not None
        self._weights = first_weights(service_us or dict.fromkeys(targets))
        self._looks = {operator: _Looks() for operator in targets}
        self._since_us: int | None = None
        self._asked = dict(targets)
        self._targets = self._bounded_targets()

    @property
    def targets(self) -> Mapping[str, LatencyTarget]:
        """Operator -> target with the bound of now. No alert threshold is above its bound."""
        return self._targets

    def look(self, decisions: Iterable[PolicyDecision]) -> bool:
        """Take in one moment's decisions of the operators; answers whether `targets` are others now."""
        decisions = [decision for decision in decisions if decision.operator in self._targets]
        if not decisions:
            return False
        at_us = decisions[0].at_us
        if not self._has_service and self._takes_service(decisions):
            self._since_us = at_us
            return True
        if self._since_us is None:
            self._since_us = at_us
        for decision in decisions:
            self._count(decision)
        if at_us - self._since_us < self._interval_us:
            return False
        self._since_us = at_us
        success = {name: looks.good / looks.all if looks.all else None for name, looks in self._looks.items()}
        self._looks = {operator: _Looks() for operator in self._targets}
        weights = adjusted_weights(self._weights, success)
        if weights == self._weights:
            return False
        self._weights = weights
        self._targets = self._bounded_targets()
        return True

    def _takes_service(self, decisions: Iterable[PolicyDecision]) -> bool:
        service_us: dict[str, float | None] = {}
        for decision in decisions:
            rates = [view.service_per_s for view in decision.seen if view.service_per_s]
            if rates:
                service_us[decision.operator] = 1e6 * len(rates) / sum(rates)
        if service_us.keys() != self._targets.keys():
            return False
        self._has_service = True
        self._weights = first_weights(service_us)
        self._targets = self._bounded_targets()
        return True

    def _count(self, decision: PolicyDecision) -> None:
        latencies = [view.instantaneous_us for view in decision.seen if view.instantaneous_us is not None]
        if not latencies:
            return
        looks = self._looks[decision.operator]
        looks.all += 1
        looks.good += max(latencies) <= self._targets[decision.operator].latency_us

    def _bounded_targets(self) -> dict[str, LatencyTarget]:
        bounds = bounds_us(self._latency_us, self._weights, self._edges)
        return {
            operator: replace(
                target, latency_us=bounds[operator], alert_us=min(target.alert_us, bounds[operator])
            )
            for operator, target in self._asked.items()
        }


def _bounded(weights: dict[str, float]) -> dict[str, float]:
    """In shares of the greatest, none below WEIGHT_MIN."""
    greatest = max(weights.values(), default=1.0)
    return {operator: max(weight / greatest, WEIGHT_MIN) for operator, weight in weights.items()}


def _in_order(weights: Mapping[str, float], edges: tuple[tuple[str, str], ...]) -> list[str]:
    """Operators, upstream first. ValueError for a circle or an unknown operator."""
    unknown = {end for edge in edges for end in edge} - weights.keys()
    if unknown:
        raise ValueError(f"edges name {', '.join(sorted(unknown))}, which have no weight")
    left = dict.fromkeys(weights, 0)
    for _, downstream in edges:
        left[downstream] += 1
    order = [operator for operator, count in left.items() if not count]
    for operator in order:
        for upstream, downstream in edges:
            if upstream == operator:
                left[downstream] -= 1
                if not left[downstream]:
                    order.append(downstream)
    if len(order) < len(weights):
        raise ValueError("the edges go in a circle")
    return order
