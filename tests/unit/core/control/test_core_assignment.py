"""Algorithm 1 of Elasticutor, section 4.2: costs by hand, each decision the paper leaves open, and brute
force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.elasticutor.core_assignment import (
    THRESHOLD_BYTES_PER_S,
    Assigned,
    Problem,
    allocation_cost,
    assign,
    assign_naive,
    deallocation_cost,
    migration_cost,
    release,
)

LOUD = 2 * THRESHOLD_BYTES_PER_S
"""A data intensity above phi~, and not above 2 phi~."""


def problem(
    capacity: Sequence[int],
    k: Sequence[int],
    assigned: Sequence[dict[int, int]],
    home: Sequence[int] | None = None,
    state: Sequence[float] | None = None,
    intensity: Sequence[float] | None = None,
    milli: Sequence[int] | None = None,
    pinned: Sequence[bool] | None = None,
) -> Problem:
    """Whole cores; executors live where they have a core first, have 100 bytes of state and send nothing."""
    count = len(k)
    return Problem(
        capacity_milli=[1000 * cores for cores in capacity],
        allocation=k,
        assigned=assigned,
        home=home or [next(iter(cores)) for cores in assigned],
        state_bytes=state or [100.0] * count,
        intensity_bytes_per_s=intensity or [0.0] * count,
        core_milli=milli or [1000] * count,
        pinned=pinned or [False] * count,
    )


def test_costs_of_one_core_by_hand() -> None:
    # s = 12, X = 3, x_i = 1: C+ = 12 * 2 / (3 * 4) = 2, C- = 12 * 2 / (3 * 2) = 4.
    assert allocation_cost(12, 3, 1) == pytest.approx(2)
    assert deallocation_cost(12, 3, 1) == pytest.approx(4)


def test_cores_of_one_node_cost_nothing() -> None:
    assert allocation_cost(12, 3, 3) == 0
    assert deallocation_cost(12, 3, 3) == 0


def test_the_last_core_cannot_be_paid_for() -> None:
    # C- at X = 1 is 0 / 0 in the paper.
    assert deallocation_cost(12, 1, 1) == math.inf


def test_migration_cost_counts_the_state_that_leaves_a_node() -> None:
    # C(X|X~), s = 12: from (2, 1) to (2, 2) node 0 goes from 2/3 to 1/2: 12 / 6 = 2; to (2, 0) node 1 from
    # 1/3 to 0.
    assert migration_cost([{0: 2, 1: 1}], [{0: 2, 1: 2}], [12], [0]) == pytest.approx(2)
    assert migration_cost([{0: 2, 1: 1}], [{0: 2}], [12], [0]) == pytest.approx(4)
    assert migration_cost([{0: 2, 1: 1}], [{0: 2, 1: 1}], [12], [0]) == 0


def test_costs_of_one_core_are_the_migration_cost_of_that_step() -> None:
    before = {0: 3, 1: 2, 2: 1}
    for node in before:
        more = {**before, node: before[node] + 1}
        less = {i: count - (i == node) for i, count in before.items()}
        assert migration_cost([before], [more], [7.0], [0]) == pytest.approx(
            allocation_cost(7.0, 6, before[node])
        )
        assert migration_cost([before], [less], [7.0], [0]) == pytest.approx(
            deallocation_cost(7.0, 6, before[node])
        )


def test_an_idle_core_at_home_comes_first() -> None:
    answer = assign(problem([2, 2], [2], [{0: 1}]))
    assert answer.cores == ({0: 2},)
    assert answer.short == ()


def test_an_idle_core_costs_only_its_allocation() -> None:
    # Executor 0 on node 0 wants one more. Node 0 has none idle, but executor 1 there gives one at C- = 0, and
    # C+ at home is 0: cheaper than the idle core of node 1 at C+ = 100 / 2.
    answer = assign(problem([3, 1], [2, 1], [{0: 1}, {0: 2}]))
    assert answer.cores == ({0: 2}, {0: 1})
    # With C- = 100 * 2 / (3 * 2) = 33.3 at node 0, of an executor that is mostly elsewhere, it still is; with
    # ten times the state it is not.
    spread = [{0: 1}, {0: 1, 1: 2}]
    assert assign(problem([2, 3], [2, 2], spread)).cores == ({0: 2}, {1: 2})
    assert assign(problem([2, 3], [2, 2], spread, state=[100.0, 1000.0])).cores == (
        {0: 1, 1: 1},
        {0: 1, 1: 2},
    )


def test_the_cheapest_giver_is_found_on_any_node() -> None:
    # No idle core. Executor 1 is split over nodes (C- = 100 * 2 / (4 * 3) = 16.7), 2 is all on node 2 (C- =
    # 0).
    answer = assign(problem([1, 2, 4], [2, 3, 1], [{0: 1}, {1: 2, 2: 2}, {2: 2}]))
    assert answer.cores == ({0: 1, 2: 1}, {1: 2, 2: 2}, {2: 1})


def test_only_over_provisioned_executors_give_to_one_that_takes_cores_anywhere() -> None:
    answer = assign(problem([2, 2], [2, 2, 2], [{0: 1}, {0: 1, 1: 1}, {1: 1}]))
    assert answer.cores == ({0: 1}, {0: 1, 1: 1}, {1: 1})
    assert answer.short == (0, 2)


def test_data_intensive_executors_choose_first() -> None:
    # Line 4 would serve executor 0 before: it would take the one core of node 0, and 1 would have none.
    answer = assign(problem([3, 1], [2, 2], [{0: 1}, {0: 1}], intensity=[0, LOUD]))
    assert answer.cores == ({0: 1, 1: 1}, {0: 2})
    assert answer.threshold_bytes_per_s == THRESHOLD_BYTES_PER_S


def test_a_data_intensive_executor_takes_surplus_before_what_is_needed() -> None:
    # On node 0: executor 1 has what it needs, and would cost nothing; 2 has one too many, at C- = 100 / 2.
    answer = assign(
        problem([4, 2], [2, 2, 1], [{0: 1}, {0: 2}, {0: 1, 1: 1}], home=[0, 0, 1], intensity=[LOUD, 0, 0])
    )
    assert answer.cores == ({0: 2}, {0: 2}, {1: 1})


def test_a_robbed_executor_is_served_again_elsewhere() -> None:
    answer = assign(problem([3, 1], [2, 2], [{0: 1}, {0: 2}], intensity=[LOUD, 0]))
    assert answer.cores == ({0: 2}, {0: 1, 1: 1})
    assert answer.short == ()


def test_a_satisfied_data_intensive_executor_is_not_robbed() -> None:
    # Both are data-intensive and their node has three cores: not at phi~, only once neither is.
    answer = assign(problem([3, 1], [2, 2], [{0: 1}, {0: 2}], intensity=[LOUD, LOUD]))
    assert answer.cores == ({0: 1, 1: 1}, {0: 2})
    assert answer.threshold_bytes_per_s == 2 * THRESHOLD_BYTES_PER_S


def test_phi_doubles_until_it_is_feasible() -> None:
    # Three cores on a node of two; at 3 phi~ it is data-intensive at phi~ and at 2 phi~, at 4 phi~ no more.
    answer = assign(problem([2, 2], [3], [{0: 2}], intensity=[3 * THRESHOLD_BYTES_PER_S]))
    assert answer.threshold_bytes_per_s == 4 * THRESHOLD_BYTES_PER_S
    assert answer.cores == ({0: 2, 1: 1},)


def test_an_intensity_at_the_threshold_is_not_above_it() -> None:
    answer = assign(problem([1, 1], [2], [{0: 1}], intensity=[THRESHOLD_BYTES_PER_S]))
    assert answer.threshold_bytes_per_s == THRESHOLD_BYTES_PER_S
    assert answer.cores == ({0: 1, 1: 1},)


def test_a_last_core_is_never_taken() -> None:
    # Node 0 has two cores; executor 1 has but one of them, and keeps it: the first is not local at any phi.
    answer = assign(problem([2, 2], [2, 1], [{0: 1}, {0: 1}], intensity=[LOUD, 0]))
    assert answer.cores == ({0: 1, 1: 1}, {0: 1})
    assert answer.threshold_bytes_per_s == 2 * THRESHOLD_BYTES_PER_S


def test_remote_cores_of_an_executor_that_became_data_intensive_are_replaced() -> None:
    # Constraint (c): X_j = k_j already, but one of them is remote.
    answer = assign(problem([2, 2], [2], [{0: 1, 1: 1}], intensity=[LOUD]))
    assert answer.cores == ({0: 2},)


def test_the_first_core_of_an_executor_is_at_home() -> None:
    answer = assign(problem([4, 1], [1], [{}], home=[1]))
    assert answer.cores == ({1: 1},)
    assert assign(problem([4, 0], [1], [{}], home=[1])).cores == ({0: 1},)


def test_an_executor_without_a_known_home_takes_cores_anywhere() -> None:
    assert assign(problem([1, 1], [2], [{}], home=[-1], intensity=[LOUD])).cores == ({0: 1, 1: 1},)


def test_a_pinned_executor_neither_gives_nor_takes() -> None:
    answer = assign(problem([4], [1, 3], [{0: 3}, {0: 1}], pinned=[True, False]))
    assert answer.cores == ({0: 3}, {0: 1})
    assert answer.short == (1,)


def test_a_node_that_has_less_than_was_assigned_takes_the_difference_back() -> None:
    # Constraint (a). Executor 1 has one too many, 0 none.
    answer = assign(problem([3], [2, 1], [{0: 2}, {0: 2}]))
    assert answer.cores == ({0: 2}, {0: 1})


def test_a_slice_does_not_make_room_for_a_whole_core() -> None:
    # Full nodes. One slice of 500 is not enough for a core of 1000; a core is enough for a slice.
    slices = problem([2], [2, 1], [{0: 1}, {0: 2}], milli=[1000, 500])
    assert assign(slices).cores == ({0: 1}, {0: 2})
    assert assign(slices).short == (0,)
    whole = problem([3], [3, 1], [{0: 2}, {0: 2}], milli=[500, 1000])
    assert assign(whole).cores == ({0: 3}, {0: 1})


def test_a_threshold_that_cannot_be_doubled_is_refused() -> None:
    with pytest.raises(ValueError, match="doubled"):
        assign(problem([1], [1], [{0: 1}]), 0)


def test_naive_takes_nodes_in_turn_whatever_it_costs() -> None:
    # Everything is at home on node 0, which has room: naive-EC does not look.
    answer = assign_naive(problem([8, 8, 8], [4], [{0: 1}]), first_node=1)
    assert answer.cores == ({0: 2, 1: 1, 2: 1},)


def test_naive_takes_from_who_has_too_many_once_nothing_is_idle() -> None:
    answer = assign_naive(problem([2, 1], [2, 1], [{0: 1}, {1: 1, 0: 1}]))
    assert answer.cores == ({0: 1, 1: 1}, {0: 1})


def test_naive_knows_no_data_intensity() -> None:
    answer = assign_naive(problem([1, 1], [2], [{0: 1}], intensity=[LOUD]))
    assert answer.cores == ({0: 1, 1: 1},)
    assert answer.threshold_bytes_per_s == math.inf


def test_surplus_is_given_back_from_other_nodes_first() -> None:
    given_back = problem([4, 4, 4], [1], [{0: 2, 1: 2, 2: 1}])
    answer = Assigned(tuple(given_back.assigned), (5,), 1.0, ())
    # C- of the remote ones: 100 * 3 / (5 * 4) at node 1, 100 * 4 / (5 * 4) at node 2: node 1 is cheaper.
    assert release(given_back, answer, [4]).cores == ({0: 2, 1: 1, 2: 1},)
    assert release(given_back, answer, [2]).cores == ({0: 2},)
    assert release(given_back, answer, [0]).cores == ({0: 1},)


def test_nothing_is_given_back_by_who_keeps_it() -> None:
    case = problem([4, 4], [1, 1], [{0: 2, 1: 2}, {0: 2}], pinned=[False, True])
    answer = Assigned(tuple(case.assigned), (4, 2), 1.0, ())
    assert release(case, answer, [4, 1]).cores == ({0: 2, 1: 2}, {0: 2})


# --- against all assignments there are ---------------------------------------------------------------


def cheapest(case: Problem, threshold: float) -> float:
    """The least C(X|X~) of all X that keep constraints (a), (b) and (c) at `threshold`, by trying them."""
    nodes = range(len(case.capacity_milli))
    options: list[list[tuple[float, tuple[int, ...]]]] = []
    for j, k in enumerate(case.allocation):
        mine = []
        for column in itertools.product(*(range(case.capacity_milli[i] // 1000 + 1) for i in nodes)):
            local = case.intensity_bytes_per_s[j] <= threshold or column[case.home[j]] == sum(column)
            if sum(column) >= k and local:
                after = {i: count for i, count in enumerate(column) if count}
                state, home = case.state_bytes[j], case.home[j]
                mine.append((migration_cost([case.assigned[j]], [after], [state], [home]), column))
        options.append(sorted(mine))

    def descend(j: int, left: tuple[int, ...], bound: float) -> float:
        if j == len(options):
            return 0.0
        best = bound
        for cost, column in options[j]:
            if cost >= best:
                break
            rest = tuple(have - take for have, take in zip(left, column, strict=True))
            if min(rest) >= 0:
                best = min(best, cost + descend(j + 1, rest, best - cost))
        return best

    return descend(0, tuple(milli // 1000 for milli in case.capacity_milli), math.inf)


def random_case(rng: np.random.Generator) -> Problem:
    """2 or 3 nodes of 2 to 4 cores, 2 or 3 executors: small enough to try everything."""
    nodes, count = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    capacity = rng.integers(2, 5, nodes)
    free = capacity.copy()
    assigned: list[dict[int, int]] = [{} for _ in range(count)]
    for j in range(count):
        for _ in range(int(rng.integers(1, 4))):
            open_nodes = np.flatnonzero(free)
            if len(open_nodes):
                node = int(rng.choice(open_nodes))
                assigned[j][node] = assigned[j].get(node, 0) + 1
                free[node] -= 1
    budget = int(capacity.sum()) - count
    k = np.ones(count, dtype=int) + rng.multinomial(int(rng.integers(0, budget + 1)), [1 / count] * count)
    home = [max(cores, key=lambda i: cores[i]) if cores else 0 for cores in assigned]
    return problem(
        capacity.tolist(),
        k.tolist(),
        assigned,
        home=home,
        state=rng.uniform(1, 100, count).tolist(),
        intensity=np.where(rng.random(count) < 0.3, LOUD, 0).tolist(),
    )


def test_greedy_costs_little_more_than_the_best_assignment() -> None:
    rng = np.random.default_rng(11)
    found, best = [], []
    for _ in range(150):
        case = random_case(rng)
        answer = assign(case)
        assert answer.short == ()
        found.append(migration_cost(case.assigned, answer.cores, case.state_bytes, case.home))
        best.append(cheapest(case, answer.threshold_bytes_per_s))
        assert found[-1] >= best[-1] - 1e-9
    # Greedy is no optimum. Over 300 instances of each of three seeds 82 to 84% were optimal, and all together
    # cost 11 to 15% more than the best.
    assert sum(f <= b + 1e-9 for f, b in zip(found, best, strict=True)) >= 0.75 * len(best)
    assert sum(found) <= 1.3 * sum(best)


@given(st.integers(0, 10_000))
@settings(deadline=None)
def test_every_answer_keeps_the_constraints(seed: int) -> None:
    case = random_case(np.random.default_rng(seed))
    answer = assign(case)
    for i, capacity in enumerate(case.capacity_milli):
        assert sum(cores.get(i, 0) for cores in answer.cores) * 1000 <= capacity
    for j, cores in enumerate(answer.cores):
        assert sum(cores.values()) >= case.allocation[j]
        assert all(cores.values())
        if case.intensity_bytes_per_s[j] > answer.threshold_bytes_per_s:
            assert set(cores) == {case.home[j]}


@given(st.integers(0, 10_000))
@settings(deadline=None)
def test_naive_gives_everyone_enough_too(seed: int) -> None:
    case = random_case(np.random.default_rng(seed))
    answer = assign_naive(case, seed)
    assert answer.short == ()
    for i, capacity in enumerate(case.capacity_milli):
        assert sum(cores.get(i, 0) for cores in answer.cores) * 1000 <= capacity


def test_a_second_run_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        case = random_case(rng)
        first = assign(case)
        again = problem(
            [milli // 1000 for milli in case.capacity_milli],
            case.allocation,
            [dict(cores) for cores in first.cores],
            home=case.home,
            state=case.state_bytes,
            intensity=case.intensity_bytes_per_s,
        )
        assert assign(again, first.threshold_bytes_per_s).cores == first.cores
