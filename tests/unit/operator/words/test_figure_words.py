"""Numbers as people read them."""

from __future__ import annotations

import pytest

from penstock_operator.words import figure_words


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0"), (999, "999"), (12345.6, "12 346"), (1e6, "1 000 000")]
)
def test_counts_are_grouped_by_thousands(value: float | None, text: str) -> None:
    assert figure_words.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (0.25, "0.2"), (9.96, "10.0"), (10.4, "10"), (20500, "20 500")],
)
def test_small_rates_have_a_decimal(value: float | None, text: str) -> None:
    assert figure_words.rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.00 ms"),
        (2.449, "2.45 ms"),
        (9.999, "10.0 ms"),
        (24.51, "24.5 ms"),
        (99.96, "100 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (61_000, "61.0 s"),
        (700_000, "11:40"),
    ],
)
def test_latencies_have_three_digits_and_a_unit(value: float | None, text: str) -> None:
    assert figure_words.latency(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0:00"), (75.9, "1:15"), (3675, "1:01:15")])
def test_durations_read_like_a_clock(value: float, text: str) -> None:
    assert figure_words.duration(value) == text


def test_a_sparkline_leaves_a_gap_for_what_is_unknown() -> None:
    assert figure_words.sparkline([0.0, None, 5.0, 10.0], 5) == " ▁ ▅█"


def test_a_sparkline_shows_the_last_values_and_stands_zero() -> None:
    assert figure_words.sparkline([9.0, 1.0, 2.0], 2) == "▅█"
    assert figure_words.sparkline([0.0, 0.0], 2) == "▁▁"
    assert figure_words.sparkline([], 3) == "   "


@pytest.mark.parametrize(
    ("at_ms", "lag_ms", "text"),
    [
        (None, None, "–"),
        (1767268805250, 3200, "12:00:05"),
        (1767268805250, -3200, "12:00:05"),
        (1767268805250, 43_200_001, "2026-01-01 12:00:05"),
        (1767268805250, None, "2026-01-01 12:00:05"),
        (-1, None, "1969-12-31 23:59:59"),
        (1 << 62, None, "–"),
    ],
)
def test_a_moment_has_its_day_where_it_is_far_from_now(
    at_ms: int | None, lag_ms: int | None, text: str
) -> None:
    assert figure_words.moment(at_ms, lag_ms) == text


def test_an_instant_is_as_kubernetes_has_them() -> None:
    assert figure_words.instant(1767268805250) == "2026-01-01T12:00:05.250Z"
    assert figure_words.instant(-62_135_596_800_000) == "0001-01-01T00:00:00.000Z"
    assert figure_words.instant(1 << 62) is None
    assert figure_words.instant(None) is None


@pytest.mark.parametrize(
    ("lag_ms", "text"),
    [
        (0, "0.0 s behind"),
        (3210, "3.2 s behind"),
        (-2000, "2.0 s ahead"),
        (4_500_000, "1:15:00 behind"),
        (412 * 86_400_000, "412 days behind"),
    ],
)
def test_a_lag_says_in_which_direction(lag_ms: int, text: str) -> None:
    assert figure_words.behind(lag_ms) == text
