"""When a task stands still, and when it is only busy."""

from __future__ import annotations

from penstock.process_look import ProcessLook
from penstock_worker.spark.standing_rule import (
    STILL_US,
    STOPPED_US,
    UNBORN_US,
    WORKING_US,
    Patience,
    StandingRule,
)

CYCLE_US = 300_000


def standing_after_us(
    state: str, *, works: bool = False, doublings: int = 0, most_us: int = WORKING_US
) -> int:
    """How long after its last beat a process is taken for standing; at most `most_us`."""
    rule = StandingRule()
    assert rule.is_beating(0, 1)
    now_us = 0
    while now_us < most_us:
        now_us += CYCLE_US
        assert not rule.is_beating(now_us, 1)
        if rule.is_standing(now_us, ProcessLook(state, now_us if works else 7), doublings):
            return now_us
    return most_us


def test_a_stopped_process_is_not_waited_for() -> None:
    assert standing_after_us("T") <= STOPPED_US + CYCLE_US
    assert standing_after_us("T", doublings=6) <= STOPPED_US + CYCLE_US


def test_one_that_does_nothing_has_a_few_seconds() -> None:
    for state in ("S", "D"):
        assert STILL_US <= standing_after_us(state) <= STILL_US + 2 * CYCLE_US


def test_one_that_uses_a_processor_or_waits_for_one_has_half_a_minute() -> None:
    assert standing_after_us("R") >= WORKING_US
    assert standing_after_us("S", works=True) >= WORKING_US


def test_the_patience_doubles_with_each_time() -> None:
    assert standing_after_us("S", doublings=2) >= 4 * STILL_US


def test_a_beat_makes_good() -> None:
    rule = StandingRule()
    for beat in range(100):
        now_us = beat * 2_000_000
        assert rule.is_beating(now_us, beat)
        assert not rule.is_standing(now_us + 1_900_000, ProcessLook("S", 7), 0)


def test_whoever_looks_may_have_stood_still_as_well() -> None:
    rule = StandingRule()
    rule.is_beating(0, 1)
    assert not rule.is_standing(3_600_000_000, ProcessLook("T", 7), 0)


def test_a_process_that_never_beats_is_given_up() -> None:
    rule = StandingRule()
    looks = next(look for look in range(1000) if rule.is_unborn(look * CYCLE_US))
    assert UNBORN_US <= looks * CYCLE_US <= UNBORN_US + 2 * CYCLE_US


def test_patience_is_kept_by_shard_and_forgotten_after_an_hour() -> None:
    patience = Patience()
    for at_s in (1, 2, 3):
        patience.taken("count/1", at_s * 1_000_000)
    assert (patience.doublings("count/1"), patience.doublings("count/2")) == (3, 0)
    patience.taken("count/2", 4_000_000_000)
    assert (patience.doublings("count/1"), patience.doublings("count/2")) == (0, 1)
