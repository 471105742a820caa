"""Windows in PySpark's TwsTester: what comes out when, and what is left of it in state."""

from __future__ import annotations

import random
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.window import Aggregate, Session, Sliding, Tumbling, Window, WindowAggregation
from penstock_worker.windows import open_slices
from penstock_worker.windows.processors import window_processor
from penstock_worker.windows.slices import Slicing
from penstock_worker.windows.stored_types import WindowStateUnreadable
from scenes.window_scene import END_MS, WindowScene, at, by_start, ms_of

GIVEN = parse_schema("word string, at timestamp, n bigint")
COUNT = Aggregate("rows", "count")
SUM = Aggregate("total", "sum", "n")
DISTINCT = Aggregate("distinct", "approxCountDistinct", "n")


def scene(window: Window, *aggregates: Aggregate) -> WindowScene:
    aggregation = WindowAggregation(window, "at", aggregates or (COUNT, SUM))
    return WindowScene(window_processor(aggregation, GIVEN, (0,)), GIVEN.names, lambda row: ms_of(row.at))


def test_a_window_comes_out_once_when_the_watermark_reaches_its_end() -> None:
    made = scene(Tumbling(10_000))
    made.give(("a", at(1), 1), ("a", at(9999.999), 2), ("a", at(10_000), 4))
    made.watermark(9_999)
    assert made.made == []
    made.watermark(10_000)
    assert made.made == [("a", at(0), at(10_000), 2, 3)]
    made.watermark(END_MS)
    assert made.made[1:] == [("a", at(10_000), at(20_000), 1, 4)]
    assert made.holds_nothing()


def test_a_key_has_one_timer_for_its_next_window() -> None:
    made = scene(Tumbling(1000))
    made.give(*[("a", at(ms), 1) for ms in (2500, 3500, 4500)])
    assert made.timers() == {"a": [3000]}
    made.give(("a", at(1500), 1))
    made.watermark(2000)
    assert made.timers() == {"a": [3000]}
    made.watermark(4999)
    assert len(made.made) == 3
    assert made.timers() == {"a": [5000]}


def test_rows_without_a_time_are_dropped_and_null_values_left_out() -> None:
    made = scene(Tumbling(1000), Aggregate("rows", "count"), Aggregate("values", "count", "n"), SUM)
    made.tester.handle.setGroupingKey("a")
    rows = [made._row("a", None, 1), made._row("a", at(5), None)]
    values = made.tester._getTimerValues()
    assert list(made.tester.processor.handleInputRows(("a",), iter(rows), values)) == []
    made.watermark(END_MS)
    assert made.made == [("a", at(0), at(1000), 1, 0, None)]
    made.tester.handle.setGroupingKey("b")
    list(made.tester.processor.handleInputRows(("b",), iter(rows[:1]), values))
    assert made.holds_nothing()


def test_a_row_is_in_each_window_that_slides_over_it() -> None:
    made = scene(Sliding(10_000, 4_000))
    made.play([("a", at(9_000), 1), ("a", at(17_000), 2)], batch_rows=1, delay_ms=0)
    assert by_start(made.made) == [
        ("a", 0, 10_000, 1, 1),
        ("a", 4_000, 14_000, 1, 1),
        ("a", 8_000, 18_000, 2, 3),
        ("a", 12_000, 22_000, 1, 2),
        ("a", 16_000, 26_000, 1, 2),
    ]
    assert made.holds_nothing()


def test_a_session_goes_on_until_its_gap_and_moves_its_timer_when_that_fires() -> None:
    made = scene(Session(1000))
    made.give(("a", at(100), 1))
    made.give(("a", at(900), 2), ("b", at(950), 9))
    assert made.timers() == {"a": [1101], "b": [1951]}
    made.watermark(1101)
    assert made.timers() == {"a": [1901], "b": [1951]}
    made.give(("a", at(1900), 4), ("a", at(2900.5), 8))
    made.watermark(END_MS)
    assert by_start(made.made) == [
        ("a", 100, 2900, 3, 7),
        ("a", 2900.5, 3900.5, 1, 8),
        ("b", 950, 1950, 1, 9),
    ]
    assert made.holds_nothing()


def test_a_session_is_over_only_behind_its_end() -> None:
    """Where a row would still belong: whether one there is late is not for a window to say."""
    made = scene(Session(1000))
    made.give(("a", at(100.5), 1), ("b", at(100), 1))
    made.watermark(1100)
    made.give(("a", at(1100.4), 2))
    assert made.made == []
    made.watermark(2100)
    assert made.made == [("b", at(100), at(1100), 1, 1)]
    made.watermark(2101)
    assert made.made[1:] == [("a", at(100.5), at(2100.4), 2, 3)]


