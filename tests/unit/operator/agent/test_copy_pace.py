"""How long a mover rests between the parts of a copy ahead."""

from __future__ import annotations

import pytest

from penstock_operator.agent.copy_pace import CopyPace

SHARE = 0.25
BURST_S = 0.03


def test_a_short_copy_never_rests() -> None:
    pace = CopyPace(SHARE, BURST_S, 0.0)
    assert [pace.rest_after(at_s, at_s + 0.01) for at_s in (0.0, 0.01, 0.02)] == [0.0, 0.0, 0.0]


def test_a_long_copy_has_its_share_of_the_time_and_the_burst() -> None:
    pace = CopyPace(SHARE, BURST_S, 0.0)
    now_s = copied_s = 0.0
    for _ in range(1000):
        rest_s = pace.rest_after(now_s, now_s + 0.01)
        copied_s += 0.01
        now_s += 0.01 + rest_s
    assert copied_s == pytest.approx(SHARE * now_s + BURST_S)


def test_what_was_not_used_is_kept_up_to_the_burst_and_no_further() -> None:
    pace = CopyPace(SHARE, BURST_S, 0.0)
    worked_s = 1.0
    rest_s = (worked_s * (1 - SHARE) - BURST_S) / SHARE
    assert pace.rest_after(0.0, worked_s) == pytest.approx(rest_s)
    a_day_later_s = 86_400.0
    assert pace.rest_after(a_day_later_s, a_day_later_s + worked_s) == pytest.approx(rest_s)


def test_it_says_how_long_a_copy_may_last_without_a_rest() -> None:
    pace = CopyPace(SHARE, BURST_S, 0.0)
    assert pace.held_s(0.0) == BURST_S
    pace.rest_after(0.0, 0.02)
    assert pace.held_s(0.02) == pytest.approx(BURST_S - 0.02 * (1 - SHARE))
    assert pace.rest_after(0.02, 1.0) == pytest.approx(-pace.held_s(1.0) / SHARE)
