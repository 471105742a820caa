"""A source that is further behind than its SLA allows is told, and the SLA is not met."""

from __future__ import annotations

from penstock.figures.lag import Lag
from penstock.sla.source_lag import SourceLagJudge

WINDOW_US = 1_000_000
NEAR, FAR = Lag(10, 400), Lag(3_400, 12_400)


def judge(*sources: str) -> SourceLagJudge:
    return SourceLagJudge(10_000_000, WINDOW_US, sources or ("orders",))


def test_a_source_that_is_behind_for_a_whole_window_is_told_with_its_lag() -> None:
    judged = judge()
    judged.take(0, {"orders": FAR})
    judged.take(WINDOW_US - 1, {"orders": FAR})
    assert judged.words == ""
    judged.take(WINDOW_US, {"orders": FAR})
    assert judged.words == "behind what is there by more than 10 s: orders by 12.4 s (3400 records)"


def test_one_look_within_the_bound_ends_it() -> None:
    judged = judge()
    for at_us in (0, WINDOW_US):
        judged.take(at_us, {"orders": FAR})
    judged.take(WINDOW_US + 1, {"orders": NEAR})
    assert judged.words == ""
    judged.take(WINDOW_US + 2, {"orders": FAR})
    assert judged.words == ""


def test_a_lag_that_is_not_known_is_no_lag_of_zero() -> None:
    judged = judge()
    for at_us in (0, WINDOW_US):
        judged.take(at_us, {"orders": FAR})
    judged.take(WINDOW_US + 1, {})
    assert "orders by 12.4 s" in judged.words


def test_a_source_of_which_nothing_was_ever_known_is_not_behind() -> None:
    judged = judge()
    for at_us in (0, WINDOW_US, 2 * WINDOW_US):
        judged.take(at_us, {})
    assert judged.words == ""


def test_sources_that_are_not_upstream_are_not_judged() -> None:
    judged = judge("orders")
    for at_us in (0, WINDOW_US):
        judged.take(at_us, {"others": FAR})
    assert judged.words == ""


def test_without_a_bound_nothing_is_judged() -> None:
    judged = SourceLagJudge(None, WINDOW_US, ("orders",))
    for at_us in (0, WINDOW_US):
        judged.take(at_us, {"orders": FAR})
    assert judged.words == ""
