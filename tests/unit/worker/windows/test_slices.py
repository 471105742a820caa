"""Windows of one length hold the times that they should, and slices put them together without a loss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.window import Sliding, Tumbling
from penstock_worker.windows.slices import Slicing

TIMES_MS = st.integers(-100_000, 100_000)


@st.composite
def windows(draw: st.DrawFn) -> Sliding:
    size_ms = draw(st.integers(1, 60))
    every_ms = draw(st.integers(1, size_ms))
    return Sliding(size_ms, every_ms, draw(st.integers(1 - every_ms, every_ms - 1)))


def as_spark_assigns(window: Sliding, time_ms: int) -> list[tuple[int, int]]:
    """Spark's TimeWindowing: from the last start at or before the time backwards."""
    remainder = (time_ms - window.offset_ms) % window.every_ms
    last = time_ms - remainder
    count = -(-window.size_ms // window.every_ms)
    starts = [last - number * window.every_ms for number in range(count)]
    return sorted((s, s + window.size_ms) for s in starts if s <= time_ms < s + window.size_ms)


def test_a_tumbling_window_is_half_open_and_before_1970_too() -> None:
    slicing = Slicing(Tumbling(10_000))
    assert slicing.windows_of(0) == slicing.windows_of(9_999) == [(0, 10_000)]
    assert slicing.windows_of(-1) == slicing.windows_of(-10_000) == [(-10_000, 0)]
    assert slicing.windows_of(10_000) == [(10_000, 20_000)]


def test_of_a_tumbling_window_the_slice_is_the_window() -> None:
    slicing = Slicing(Tumbling(10_000, offset_ms=-3_000))
    assert (slicing.slice_of(6_999), slicing.first_end(-3_000), slicing.last_end(-3_000)) == (
        -3000,
        7000,
        7000,
    )


@given(windows(), TIMES_MS)
def test_a_time_is_in_the_windows_that_spark_assigns(window: Sliding, time_ms: int) -> None:
    assert Slicing(window).windows_of(time_ms) == as_spark_assigns(window, time_ms)


@given(windows(), TIMES_MS, st.integers(0, 59))
def test_times_of_one_slice_are_in_the_same_windows(window: Sliding, time_ms: int, later_ms: int) -> None:
    slicing = Slicing(window)
    assert slicing.slice_of(time_ms) <= time_ms
    if slicing.slice_of(time_ms + later_ms) == slicing.slice_of(time_ms):
        assert slicing.windows_of(time_ms + later_ms) == slicing.windows_of(time_ms)
    assert slicing.windows_of(slicing.slice_of(time_ms)) == slicing.windows_of(time_ms)


@given(windows(), st.lists(TIMES_MS, min_size=1, max_size=20), st.lists(TIMES_MS, max_size=6))
def test_each_window_with_rows_is_closed_once_with_all_its_slices_when_the_watermark_passes(
    window: Sliding, times_ms: list[int], watermarks_ms: list[int]
) -> None:
    slicing = Slicing(window)
    starts = sorted({slicing.slice_of(time_ms) for time_ms in times_ms})
    wanted = {one for time_ms in times_ms for one in slicing.windows_of(time_ms)}
    next_end_ms: int | None = slicing.first_end(starts[0])
    found = []
    for watermark_ms in [*sorted(watermarks_ms), 200_000]:
        if next_end_ms is None:
            break
        closed, done, next_end_ms = slicing.closed(starts, next_end_ms, watermark_ms)
        assert {end for _, end in wanted if end <= watermark_ms} >= {one.end_ms for one in closed}
        for one in closed:
            found.append((one.start_ms, one.end_ms))
            inside = {start for start in starts if one.start_ms <= start < one.end_ms}
            assert set(starts[one.first : one.behind]) == inside
        assert {one for one in wanted if one[1] <= watermark_ms} == set(found)
        del starts[:done]
        assert all(slicing.last_end(start) > watermark_ms for start in starts)
    assert found == sorted(wanted)
    assert next_end_ms is None
