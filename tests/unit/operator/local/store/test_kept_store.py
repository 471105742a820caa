"""Whether a store's server that does not answer hangs."""

from __future__ import annotations

from penstock_operator.local.store.kept_store import HUNG_S, STOPPED_S, HungRule

LOOK_S = 1.1


def hung_after_s(state: str, *, works: bool = False, most_s: float = 3 * HUNG_S) -> float:
    rule = HungRule()
    now_s = 0.0
    while now_s < most_s:
        if rule.is_hung(now_s, state, int(now_s * 100) if works else 7):
            return now_s
        now_s += LOOK_S
    return most_s


def test_a_stopped_server_is_killed_within_seconds() -> None:
    assert hung_after_s("T") <= STOPPED_S


def test_one_that_does_nothing_is_given_half_a_minute() -> None:
    assert HUNG_S <= hung_after_s("S") <= HUNG_S + 2 * LOOK_S


def test_one_that_works_or_waits_for_its_disk_does_not_hang() -> None:
    assert hung_after_s("R", works=True) == 3 * HUNG_S
    assert hung_after_s("D") == 3 * HUNG_S


def test_an_answer_makes_good() -> None:
    rule = HungRule()
    for now_s in range(0, 1000, 20):
        assert not rule.is_hung(float(now_s), "S", 7)
        rule.answered()
