"""The diagnosis of StreamSwitch: expected latency, health, Algorithms 1 and 2."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.decision import Health, Treatment
from penstock.control.streamswitch.diagnose import (
    Room,
    can_merge,
    capacity_per_s,
    expected_latency_us,
    find_load_balance,
    find_scale_in,
    find_substreams,
    is_quiet,
    pressure,
)
from penstock.control.streamswitch.examination import Examination
from scenes.control_scene import Shard, examination
from scenes.diagnosed import FINE_US, LATE_US, TARGET, capacity, floats, found, moved, room


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
