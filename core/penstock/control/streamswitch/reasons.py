"""StreamSwitch's decisions in words, and what they saw by executor. Neighbours: `diagnose` chooses, `policy`
puts choice and words together."""

from __future__ import annotations

import math

import numpy as np

from penstock.control.decision import Action, ExecutorView, Health, MoveShards, Treatment
from penstock.control.streamswitch.diagnose import Diagnosis
from penstock.control.streamswitch.examination import Examination
from penstock.control.target import LatencyTarget, TaskLimits
from penstock.control.wording import counted, in_time, of_rate


def views_of(examined: Examination, diagnosis: Diagnosis) -> tuple[ExecutorView, ...]:
    return tuple(
        ExecutorView(
            name,
            arrival,
            service,
            instantaneous,
            expected,
            Health.SEVERE if is_severe else Health.GOOD if is_good else Health.MODERATE,
            tasks,
        )
        for name, arrival, service, instantaneous, expected, is_severe, is_good, tasks in zip(
            examined.executors,
            examined.arrival_per_s.tolist(),
            examined.service_per_s.tolist(),
            examined.instantaneous_us.tolist(),
            diagnosis.expected_us.tolist(),
            diagnosis.is_severe.tolist(),
            diagnosis.is_good.tolist(),
            examined.tasks,
            strict=True,
        )
    )


def _state(view: ExecutorView, is_stalled: bool) -> str:
    """ "E3 expects 1.8 s at 950/s of 1000/s served and has 140 ms now"."""
    now = in_time(view.instantaneous_us or 0.0)
    if is_stalled:
        return f"{view.name} completes nothing, and rows have waited there for {now}"
    expected_us = view.expected_us if view.expected_us is not None else math.inf
    expects = "cannot keep up" if expected_us == math.inf else f"expects {in_time(expected_us)}"
    rates = f"at {of_rate(view.arrival_per_s or 0.0)} of {of_rate(view.service_per_s or 0.0)} served"
    return f"{view.name} {expects} {rates} and has {now} now"


def _expected(us: float) -> str:
    return "still too much for both" if us == math.inf else f"expected {in_time(us)}"


def why(
    examined: Examination,
    diagnosis: Diagnosis,
    views: tuple[ExecutorView, ...],
    actions: tuple[Action, ...],
) -> str:
    strategy = diagnosis.strategy
    assert strategy is not None  # noqa: S101 - the caller has one
    source = views[strategy.source]
    what = counted(len(strategy.moved), "shard")
    verb = "goes" if len(strategy.moved) == 1 else "go"
    if diagnosis.treatment is Treatment.SCALE_IN:
        worst_us = max(view.expected_us or 0.0 for view in views)
        into = views[strategy.destination or 0].name
        return (
            f"all {counted(len(views), 'executor')} are good, the worst expects {in_time(worst_us)}: "
            f"{what} of {source.name} {verb} to {into}, which then expects {in_time(strategy.destination_us)}"
        )
    state = _state(source, bool(examined.stalled[strategy.source]))
    to, *others = [action for action in actions if isinstance(action, MoveShards)]
    kind = "new executor " if strategy.destination is None else ""
    expected = _expected(max(strategy.source_us, strategy.destination_us))
    said = f"{state}: {what} {verb} to {kind}{to.destination}, {expected}"
    if not others:
        return said
    beside = [
        f"{counted(len(move.shards), 'shard')} of {move.source} to {move.destination}" for move in others
    ]
    return f"{said}; at the same time {', '.join(beside)}"


def why_not(
    examined: Examination,
    diagnosis: Diagnosis,
    views: tuple[ExecutorView, ...],
    target: LatencyTarget,
    limits: TaskLimits | None,
) -> str:
    """Why nothing is done."""
    if diagnosis.rule == "good":
        count = counted(len(views), "executor")
        if limits is not None and sum(examined.tasks) <= limits.min:
            return f"{count}, all good, and no fewer are allowed"
        return f"{count}, all good, and none could be spared"
    if diagnosis.rule == "moderate":
        view = next(view for view in views if view.health is Health.MODERATE)
        state = _state(view, is_stalled=False)
        if (view.instantaneous_us or 0.0) > target.alert_us:
            return f"{state}: it should get better by itself"
        return f"{state}, within the alert threshold of {in_time(target.alert_us)}"
    severe = [index for index, view in enumerate(views) if view.health is Health.SEVERE]
    state = _state(views[severe[0]], bool(examined.stalled[severe[0]]))
    if diagnosis.rule == "incurable":
        return f"{state}, and no move of its shards helps"
    return f"{state}, no more tasks are allowed, and no move between those that are there helps"


def alone(examined: Examination, executor: int, view: ExecutorView, target: LatencyTarget) -> str:
    """What keeps moves from helping an executor: its heaviest shard."""
    held = np.flatnonzero(examined.holder == executor)
    if not held.size:
        return f"{view.name} has no shard and still expects more than {in_time(target.latency_us)}"
    heaviest = held[examined.shard_arrival_per_s[held].argmax()]
    rate = float(examined.shard_arrival_per_s[heaviest])
    return (
        f"shard {examined.shards[heaviest]} alone brings {of_rate(rate)} to {view.name}, "
        f"which serves {of_rate(view.service_per_s or 0.0)}: a shard cannot be split"
    )
