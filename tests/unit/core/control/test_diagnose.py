"""Diagnose (StreamSwitch, section 3): health, the three treatments, and where the paper leaves a choice."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.decision import Health, Treatment
from penstock.control.streamswitch.diagnose import (
    Diagnosis,
    Room,
    can_merge,
    capacity_per_s,
    diagnose,
    expected_latency_us,
    find_load_balance,
    find_scale_in,
    find_scale_out,
    find_substreams,
    is_quiet,
    pressure,
    worst_after_us,
)
from penstock.control.streamswitch.examination import Examination, Floats
from penstock.control.target import LatencyTarget
from scenes.control_scene import Shard, examination

TARGET = LatencyTarget(latency_us=1_000_000)
LATE_US = 140_000.0
FINE_US = 5_000.0


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def capacity(seen: Examination) -> Floats:
    return capacity_per_s(seen.service_per_s, TARGET.safety_margin)


def room(seen: Examination, more: int = 8, may_go: bool = True) -> Room:
    return Room(may_go=np.full(len(seen.executors), may_go), more=more)


def found(seen: Examination, more: int = 8, may_go: bool = True) -> Diagnosis:
    return diagnose(seen, TARGET, room(seen, more, may_go))


def moved(seen: Examination, diagnosis: Diagnosis) -> list[str]:
    assert diagnosis.strategy is not None
    return [seen.shards[i] for i in diagnosis.strategy.moved]


# --- L_i and its order --------------------------------------------------------------------------------


def test_expected_latency_is_the_papers_example() -> None:
    # Section 4.2: mu = 2000/s, lambda = 1799/s, epsilon = 0.1: 1 / (0.9 * 2000 - 1799) = 1 s.
    assert expected_latency_us(floats(1799), capacity_per_s(floats(2000), 0.1)).tolist() == [
        pytest.approx(1_000_000)
    ]


def test_expected_latency_is_infinite_at_the_margin_and_above() -> None:
    assert expected_latency_us(floats(800, 801, 5000), floats(800, 800, 800)).tolist() == [math.inf] * 3


rates = st.floats(0, 5000)
capacities = st.floats(1, 5000)


@given(rates, capacities, rates, capacities)
def test_pressure_orders_as_expected_latency_does(a: float, cap_a: float, b: float, cap_b: float) -> None:
    latency = expected_latency_us(floats(a, b), floats(cap_a, cap_b))
    order = pressure(floats(a, b), floats(cap_a, cap_b))
    if latency[0] < latency[1]:
        assert order[0] < order[1]
    if order[0] < order[1] and math.isfinite(latency[1]):
        assert latency[0] <= latency[1]


def test_of_two_that_never_catch_up_the_fuller_one_is_worse() -> None:
    # Above capacity latency grows by utilisation - 1 every second: 1.5 against 1.2 of unequal executors.
    values = pressure(floats(1500, 2400), floats(1000, 2000))
    assert values.tolist() == [pytest.approx(0.5), pytest.approx(0.2)]
    assert pressure(floats(10), floats(0)).tolist() == [math.inf]


# --- health -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instantaneous_us", "arrival_per_s", "health"),
    [
        (FINE_US, 400, Health.GOOD),
        (100_000, 799, Health.GOOD),
        (LATE_US, 400, Health.MODERATE),
        (FINE_US, 900, Health.MODERATE),
        (LATE_US, 900, Health.SEVERE),
    ],
)
def test_health_is_severe_when_both_latencies_are_above_and_good_when_neither_is(
    instantaneous_us: float, arrival_per_s: float, health: Health
) -> None:
    # Section 3.3 with l = 100 ms, L = 1 s: at 799/s of 800/s L_i is 1 s exactly.
    seen = examination({"E1": (1000, instantaneous_us)}, {"s0": Shard("E1", arrival_per_s)})
    assert found(seen).health is health


def test_one_moderate_executor_keeps_the_operator_from_scaling_in() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, FINE_US), "E3": (1000, FINE_US)},
        {"s0": Shard("E1", 10), "s1": Shard("E2", 10), "s2": Shard("E3", 10)},
    )
    diagnosis = found(seen)
    assert (diagnosis.health, diagnosis.treatment) == (Health.MODERATE, Treatment.NONE)


def test_a_stalled_executor_is_severe_whatever_is_expected_of_it() -> None:
    seen = examination(
        {"E1": (1000, 300_000), "E2": (1000, FINE_US)},
        {"s0": Shard("E1", 100), "s1": Shard("E1", 100), "s2": Shard("E2", 100)},
        stalled=["E1"],
    )
    diagnosis = found(seen)
    assert diagnosis.health is Health.SEVERE
    assert diagnosis.treatment is Treatment.LOAD_BALANCE
    assert diagnosis.strategy is not None
    assert diagnosis.strategy.destination == 1


def test_a_stalled_executor_is_nobodys_destination() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, 300_000)},
        {"s0": Shard("E1", 500), "s1": Shard("E1", 450), "s2": Shard("E2", 1)},
        stalled=["E2"],
    )
    assert find_load_balance(seen, 0, capacity(seen)) is None


# --- Algorithm 1: scale in ----------------------------------------------------------------------------


def three(*arrivals: float, mu: float = 1000) -> Examination:
    return examination(
        {f"E{i}": (mu, FINE_US) for i in range(len(arrivals))},
        {f"s{i}": Shard(f"E{i}", rate) for i, rate in enumerate(arrivals)},
    )


def test_scale_in_leaves_the_least_latencies_in_lexicographic_order() -> None:
    # With 600/s on E3 the worst stays E3 in most pairs. Second come 250, 300 or 350: 100 + 150 is the least.
    seen = three(100, 150, 200, 600)
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_IN
    strategy = diagnosis.strategy
    assert strategy is not None
    assert (strategy.source, strategy.destination) == (0, 1)
    assert moved(seen, diagnosis) == ["s0"]
    # 1 / (800 - 600), 1 / (800 - 250), 1 / (800 - 200).
    assert sorted(strategy.expected_us.tolist(), reverse=True) == pytest.approx([5000, 1e6 / 550, 1e6 / 600])
    assert strategy.destination_us == pytest.approx(1e6 / 550)


def test_scale_in_gives_up_the_slower_of_unequal_executors() -> None:
    # Section 6.4: 1 / (800 - 200) without the slow one, 1 / (400 - 200) without the fast one.
    seen = examination(
        {"slow": (500, FINE_US), "fast": (1000, FINE_US)},
        {"s0": Shard("slow", 100), "s1": Shard("fast", 100)},
    )
    strategy = found(seen).strategy
    assert strategy is not None
    assert seen.executors[strategy.source] == "slow"


def test_scale_in_is_left_out_where_the_rest_would_not_stay_good() -> None:
    assert found(three(400, 400)).treatment is Treatment.NONE
    # 1 / (800 - 799) is L exactly.
    assert found(three(400, 399)).treatment is Treatment.SCALE_IN


def test_scale_in_keeps_to_the_executors_that_may_go() -> None:
    seen = three(100, 100, 100)
    assert found(seen, may_go=False).treatment is Treatment.NONE
    only_last = Room(may_go=np.array([False, False, True]), more=1)
    strategy = find_scale_in(seen, TARGET, only_last, capacity(seen))
    assert strategy is not None
    assert strategy.source == 2


def test_one_executor_alone_is_never_removed() -> None:
    assert found(three(1)).treatment is Treatment.NONE


executors = st.lists(
    st.tuples(st.integers(0, 900).map(float), st.integers(200, 1200).map(float)), min_size=1, max_size=6
)


@settings(deadline=None)
@given(executors)
def test_scale_in_is_what_trying_all_pairs_finds(pairs: list[tuple[float, float]]) -> None:
    seen = examination(
        {f"E{i}": (mu, FINE_US) for i, (_, mu) in enumerate(pairs)},
        {f"s{i}": Shard(f"E{i}", rate) for i, (rate, _) in enumerate(pairs)},
    )
    caps = capacity(seen)
    strategy = find_scale_in(seen, TARGET, room(seen), caps)
    best: tuple[list[float], int, int] | None = None
    for s, d in permutations(range(len(pairs)), 2):
        after = {i: rate for i, (rate, _) in enumerate(pairs) if i != s}
        after[d] += pairs[s][0]
        worst = sorted(
            (float(pressure(floats(rate), caps[i : i + 1])[0]) for i, rate in after.items()), reverse=True
        )
        if caps[d] - after[d] < 1:
            continue
        if best is None or worst < best[0]:
            best = (worst, s, d)
    if best is None:
        assert strategy is None
    else:
        assert strategy is not None
        assert (strategy.source, strategy.destination) == best[1:]


@given(executors)
def test_the_cheap_test_for_merging_is_exact(pairs: list[tuple[float, float]]) -> None:
    arrival, caps = floats(*(rate for rate, _ in pairs)), floats(*(mu for _, mu in pairs))
    expected = [
        any(d != s and caps[d] - arrival[d] - 1 >= arrival[s] for d in range(len(pairs)))
        for s in range(len(pairs))
    ]
    assert can_merge(arrival, caps, TARGET.latency_us).tolist() == expected


@settings(deadline=None)
@given(executors, st.data())
def test_the_cheap_test_for_quiet_says_what_a_diagnosis_says(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    late = [data.draw(st.sampled_from([FINE_US, LATE_US])) for _ in pairs]
    seen = examination(
        {f"E{i}": (mu, late[i]) for i, (_, mu) in enumerate(pairs)},
        {f"s{i}": Shard(f"E{i}", rate) for i, (rate, _) in enumerate(pairs)},
    )
    quiet = is_quiet(
        np.stack([seen.arrival_per_s] * 2),
        np.stack([seen.service_per_s] * 2),
        np.stack([seen.instantaneous_us] * 2),
        TARGET,
    )
    assert quiet.tolist() == [found(seen).treatment is Treatment.NONE] * 2


# --- Algorithm 2: which shards ------------------------------------------------------------------------


def test_shards_of_lower_latency_move_first_until_the_worse_of_the_two_is_least() -> None:
    # In order of l^k: b 100, c 300, d 300, a 100. After b 700 | 200, after c 400 | 500, after d 100 | 800.
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, FINE_US)},
        {
            "a": Shard("E1", 100, 5000),
            "b": Shard("E1", 100, 1000),
            "c": Shard("E1", 300, 3000),
            "d": Shard("E1", 300, 4000),
            "e": Shard("E2", 100),
        },
    )
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.LOAD_BALANCE
    assert moved(seen, diagnosis) == ["b", "c"]
    strategy = diagnosis.strategy
    assert strategy is not None
    # 1 / (800 - 400) and 1 / (800 - 500).
    assert (strategy.source_us, strategy.destination_us) == (pytest.approx(2500), pytest.approx(1e6 / 300))


def test_a_shard_that_improves_nothing_does_not_end_the_search() -> None:
    # The pseudo code would break at the first one, which has no arrivals.
    seen = examination(
        {"E1": (1000, LATE_US)},
        {"idle": Shard("E1", 0, 0.0), "b": Shard("E1", 500, 1000), "c": Shard("E1", 400, 2000)},
    )
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert moved(seen, diagnosis) == ["idle", "b"]


def test_a_shard_that_made_it_worse_is_not_moved() -> None:
    # The pseudo code adds a shard to K before it looks whether that was better.
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, FINE_US)},
        {"a": Shard("E1", 300, 1000), "b": Shard("E1", 600, 2000), "e": Shard("E2", 400)},
    )
    assert moved(seen, found(seen)) == ["a"]


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 400), min_size=2, max_size=12),
    st.floats(0, 900),
    st.floats(300, 2000),
    st.floats(300, 2000),
)
def test_the_prefix_is_the_best_of_all_and_leaves_one_shard(
    shard_rates: list[float], other: float, mu_s: float, mu_d: float
) -> None:
    seen = examination(
        {"E1": (mu_s, LATE_US), "E2": (mu_d, FINE_US)},
        {
            **{f"s{i}": Shard("E1", rate, 1000.0 + i) for i, rate in enumerate(shard_rates)},
            "e": Shard("E2", other),
        },
    )
    caps = capacity(seen)
    (split,) = find_substreams(seen, 0, float(caps[0]), floats(other), caps[1:])
    worsts = [
        max(
            pressure(floats(sum(shard_rates[j:])), caps[:1])[0],
            pressure(floats(other + sum(shard_rates[:j])), caps[1:])[0],
        )
        for j in range(1, len(shard_rates))
    ]
    assert split.moved.tolist() == list(range(len(split.moved)))
    assert 1 <= len(split.moved) < len(shard_rates)
    assert split.worst == pytest.approx(min(worsts), abs=1e-6)


# --- which treatment ----------------------------------------------------------------------------------


def overloaded(second: float, **more: float) -> Examination:
    """E1 has ten shards of 90/s, E2 `second` in one."""
    shards = {f"s{i}": Shard("E1", 90, 1000.0 + i) for i in range(10)}
    extra = {f"x{name}": Shard(name, rate) for name, rate in more.items()}
    return examination(
        {"E1": (1000, LATE_US), "E2": (1000, FINE_US), **dict.fromkeys(more, (1000, FINE_US))},
        {**shards, "e": Shard("E2", second), **extra},
    )


def test_balancing_comes_first_where_it_cures() -> None:
    seen = overloaded(300)
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.LOAD_BALANCE
    # 900 | 300 becomes 630 | 570.
    assert len(moved(seen, diagnosis)) == 3


def test_the_destination_is_the_one_that_leaves_the_least() -> None:
    diagnosis = found(overloaded(500, E3=100))
    assert diagnosis.strategy is not None
    assert diagnosis.strategy.destination == 2


def test_scaling_out_comes_where_balancing_does_not_cure() -> None:
    seen = overloaded(790)
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert diagnosis.strategy is not None
    # mu_d = mu_s: half and half (3.4).
    assert len(moved(seen, diagnosis)) == 5
    assert diagnosis.strategy.expected_us.tolist() == pytest.approx([1e6 / 350, 1e5, 1e6 / 350])


def test_two_severe_executors_are_not_cured_by_one_balance() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, LATE_US), "E3": (1000, FINE_US)},
        {
            "a": Shard("E1", 450),
            "b": Shard("E1", 450),
            "c": Shard("E2", 420),
            "d": Shard("E2", 420),
            "e": Shard("E3", 0),
        },
    )
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert diagnosis.strategy is not None
    assert diagnosis.strategy.source == 0


def burst(**arrivals: tuple[int, float]) -> Examination:
    """Executors of 1000/s by what arrives, in two shards each, and how late they are."""
    return examination(
        {name: (1000, late_us) for name, (_, late_us) in arrivals.items()},
        {f"{name}-{n}": Shard(name, rate / 2) for name, (rate, _) in arrivals.items() for n in range(2)},
    )


def test_executors_that_a_burst_overloads_scale_out_side_by_side_the_worst_first() -> None:
    # All at 800/s at most: one after the other would take as many treatments.
    seen = burst(E1=(900, LATE_US), E2=(1100, LATE_US), E3=(700, FINE_US))
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert [(x.source, x.destination) for x in diagnosis.strategies] == [(1, None), (0, None)]
    # 1 / (800 - 550) is the worst: E3 keeps 1 / 100, which is more.
    assert worst_after_us(diagnosis.expected_us, diagnosis.strategies) == pytest.approx(1e6 / 100)


def test_with_a_scale_out_goes_one_for_who_will_be_late_before_it_is_over() -> None:
    seen = burst(E1=(1100, LATE_US), E2=(900, FINE_US), E3=(700, FINE_US))
    assert [x.source for x in found(seen).strategies] == [0, 1]
    # By itself nobody is relieved who is not late (3.3).
    assert found(burst(E1=(700, FINE_US), E2=(900, FINE_US))).strategies == ()


def test_no_more_scale_outs_than_are_allowed_and_the_severe_ones_first() -> None:
    seen = burst(E1=(900, LATE_US), E2=(1100, LATE_US), E3=(1200, FINE_US))
    assert [x.source for x in found(seen, more=2).strategies] == [1, 0]
    assert [x.source for x in found(seen, more=1).strategies] == [1]


def test_the_source_is_the_fullest_where_all_latencies_are_infinite() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, LATE_US)},
        {
            "a": Shard("E1", 600),
            "b": Shard("E1", 600),
            "c": Shard("E2", 900),
            "d": Shard("E2", 900),
        },
    )
    diagnosis = found(seen)
    assert diagnosis.strategy is not None
    assert diagnosis.strategy.source == 1
    assert diagnosis.treatment is Treatment.SCALE_OUT


def test_in_overload_something_moves_although_all_latencies_stay_infinite() -> None:
    # 3000/s of 800/s: by L alone infinite is not below infinite, and nothing would ever move.
    seen = examination({"E1": (1000, LATE_US)}, {f"s{i}": Shard("E1", 300) for i in range(10)})
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert len(moved(seen, diagnosis)) == 5


def test_at_the_limit_an_overload_is_spread_evenly_and_then_left() -> None:
    shards = {f"s{i}": Shard("E1", 200) for i in range(10)} | {"e": Shard("E2", 900), "f": Shard("E2", 100)}
    seen = examination({"E1": (1000, LATE_US), "E2": (1000, LATE_US)}, shards)
    diagnosis = found(seen, more=0)
    assert (diagnosis.treatment, diagnosis.rule) == (Treatment.LOAD_BALANCE, "load-balance-eases")
    # 2000 | 1000 becomes 1400 | 1600 or 1600 | 1400: two or three shards, of equals the fewer.
    assert len(moved(seen, diagnosis)) == 2
    even = {f"s{i}": Shard("E1" if i < 5 else "E2", 300) for i in range(10)}
    left = found(examination({"E1": (1000, LATE_US), "E2": (1000, LATE_US)}, even), more=0)
    assert (left.treatment, left.rule) == (Treatment.HOLD, "at-limit")


def test_at_the_limit_a_small_gain_is_not_worth_a_move() -> None:
    # 1500 | 1440 could become 1470 | 1470: two percent.
    shards = {f"s{i}": Shard("E1", 30) for i in range(50)} | {f"t{i}": Shard("E2", 30) for i in range(48)}
    seen = examination({"E1": (1000, LATE_US), "E2": (1000, LATE_US)}, shards)
    assert found(seen, more=0).treatment is Treatment.HOLD


def test_an_executor_with_one_overloaded_shard_cannot_be_helped() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, FINE_US)}, {"hot": Shard("E1", 1200), "e": Shard("E2", 10)}
    )
    diagnosis = found(seen)
    assert (diagnosis.treatment, diagnosis.rule) == (Treatment.HOLD, "incurable")
    assert diagnosis.incurable == (0,)
    assert diagnosis.health is Health.SEVERE


def test_who_cannot_be_helped_keeps_nobody_else_from_it() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, LATE_US), "E3": (1000, FINE_US)},
        {
            "hot": Shard("E1", 1200),
            "c": Shard("E2", 450),
            "d": Shard("E2", 450),
            "e": Shard("E3", 10),
        },
    )
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.LOAD_BALANCE
    assert diagnosis.strategy is not None
    assert (diagnosis.strategy.source, diagnosis.strategy.destination) == (1, 2)
    assert diagnosis.incurable == (0,)


def test_light_shards_are_parted_from_one_that_is_too_heavy() -> None:
    seen = examination(
        {"E1": (1000, LATE_US)},
        {"hot": Shard("E1", 1200, 1000), **{f"s{i}": Shard("E1", 50, 2000.0 + i) for i in range(4)}},
    )
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert moved(seen, diagnosis) == ["hot"]


def test_a_scale_out_that_gains_next_to_nothing_is_left_out() -> None:
    seen = examination(
        {"E1": (1000, LATE_US)}, {"hot": Shard("E1", 1200, 2000), "light": Shard("E1", 1, 1000)}
    )
    assert found(seen).treatment is Treatment.HOLD


def test_a_faster_executor_takes_more() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (3000, FINE_US)},
        {**{f"s{i}": Shard("E1", 100, 1000.0 + i) for i in range(10)}, "e": Shard("E2", 100)},
    )
    diagnosis = found(seen)
    # 800 - left = 2400 - 100 - taken; left + taken = 1000: nine leave 100 and 1000, of all but one the most.
    assert diagnosis.treatment is Treatment.LOAD_BALANCE
    assert len(moved(seen, diagnosis)) == 9


def test_scale_out_of_a_single_shard_finds_nothing() -> None:
    seen = examination({"E1": (1000, LATE_US)}, {"s0": Shard("E1", 900)})
    assert find_scale_out(seen, 0, capacity(seen)) is None
    assert find_substreams(seen, 0, 800.0, floats(0), floats(800)) == []
