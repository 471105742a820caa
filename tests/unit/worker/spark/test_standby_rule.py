"""When a process stands by for the next task: where one is likely, and nowhere else."""

from __future__ import annotations

from penstock_worker.spark.standby_rule import (
    BUSY_SHARE,
    CALM_S,
    FIRST_TASKS_S,
    REFILL_S,
    WARM_AFTER_S,
    StandbyRule,
)

BEGAN_S = 1000.0


def rule_with_tasks(*started_s: float) -> StandbyRule:
    """Of a worker whose tasks were started at these seconds of its life."""
    rule = StandbyRule(BEGAN_S)
    for at_s in started_s:
        rule.started(BEGAN_S + at_s)
    return rule


def test_a_worker_without_a_task_is_warm_after_a_while() -> None:
    rule = rule_with_tasks()
    assert not rule.is_wanted(BEGAN_S + WARM_AFTER_S - 0.1)
    assert rule.is_wanted(BEGAN_S + WARM_AFTER_S)
    assert rule.is_time(BEGAN_S + WARM_AFTER_S)


def test_a_worker_whose_tasks_stay_and_have_time_to_spare_has_nobody_stand_by() -> None:
    rule = rule_with_tasks(0.5, 0.6, FIRST_TASKS_S - 0.1)
    for second in range(1, 600):
        rule.worked(BEGAN_S + second, BUSY_SHARE - 0.01)
        assert not rule.is_wanted(BEGAN_S + second) or second < WARM_AFTER_S


def test_a_task_that_comes_later_than_the_first_ones_shows_that_tasks_come_and_go() -> None:
    rule = rule_with_tasks(0.5, FIRST_TASKS_S + 0.5)
    assert rule.is_wanted(BEGAN_S + 3600)


def test_where_tasks_are_busy_another_one_is_near() -> None:
    rule = rule_with_tasks(0.5)
    rule.worked(BEGAN_S + 20, BUSY_SHARE)
    assert rule.is_wanted(BEGAN_S + 20)
    assert not rule.is_wanted(BEGAN_S + 20 + CALM_S)


def test_a_load_that_comes_and_goes_in_less_than_the_calm_keeps_one_standing_by() -> None:
    rule = rule_with_tasks(0.5)
    for second in range(20, 200):
        rule.worked(BEGAN_S + second, BUSY_SHARE if second % 10 == 0 else 0.0)
        assert rule.is_wanted(BEGAN_S + second)


def test_the_next_one_waits_until_the_task_before_has_got_going() -> None:
    rule = rule_with_tasks(0.5, 20.0)
    assert not rule.is_time(BEGAN_S + 20.0 + REFILL_S - 0.1)
    assert rule.is_time(BEGAN_S + 20.0 + REFILL_S)
    assert rule.is_wanted(BEGAN_S + 20.1), "nobody who stands by already is sent away meanwhile"
