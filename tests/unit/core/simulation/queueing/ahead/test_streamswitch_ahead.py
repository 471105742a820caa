"""Looks taken in at once leave a policy as looks taken in one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.decision import PolicyDecision
from penstock.control.guard import PAPER_RULES, Guard, GuardRules
from penstock.control.policy import Policy
from penstock.control.samples.sample_table import Shards
from penstock.control.snapshot import ExecutorSeen, TopologySnapshot
from penstock.control.streamswitch.examine import Examiner
from penstock.control.streamswitch.policy import StreamSwitch
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.simulation.queueing.ahead.examiner import ExaminerAhead
from penstock.simulation.queueing.ahead.looking import ObservesMany, TellsMany
from penstock.simulation.queueing.ahead.looking_ahead import looking_ahead
from penstock.simulation.queueing.ahead.snapshot_series import OperatorSeries, SnapshotSeries
from scenes.control_scene import SLOT_US

TARGET = LatencyTarget(latency_us=1_000_000)
SHARDS = Shards([f"s{i}" for i in range(9)])
EXECUTORS = ("E0", "E1", "E2")


def scope(least: int = 1) -> Scope:
    return Scope({"op": TARGET}, {"op": TaskLimits(least, 8)})


def series(seed: int, looks: int, per_s: float, backlogs: bool = False) -> SnapshotSeries:
    """Loads that wander, worked off at about 1000/s an executor; with `backlogs` now and then not at all."""
    rng = np.random.default_rng(seed)
    load = per_s * np.exp(np.cumsum(rng.normal(0, 0.05, looks)))[:, None] / 30 * np.ones(9)
    arrived = np.cumsum(rng.poisson(load), axis=0).astype(np.float64)
    held = np.where(rng.random((looks, 9)) < (0.2 if backlogs else 0.0), rng.integers(0, 5, (looks, 9)), 0)
    completed = np.maximum.accumulate(np.maximum(arrived - held, 0.0), axis=0)
    if backlogs:
        stuck = slice(looks // 2, looks // 2 + 6)
        completed[stuck, 0::3] = completed[looks // 2 - 1, 0::3]
    done = np.diff(completed, axis=0, prepend=0.0)
    busy_us = np.cumsum(done * rng.uniform(800, 1200, (looks, 9)), axis=0)
    waited_us = np.cumsum(done * rng.uniform(0, 220_000, (looks, 1)), axis=0)
    operator = OperatorSeries(
        "op",
        tuple(ExecutorSeen(name, 1, 1) for name in EXECUTORS),
        SHARDS,
        {shard: EXECUTORS[i % 3] for i, shard in enumerate(SHARDS.names)},
        arrived,
        completed,
        waited_us,
        busy_us,
        busy_us,
    )
    return SnapshotSeries(np.arange(1, looks + 1) * SLOT_US, {"op": operator})


def one_by_one(policy: StreamSwitch | Guard, shown: SnapshotSeries) -> list[PolicyDecision]:
    return [policy.decide(shown.snapshot(look))[0] for look in range(len(shown))]


def ahead_of(policy: Policy) -> ObservesMany:
    found = looking_ahead(policy)
    assert found is not None
    return found


def at_once(policy: StreamSwitch | Guard, shown: SnapshotSeries, ahead: int) -> dict[int, PolicyDecision]:
    """Decisions of the looks that were shown one by one; the others were taken in `ahead` at once at most."""
    many = ahead_of(policy)
    decided: dict[int, PolicyDecision] = {}
    look = 0
    while look < len(shown):
        rest = shown.since(look)
        front = rest.part(slice(ahead))
        taken = many.observe_many(front)
        look += taken
        if taken < min(ahead, len(rest)):
            decided[look] = policy.decide(shown.snapshot(look))[0]
            look += 1
    return decided


def same(one: PolicyDecision, other: PolicyDecision) -> bool:
    def figures(decision: PolicyDecision) -> list[float]:
        return [
            float(figure or 0.0)
            for view in decision.seen
            for figure in (view.arrival_per_s, view.service_per_s, view.instantaneous_us, view.expected_us)
        ]

    return (
        (one.treatment, one.rule, one.health, one.actions)
        == (other.treatment, other.rule, other.health, other.actions)
    ) and figures(one) == pytest.approx(figures(other), rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(20, 2800),
    st.booleans(),
    st.sampled_from([1, 7, 64, 1000]),
    st.integers(1, 3),
)
def test_looks_at_once_lead_to_the_same_decisions(
    seed: int, per_s: float, backlogs: bool, ahead: int, least: int
) -> None:
    shown = series(seed, 150, per_s, backlogs)
    plain = one_by_one(StreamSwitch(scope(least)), shown)
    decided = at_once(StreamSwitch(scope(least)), shown, ahead)
    for look, decision in enumerate(plain):
        if look in decided:
            assert same(decided[look], decision)
        else:
            assert decision.actions == ()


@pytest.mark.parametrize("seed", range(6))
def test_no_operator_is_taken_further_than_the_others(seed: int) -> None:
    loud, calm = series(seed + 100, 90, 1700.0), series(seed, 90, 300.0)
    second = replace(calm.operators["op"], operator="two")
    shown = SnapshotSeries(calm.at_us, {"op": loud.operators["op"], "two": second})
    both = Scope({"op": TARGET, "two": TARGET}, {"op": TaskLimits(3, 8), "two": TaskLimits(3, 8)})
    whole = StreamSwitch(both)
    expected = [whole.decide(shown.snapshot(look)) for look in range(len(shown))]
    policy, look, singles = StreamSwitch(both), 0, 0
    many = ahead_of(policy)
    while look < len(shown):
        taken = many.observe_many(shown.since(look))
        assert not any(one.actions for decisions in expected[look : look + taken] for one in decisions)
        look += taken
        if look < len(shown):
            decided = policy.decide(shown.snapshot(look))
            assert all(same(one, there) for one, there in zip(decided, expected[look], strict=True))
            look, singles = look + 1, singles + 1
    assert 0 < singles < len(shown)


def test_most_looks_need_not_be_shown_one_by_one() -> None:
    shown = series(1, 2000, 1500.0)
    calm = replace(
        shown, operators={"op": replace(shown.operators["op"], waited_us=shown.operators["op"].served_us)}
    )
    policy = StreamSwitch(scope(least=3))
    assert len(at_once(policy, calm, 500)) < 50


def test_treatments_are_taken_in_whole() -> None:
    shown = series(2, 100, 2900.0)
    policy = StreamSwitch(scope())
    for look in range(20):
        policy.decide(shown.snapshot(look))
    rest = shown.since(20)
    during = replace(rest, operators={"op": replace(rest.operators["op"], treatment=True)})
    assert ahead_of(policy).observe_many(during) == 80


def test_what_cannot_be_told_ahead_is_left_to_single_looks() -> None:
    shown = series(3, 40, 300.0)
    one = shown.operators["op"]
    examiner = Examiner(TARGET)
    many = ExaminerAhead(examiner)
    assert many.ahead(shown.at_us, one) is None
    for look in range(12):
        examiner.observe(int(shown.at_us[look]), one.snapshot(look))
    assert many.ahead(shown.at_us[12:], one.since(12)) is not None
    elsewhere = replace(one.since(12), assignment={**one.assignment, "s0": "E2"})
    assert many.ahead(shown.at_us[12:], elsewhere) is None
    assert many.ahead(shown.at_us[12:] + 2 * TARGET.window_us, one.since(12)) is None
    assert ahead_of(StreamSwitch(scope())).observe_many(replace(shown, operators={})) == 0


def test_looks_at_once_count_each_slot_of_a_change_of_hands_for_who_held_the_shard_then() -> None:
    shown = series(5, 40, 900.0)
    before = shown.operators["op"]
    after = replace(before, assignment={**before.assignment, "s0": "E1"})
    plain, examiner = Examiner(TARGET), Examiner(TARGET)
    for look in range(20):
        seen = (before if look < 15 else after).snapshot(look)
        plain.observe(int(shown.at_us[look]), seen)
        examiner.observe(int(shown.at_us[look]), seen)
    ahead = ExaminerAhead(examiner).ahead(shown.at_us[20:], after.since(20))
    assert ahead is not None
    for number in range(20):
        found = plain.observe(int(shown.at_us[20 + number]), after.snapshot(20 + number))
        assert ahead.instantaneous_us[number].tolist() == pytest.approx(found.instantaneous_us.tolist())


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32 - 1), st.floats(200, 1500), st.sampled_from([7, 1000]))
def test_a_guard_remembers_looks_at_once_as_single_ones(seed: int, per_s: float, ahead: int) -> None:
    shown = series(seed, 150, per_s)
    calm = replace(
        shown, operators={"op": replace(shown.operators["op"], waited_us=shown.operators["op"].served_us)}
    )
    for rules in (PAPER_RULES, GuardRules(scale_in_after_us=2_000_000)):
        plain = one_by_one(Guard(StreamSwitch(scope()), scope(), rules), calm)
        decided = at_once(Guard(StreamSwitch(scope()), scope(), rules), calm, ahead)
        for look, decision in enumerate(plain):
            if look in decided:
                assert same(decided[look], decision)
            else:
                assert decision.actions == ()


def test_a_guard_looks_one_by_one_where_it_would_not_be_told() -> None:
    class Silent:
        name = "Silent"

        def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
            return ()

        def observe_many(self, series: SnapshotSeries) -> int:
            return len(series)

    class Single:
        name = "Single"

        def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
            return ()

    shown = series(4, 20, 700.0)
    assert ahead_of(Guard(Silent(), scope())).observe_many(shown) == 0
    assert looking_ahead(Guard(Single(), scope())) is None
    assert isinstance(ahead_of(StreamSwitch(scope())), TellsMany)