def test_a_row_between_two_sessions_makes_them_one() -> None:
    made = scene(Session(1000), COUNT, SUM, DISTINCT)
    made.give(("a", at(3500), 2), ("a", at(2000), 1))
    made.give(("a", at(2800), 2))
    made.watermark(END_MS)
    assert made.made == [("a", at(2000), at(4500), 3, 5, 2)]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 400), st.integers(-5, 5)), max_size=30),
    st.sampled_from([Tumbling(50, 7), Sliding(50, 20), Sliding(60, 20, -3), Sliding(7, 1), Session(11)]),
    st.integers(1, 10),
)
def test_what_comes_out_is_every_window_with_its_rows(
    events: list[tuple[str, int, int]], window: Window, batch_rows: int
) -> None:
    rows = [(key, at(ms), n) for key, ms, n in events]
    made = scene(window)
    found = by_start(made.play(rows, batch_rows, delay_ms=1000))
    assert found == expected(window, events)
    assert made.holds_nothing()


def expected(window: Window, events: list[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
    groups: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    if not isinstance(window, Session):
        for key, ms, n in events:
            for bounds in Slicing(window).windows_of(ms):
                groups[key, *bounds].append(n)
    else:
        last: dict[str, tuple[int, list[int], int]] = {}
        for key, ms, n in sorted(events):
            start, values, latest = last.get(key, (ms, [], ms))
            if ms > latest + window.gap_ms:
                groups[key, start, latest + window.gap_ms] = values
                start, values = ms, []
            last[key] = start, [*values, n], ms
        for key, (start, values, latest) in last.items():
            groups[key, start, latest + window.gap_ms] = values
    return sorted((*bounds, len(values), sum(values)) for bounds, values in groups.items())


@pytest.mark.parametrize("aggregates", [(COUNT, SUM), (COUNT, SUM, DISTINCT)])
def test_slices_that_outgrow_a_value_go_on_in_a_map(
    monkeypatch: pytest.MonkeyPatch, aggregates: tuple[Aggregate, ...]
) -> None:
    monkeypatch.setattr(open_slices, "TOGETHER_BYTES_MAX", 40)
    window = Sliding(400, 7)
    made = scene(window, *aggregates)
    random_ = random.Random(5)
    events = [(key, random_.randrange(2, 900), random_.randrange(3)) for key in "ab" for _ in range(200)]
    random_.shuffle(events)
    rows = [(key, at(ms), n) for key, ms, n in events]
    made.give(*rows[:200])
    assert made.tester.handle.map_states["windowsApart"].state["a"]
    made.watermark(1)
    made.give(*rows[200:])
    made.watermark(END_MS)
    assert [one[:5] for one in by_start(made.made)] == expected(window, events)
    assert made.holds_nothing()


def test_few_small_slices_need_no_map() -> None:
    assert not scene(Tumbling(1000)).tester.handle.map_states
    assert scene(Tumbling(1000), DISTINCT).tester.handle.map_states
    assert scene(Sliding(1000, 1)).tester.handle.map_states


def test_state_of_other_aggregates_is_refused_with_a_sentence() -> None:
    before = scene(Tumbling(1000), COUNT)
    before.give(("a", at(5), 1))
    now = scene(Tumbling(1000), COUNT, SUM)
    now.tester.handle.value_states["windows"].state = before.tester.handle.value_states["windows"].state
    with pytest.raises(WindowStateUnreadable, match="other columns or aggregates"):
        now.give(("a", at(6), 1))


def test_keys_of_several_columns_come_out_as_they_are() -> None:
    given = parse_schema("word string, of decimal(5,2), at timestamp_ntz, n bigint")
    aggregation = WindowAggregation(Tumbling(1000), "at", (COUNT,))
    made = WindowScene(window_processor(aggregation, given, (1, 0)), given.names, lambda row: 1)
    key = Decimal("1.50"), "a"
    made.tester.handle.setGroupingKey(key)
    row = made._row("a", key[0], at(1).replace(tzinfo=None), 1)
    processor = made.tester.processor
    list(processor.handleInputRows(key, iter([row]), TimerValues(0, 0)))
    (found,) = processor.handleExpiredTimer(key, TimerValues(0, 1000), ExpiredTimerInfo(1000))
    assert found == Row(of=key[0], word="a", windowStart=at(0), windowEnd=at(1000), rows=1)
    assert list(found.asDict()) == ["of", "word", "windowStart", "windowEnd", "rows"]
