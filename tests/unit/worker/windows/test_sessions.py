"""Rows become the same sessions in whatever order and batches they come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_worker.windows.sessions import Span, merged, spans_of

GAP_US = 10
TIMES_US = st.integers(-200, 200)


def sessions_of(times_us: list[int]) -> list[tuple[int, int]]:
    """By the rule: a row is of the session of the one before where it comes at most a gap later."""
    found: list[tuple[int, int]] = []
    for time_us in sorted(times_us):
        if found and time_us <= found[-1][1] + GAP_US:
            found[-1] = found[-1][0], time_us
        else:
            found.append((time_us, time_us))
    return found


def test_a_row_a_whole_gap_behind_still_belongs_as_in_spark() -> None:
    assert len(merged([Span(0, 0), Span(10, 10)], GAP_US)) == 1
    assert len(merged([Span(0, 0), Span(11, 11)], GAP_US)) == 2


def test_a_row_between_two_sessions_makes_them_one() -> None:
    assert merged([Span(0, 5), Span(20, 30), Span(12, 12)], GAP_US) == [
        [Span(0, 5), Span(12, 12), Span(20, 30)]
    ]


def test_rows_of_one_time_stay_in_their_order() -> None:
    (span,) = spans_of([(5, "b"), (3, "a"), (5, "c")], GAP_US)
    assert span == Span(3, 5, rows=("a", "b", "c"))


@given(st.lists(st.lists(TIMES_US, max_size=8), max_size=5))
def test_sessions_do_not_depend_on_batches(batches: list[list[int]]) -> None:
    spans: list[Span] = []
    for times_us in batches:
        fresh = spans_of([(time_us, time_us) for time_us in times_us], GAP_US)
        assert [row for span in fresh for row in span.rows] == sorted(times_us)
        spans = [
            Span(parts[0].first_us, max(part.last_us for part in parts))
            for parts in merged([*spans, *fresh], GAP_US)
        ]
    times_us = [time_us for batch in batches for time_us in batch]
    assert [(span.first_us, span.last_us) for span in spans] == sessions_of(times_us)
