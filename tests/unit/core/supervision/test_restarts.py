"""When a worker that died starts again, and when it is given up."""

from __future__ import annotations

from penstock.supervision.restarts import DELAYS_S, EARLY_DEATHS_MAX, STEADY_AFTER_S, Starts


def test_one_life_of_a_worker_from_its_first_start_to_its_second() -> None:
    starts = Starts().became_ready(5.0)
    assert starts == Starts(is_up=True, up_since_s=5.0)
    dead = starts.died(6.0)
    assert dead == Starts(up_since_s=5.0, again_at_s=6.0, deaths_in_row=1)
    assert dead.may_start(6.0)
    assert dead.started_again() == Starts(up_since_s=5.0, deaths_in_row=1, again=1)


def test_deaths_one_upon_the_other_wait_longer_up_to_a_bound_and_a_steady_time_forgives_them() -> None:
    starts, waits = Starts(), []
    for _ in range(len(DELAYS_S) + 2):
        starts = starts.became_ready(0.0).died(1.0)
        assert starts.again_at_s is not None
        waits.append(starts.again_at_s - 1.0)
        assert not starts.may_start(starts.again_at_s - 0.001)
        starts = starts.started_again()
    assert waits == [*DELAYS_S, DELAYS_S[-1], DELAYS_S[-1]]
    assert starts.became_ready(0.0).died(STEADY_AFTER_S).again_at_s == STEADY_AFTER_S


def test_a_worker_that_never_becomes_ready_is_given_up_and_one_that_once_did_is_not() -> None:
    starts = Starts()
    for _ in range(EARLY_DEATHS_MAX - 1):
        starts = starts.died(0.0).started_again()
    assert not starts.is_hopeless
    assert starts.died(0.0).is_hopeless
    assert starts.became_ready(0.0).died(1.0).early_deaths == 0


def test_a_worker_that_runs_is_not_started() -> None:
    assert not Starts().may_start(1e9)
