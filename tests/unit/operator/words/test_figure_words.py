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
