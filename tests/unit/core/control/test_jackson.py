"""Section 4.1 of Elasticutor: Erlang C by hand, equation (1), and cores where latency falls most."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.elasticutor.jackson import (
    Bound,
    Network,
    Part,
    allocate,
    erlang_b,
    erlang_c,
    expected_latency_us,
    minimal_cores,
    sojourn_us,
)

MANY = 1 << 30


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def integers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def network(
    arrival: list[float],
    service: list[float],
    target_us: float = 1e9,
    input_per_s: float | None = None,
    cores_min: int = 0,
    cores_max: int = MANY,
    fixed: list[int] | None = None,
    most: list[int] | None = None,
    core_milli: int = 1000,
) -> Network:
    count = len(arrival)
    return Network(
        arrival_per_s=floats(*arrival),
        service_per_s=floats(*service),
        part=integers(*[0] * count),
        fixed=integers(*(fixed or [-1] * count)),
        most=integers(*(most or [MANY] * count)),
        parts=(Part(0, cores_min, cores_max, core_milli),),
        bounds=(Bound(target_us, sum(arrival) if input_per_s is None else input_per_s),),
    )


def test_erlang_b_is_what_its_sum_gives_by_hand() -> None:
    # B(k, a) = (a^k / k!) / sum of a^n / n!: for a = 1 and k = 1, 2, 3 this is 1/2, 1/5, 1/16; for a = 2, k =
    # 3 4/19.
    answer = erlang_b(floats(1, 1, 1, 2), integers(1, 2, 3, 3))
    assert answer == pytest.approx([1 / 2, 1 / 5, 1 / 16, 4 / 19])


def test_erlang_b_with_many_rows_is_erlang_b_row_by_row() -> None:
    rng = np.random.default_rng(3)
    servers = rng.integers(0, 60, 50)
    offered = rng.uniform(0, 50, 50)
    together = erlang_b(offered, servers)
    alone = [erlang_b(offered[j : j + 1], servers[j : j + 1])[0] for j in range(50)]
    assert together == pytest.approx(alone)
    assert (together[servers == 0] == 1).all()


def exact_erlang_b(offered: Fraction, servers: int) -> Fraction:
    terms = [Fraction(1)]
    for n in range(1, servers + 1):
        terms.append(terms[-1] * offered / n)
    return terms[-1] / sum(terms)


@pytest.mark.parametrize(("offered", "servers"), [(700, 720), (1500, 1501), (3, 400)])
def test_erlang_b_is_exact_where_powers_and_factorials_overflow(offered: int, servers: int) -> None:
    with np.errstate(all="raise", under="ignore"):
        found = erlang_b(floats(offered), integers(servers))[0]
    assert found == pytest.approx(float(exact_erlang_b(Fraction(offered), servers)), rel=1e-12, abs=1e-300)


def test_erlang_c_by_hand() -> None:
    # C(2, a = 1) = 1/3, C(3, a = 2) = 4/9; everyone waits where k <= a.
    assert erlang_c(floats(1, 2, 3), integers(2, 3, 3)) == pytest.approx([1 / 3, 4 / 9, 1])


def test_one_server_is_the_m_m_1_of_the_textbook() -> None:
    # 1 / (mu - lambda) = 1 / (10 - 8) s.
    assert sojourn_us(floats(8), floats(10), integers(1)) == pytest.approx([500_000])


def test_several_servers_by_hand() -> None:
    # lambda = mu = 1: E[T](2) = (1/3) / (2 - 1) + 1 = 4/3 s; E[T](3) = (1/11) / (3 - 1) + 1 = 23/22 s.
    times = sojourn_us(floats(1, 1, 1), floats(1, 1, 1), integers(1, 2, 3))
    assert times == pytest.approx([math.inf, 4e6 / 3, 23e6 / 22])


def test_equation_1_weighs_by_arrivals_and_divides_by_the_input() -> None:
    # lambda_0 = 2, lambda = (2, 6): (2 * 10 + 6 * 30) / 2 = 100.
    assert expected_latency_us(floats(2, 6), floats(10, 30), 2) == pytest.approx(100)


def test_equation_1_leaves_out_who_receives_nothing() -> None:
    assert expected_latency_us(floats(2, 0), floats(10, math.inf), 2) == pytest.approx(10)
    assert expected_latency_us(floats(0), floats(math.inf), 0) == 0


def test_the_start_is_one_more_than_the_load_rounded_up() -> None:
    # ceil(lambda / mu) + 1 of section 4.1, also where lambda / mu is whole, and 0.
    assert minimal_cores(floats(25, 30, 0, 1), floats(10, 10, 10, 10)).tolist() == [4, 4, 1, 2]


def test_a_load_that_rounding_lifted_is_still_whole() -> None:
    assert minimal_cores(floats(0.1 * 3), floats(0.1)).tolist() == [4]


def test_nothing_is_added_once_the_bound_is_met() -> None:
    # k = (2, 2): E[T] = (1 * 4/3 + 1 * 4/3) / 1 = 8/3 s.
    answer = allocate(network([1, 1], [1, 1], target_us=2.7e6, input_per_s=1), MANY)
    assert answer.cores.tolist() == [2, 2]
    assert answer.latency_us[0] == pytest.approx(8e6 / 3)
    assert answer.affordable
    assert answer.unreachable == ()


def test_one_core_more_where_latency_falls_most() -> None:
    # From k = (2, 3): 1.8 (E[T](3) - E[T](4)) = 1.8 (1.296 - 1.058) = 0.427 s at the second, with lambda =
    # 1.8; 4/3 - 23/22 = 0.288 s at the first.
    times = sojourn_us(floats(1.8, 1.8, 1, 1), floats(1, 1, 1, 1), integers(3, 4, 2, 3)) / 1e6
    assert 1.8 * (times[0] - times[1]) == pytest.approx(0.427, abs=1e-3)
    target_us = (1.8 * times[1] + times[2]) * 1e6 * 1.0001
    answer = allocate(network([1, 1.8], [1, 1], target_us=target_us, input_per_s=1), MANY)
    assert answer.cores.tolist() == [2, 4]


def test_a_budget_that_runs_out_ends_it() -> None:
    answer = allocate(network([1, 1], [1, 1], target_us=2.01e6, input_per_s=1), 5_000)
    assert answer.cores.sum() == 5
    assert answer.affordable
    # (3, 2): 23/22 + 4/3.
    assert answer.latency_us[0] == pytest.approx((23 / 22 + 4 / 3) * 1e6)


def test_a_budget_below_the_start_goes_to_the_worst_load_per_core_first() -> None:
    # a = (3, 0.5); the start would be (4, 2). One core each, then the first has 3/1, 3/2, 3/3 on a core.
    small = network([3, 0.5], [1, 1])
    assert allocate(small, 4_000).cores.tolist() == [3, 1]
    assert allocate(small, 5_000).cores.tolist() == [4, 1]
    assert allocate(small, 6_000).cores.tolist() == [4, 2]
    assert not allocate(small, 5_000).affordable
    assert allocate(small, 4_000).latency_us == (math.inf,)


def test_everyone_has_one_core_in_the_answer_whatever_the_budget() -> None:
    answer = allocate(network([1, 1, 1], [1, 1, 1]), 2_000)
    assert answer.cores.tolist() == [1, 1, 1]
    assert not answer.affordable


def test_the_limits_of_an_operator_hold() -> None:
    assert allocate(network([1, 1], [1, 1], target_us=1, cores_max=7), MANY).cores.sum() <= 7
    assert allocate(network([1, 1], [1, 1], cores_min=9), MANY).cores.sum() == 9


def test_a_bound_below_the_time_of_serving_does_not_take_every_core() -> None:
    # E[T] >= 1/mu = 1 s whatever k: 0.5 s cannot be met, and cores stop once they bring under 0.1% of it.
    answer = allocate(network([1], [1], target_us=0.5e6), MANY)
    assert answer.unreachable == (0,)
    brought = sojourn_us(floats(1, 1), floats(1, 1), np.append(answer.cores, answer.cores + 1))
    assert answer.cores[0] < 12
    assert brought[0] - brought[1] < 500


def test_an_executor_gets_no_more_cores_than_it_has_shards() -> None:
    answer = allocate(network([5, 1], [1, 1], target_us=1.4e6, most=[3, 8]), MANY)
    # The first can never keep up; the second is served as if it were alone.
    assert answer.cores.tolist() == [3, 2]
    assert answer.unreachable == (0,)
    assert answer.latency_us == (math.inf,)


def test_an_executor_with_fixed_cores_keeps_them_and_they_count() -> None:
    answer = allocate(network([1, math.nan], [1, math.nan], fixed=[-1, 4], target_us=1, input_per_s=1), 7_000)
    assert answer.cores.tolist() == [3, 4]
    assert answer.latency_us[0] == pytest.approx(23e6 / 22)


def test_slices_cost_their_share_of_the_budget() -> None:
    assert allocate(network([1, 1], [1, 1], target_us=1, core_milli=250), 1_500).cores.sum() == 6


def test_operators_under_different_bounds_compete_by_gain_relative_to_the_bound() -> None:
    # Two alike, one with a bound ten times as tight: it is the one that gets the core there is.
    both = Network(
        arrival_per_s=floats(1, 1),
        service_per_s=floats(1, 1),
        part=integers(0, 1),
        fixed=integers(-1, -1),
        most=integers(99, 99),
        parts=(Part(0, 0, MANY), Part(1, 0, MANY)),
        bounds=(Bound(1.2e6, 1), Bound(1.06e6, 1)),
    )
    assert allocate(both, 5_000).cores.tolist() == [2, 3]
    assert allocate(both, 6_000).cores.tolist() == [3, 3]


@given(st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.5, 3)), min_size=1, max_size=3), st.floats(1.05, 3))
@settings(deadline=None, max_examples=60)
def test_no_allocation_with_fewer_cores_meets_the_bound(
    rates: list[tuple[float, float]], slack: float
) -> None:
    # "This greedy algorithm has shown to be optimal" (section 4.1), from its start on.
    arrival, service = floats(*(a for a, _ in rates)), floats(*(s for _, s in rates))
    serving_us = float((arrival / service).sum()) / float(arrival.sum()) * 1e6
    target_us = serving_us * slack
    answer = allocate(network(arrival.tolist(), service.tolist(), target_us), MANY)
    assert answer.latency_us[0] <= target_us
    start = minimal_cores(arrival, service)
    added = int((answer.cores - start).sum())
    assert (answer.cores >= start).all()
    for extra in itertools.product(range(added), repeat=len(rates)):
        if sum(extra) == added - 1:
            times = sojourn_us(arrival, service, start + np.array(extra))
            assert expected_latency_us(arrival, times, float(arrival.sum())) > target_us * (1 - 1e-9)
