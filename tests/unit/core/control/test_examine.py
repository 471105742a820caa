"""Examine (StreamSwitch, section 4): rates, latencies, what is missing, and what stands still."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.samples.sample_columns import SampleColumns
from penstock.control.samples.sample_table import Shards, Writers, table_of
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot
from penstock.control.streamswitch.examination import Examination
from penstock.control.streamswitch.examine import Examiner
from penstock.control.target import LatencyTarget
from scenes.control_scene import SLOT_US, Counts, Feed

TARGET = LatencyTarget(latency_us=1_000_000)


def look(feed: Feed, examiner: Examiner, **seen: object) -> Examination:
    examined = examiner.observe(feed.at_us, feed.seen(**seen))  # type: ignore[arg-type]
    feed.at_us += SLOT_US
    return examined


def steady(
    feed: Feed,
    examiner: Examiner,
    slots: int,
    rows: int = 10,
    latency_us: float = 5000,
    busy_us: float = 1000,
) -> Examination:
    """`slots` looks, each after `rows` rows a shard."""
    for _ in range(slots):
        for shard in feed.counts:
            feed.add(shard, rows, rows, latency_us, busy_us)
        examined = look(feed, examiner)
    return examined


# --- rates --------------------------------------------------------------------------------------------


def test_arrival_rates_are_rows_over_the_window() -> None:
    # Section 4.2: (a^k[n] - a^k[n - T/delta]) / T; 95 and 5 rows a slot of 100 ms are 950/s and 50/s.
    feed, examiner = Feed({"s0": "E1", "s1": "E1"}), Examiner(TARGET)
    look(feed, examiner)
    for _ in range(10):
        feed.add("s0", 95, 95, busy_us=1000)
        feed.add("s1", 5, 5, busy_us=1000)
        examined = look(feed, examiner)
    assert examined.missing == ""
    assert examined.shard_arrival_per_s.tolist() == [950, 50]
    assert examined.arrival_per_s.tolist() == [1000]


def test_only_the_last_window_counts() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 11, rows=90)
    assert steady(feed, examiner, 5, rows=30).arrival_per_s.tolist() == [600]
    assert steady(feed, examiner, 5, rows=30).arrival_per_s.tolist() == [300]


def test_a_late_look_counts_the_time_that_passed() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 11)
    feed.at_us += SLOT_US
    feed.add("s0", 20, 20, 5000, 1000)
    assert look(feed, examiner).arrival_per_s.tolist() == [pytest.approx(100)]


def test_service_rates_are_a_moving_average_of_rows_over_useful_time() -> None:
    # Section 4.2, eta = 1/8, over useful time a row: 7/8 * 1 ms + 1/8 * 0.5 ms = 0.9375 ms.
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    assert steady(feed, examiner, 12, rows=80, busy_us=1000).service_per_s.tolist() == [1000]
    assert steady(feed, examiner, 1, rows=80, busy_us=500).service_per_s.tolist() == [1e6 / 937.5]


def test_a_service_rate_is_right_in_the_mean_where_service_times_are_exponential() -> None:
    # The mean of C / busy time would be C / (C - 1) times too high.
    random = np.random.default_rng(1)
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    found = []
    for _ in range(4000):
        examined = steady(feed, examiner, 1, rows=64, busy_us=random.standard_gamma(64) / 64 * 1000)
        if not examined.missing:
            found.append(examined.service_per_s[0])
    assert np.mean(found) == pytest.approx(1000, rel=0.005)
    assert np.std(found) == pytest.approx(1000 / np.sqrt(64 * 15), rel=0.2)


def test_an_idle_executor_keeps_its_service_rate() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 12, rows=20, busy_us=1000)
    assert steady(feed, examiner, 30, rows=0).service_per_s.tolist() == [1000]


def test_samples_of_a_few_rows_are_put_together() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 12, rows=64, busy_us=1000)
    assert steady(feed, examiner, 3, rows=16, busy_us=500).service_per_s.tolist() == [1000]
    assert steady(feed, examiner, 1, rows=16, busy_us=500).service_per_s.tolist() == [1e6 / 937.5]


def test_the_first_samples_count_alike() -> None:
    # 0.5 and 1 ms a row: the mean of both, not 7/8 of the first.
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 10, rows=0)
    steady(feed, examiner, 1, rows=80, busy_us=500)
    assert steady(feed, examiner, 1, rows=80, busy_us=1000).service_per_s.tolist() == [1e6 / 750]


def test_an_executor_of_several_tasks_serves_as_many_times_more() -> None:
    feed, examiner = Feed({"s0": "E1"}, tasks=3), Examiner(TARGET)
    assert steady(feed, examiner, 12, rows=20, busy_us=1000).service_per_s.tolist() == [3000]


def test_executors_are_told_apart_by_their_own_work() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E2"}), Examiner(TARGET)
    for _ in range(12):
        feed.add("s0", 20, 20, busy_us=1000)
        feed.add("s1", 20, 20, busy_us=4000)
        examined = look(feed, examiner)
    assert examined.service_per_s.tolist() == [1000, 250]


def test_a_new_executor_has_the_service_rate_of_the_one_its_shards_come_from() -> None:
    # Section 3.4: mu_d = mu_s, until it is measured.
    feed, examiner = Feed({"s0": "E1", "s1": "E1", "s2": "E2"}), Examiner(TARGET)
    for _ in range(12):
        feed.add("s0", 20, 20, busy_us=2000)
        feed.add("s1", 20, 20, busy_us=2000)
        feed.add("s2", 20, 20, busy_us=500)
        look(feed, examiner)
    feed.assignment["s1"] = "E9"
    examined = look(feed, examiner)
    assert dict(zip(examined.executors, examined.service_per_s.tolist(), strict=True)) == {
        "E1": 500,
        "E9": 500,
        "E2": 2000,
    }


def test_its_own_work_soon_corrects_the_rate_of_a_new_executor() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 12, rows=20, busy_us=1000)
    feed.assignment["s1"] = "E2"
    look(feed, examiner)
    # The borrowed 1 ms a row counts as one sample beside the measured third of it.
    examined = steady(feed, examiner, 1, rows=80, busy_us=1000 / 3)
    assert examined.service_per_s.tolist()[1] == pytest.approx(1500)


def test_the_slot_in_which_a_shard_changes_hands_counts_for_nobodys_rate_and_the_next_one_does() -> None:
    # What s1 brought in it was worked on by E1, at 1 ms a row, and E2 takes 2 ms.
    feed, examiner = Feed({"s0": "E1", "s1": "E1", "s2": "E2"}), Examiner(TARGET)
    for _ in range(12):
        feed.add("s0", 80, 80, busy_us=1000)
        feed.add("s1", 80, 80, busy_us=1000)
        feed.add("s2", 80, 80, busy_us=2000)
        look(feed, examiner)
    feed.assignment["s1"] = "E2"
    feed.add("s0", 80, 80, busy_us=1000)
    feed.add("s1", 800, 800, busy_us=1000)
    feed.add("s2", 80, 80, busy_us=2000)
    assert look(feed, examiner).service_per_s.tolist() == [1000, 500]
    # 7/8 * 2 ms + 1/8 * 4 ms = 2.25 ms.
    feed.add("s1", 80, 80, busy_us=4000)
    assert look(feed, examiner).service_per_s.tolist() == [1000, 1e6 / 2250]


def test_who_never_worked_has_the_mean_of_the_others() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E2", "s2": "E3"}), Examiner(TARGET)
    for _ in range(12):
        feed.add("s0", 20, 20, busy_us=1000)
        feed.add("s1", 20, 20, busy_us=500)
        examined = look(feed, examiner)
    assert examined.service_per_s.tolist() == [1000, 2000, 1500]


def test_without_useful_time_no_service_rate_is_known() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    feed.counts["s0"].busy_us = None
    examined = steady(feed, examiner, 12)
    assert examined.missing == ""
    assert np.isnan(examined.service_per_s).all()


# --- latency ------------------------------------------------------------------------------------------


def test_instantaneous_latency_weighs_shards_by_their_completed_rows() -> None:
    # Section 4.1: (10 * 20 ms + 30 * 60 ms) / 40 = 50 ms.
    feed, examiner = Feed({"s0": "E1", "s1": "E1"}), Examiner(TARGET)
    for _ in range(11):
        feed.add("s0", 10, 10, 20_000, 1000)
        feed.add("s1", 30, 30, 60_000, 1000)
        examined = look(feed, examiner)
    assert examined.instantaneous_us.tolist() == [pytest.approx(50_000)]
    assert examined.shard_latency_us.tolist() == [pytest.approx(20_000), pytest.approx(60_000)]


def test_instantaneous_latency_weighs_slots_by_their_completed_rows() -> None:
    # (5 slots * 10 rows * 10 ms + 5 slots * 30 rows * 50 ms) / 200 rows = 40 ms.
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 6, rows=10, latency_us=10_000)
    examined = steady(feed, examiner, 5, rows=30, latency_us=50_000)
    assert examined.instantaneous_us.tolist() == [pytest.approx(40_000)]


def test_each_slot_counts_for_who_held_the_shard_then() -> None:
    # K_i[m] (section 4.1): of ten slots s1 spends five on E1 and five on E2.
    # E1: (100 rows * 10 ms + 50 rows * 50 ms) / 150 rows = 23.3 ms; E2: 50 ms.
    feed, examiner = Feed({"s0": "E1", "s1": "E1", "s2": "E2"}), Examiner(TARGET)
    look(feed, examiner)
    for slot in range(10):
        if slot == 5:
            feed.assignment["s1"] = "E2"
        feed.add("s0", 10, 10, 10_000, 1000)
        feed.add("s1", 10, 10, 50_000, 1000)
        examined = look(feed, examiner)
    assert examined.instantaneous_us.tolist() == [pytest.approx(3_500_000 / 150), pytest.approx(50_000)]
    # What arrives is counted for who holds the shard now: that is what is projected.
    assert examined.arrival_per_s.tolist() == [100, 100]


def test_slots_of_an_executor_that_left_count_for_nobody() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E2"}), Examiner(TARGET)
    look(feed, examiner)
    for slot in range(10):
        if slot == 5:
            feed.assignment["s1"] = "E1"
        feed.add("s0", 10, 10, 10_000, 1000)
        feed.add("s1", 10, 10, 40_000 if slot < 5 else 20_000, 1000)
        examined = look(feed, examiner)
    assert examined.executors == ("E1",)
    # (100 * 10 ms + 50 * 20 ms) / 150.
    assert examined.instantaneous_us.tolist() == [pytest.approx(2_000_000 / 150)]


def test_where_sums_are_not_known_slots_are_counted() -> None:
    # Section 4.1, FIFO: 10 rows arrive in slot 1 and 10 in slot 2. 5 complete in slot 2 (one slot each), 15
    # in slot 3: 5 of slot 1 (two slots), 10 of slot 2 (one). 25 slots over 20 rows are 125 ms.
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    feed.counts["s0"] = Counts(waited_us=None, served_us=None, busy_us=None)
    look(feed, examiner)
    for arrived, completed in ((10, 0), (10, 5), (0, 15), *[(0, 0)] * 7):
        feed.add("s0", arrived, completed)
        examined = look(feed, examiner)
    assert examined.missing == ""
    assert examined.instantaneous_us.tolist() == [pytest.approx(125_000)]
    assert examined.shard_latency_us.tolist() == [pytest.approx(125_000)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=12, max_size=40))
def test_counted_latency_is_that_of_every_row_traced(slots: list[tuple[int, int]]) -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    feed.counts["s0"] = Counts(waited_us=None, served_us=None, busy_us=None)
    look(feed, examiner)
    queue: list[int] = []
    latencies: list[list[int]] = []
    for slot, (arrived, wanted) in enumerate(slots):
        queue += [slot] * arrived
        done, queue = queue[:wanted], queue[wanted:]
        latencies.append([(slot - came) * SLOT_US for came in done])
        feed.add("s0", arrived, len(done))
        examined = look(feed, examiner)
    window = [latency for slot in latencies[-10:] for latency in slot]
    assert examined.shard_completed.tolist() == [len(window)]
    assert examined.shard_latency_sum_us.tolist() == [pytest.approx(sum(window))]


# --- what is missing ----------------------------------------------------------------------------------


def test_a_window_that_is_not_full_is_no_window() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    assert "900 ms of a window of 1000 ms" in steady(feed, examiner, 10).missing
    assert steady(feed, examiner, 1).missing == ""


def test_a_shard_that_was_not_read_makes_the_state_invalid_until_it_is_read_again() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 11)
    for shard in feed.counts:
        feed.add(shard, 10, 10, 5000, 1000)
    assert "1 of 2 shards were not read, s1 first" in look(feed, examiner, unread=["s1"]).missing
    examined = steady(feed, examiner, 1)
    assert examined.missing == ""
    assert examined.shard_arrival_per_s.tolist() == [100, 100]


def test_missing_slots_are_interpolated_linearly() -> None:
    # Section 4.3: slot 5 is missing between 10 rows in it and 30 in slot 6, so each gets 20. Of the window
    # that begins with slot 6, 20 + 9 * 10 rows are left.
    feed, examiner = Feed({"s0": "E1", "s1": "E1"}), Examiner(TARGET)
    look(feed, examiner)
    for slot in range(1, 16):
        feed.add("s0", 30 if slot == 6 else 10, 10, 5000, 1000)
        feed.add("s1", 10, 10, 5000, 1000)
        examined = look(feed, examiner, unread=["s0"] if slot == 5 else ())
    assert examined.shard_arrival_per_s.tolist() == [pytest.approx(110), 100]


def test_a_look_in_which_nothing_was_read_is_interpolated_too() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    look(feed, examiner)
    for slot in range(1, 16):
        feed.add("s0", 30 if slot == 6 else 10, 10, 5000, 1000)
        examined = look(feed, examiner, unread=["s0"] if slot == 5 else ())
    assert examined.shard_arrival_per_s.tolist() == [pytest.approx(110)]


def test_a_gap_of_more_than_a_window_is_not_bridged() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 11)
    for _ in range(12):
        feed.add("s0", 10, 10, 5000, 1000)
        feed.add("s1", 10, 10, 5000, 1000)
        look(feed, examiner, unread=["s0"])
    assert "of shard s0 only 0 ms" in steady(feed, examiner, 1).missing
    assert "of shard s0 only 400 ms" in steady(feed, examiner, 4).missing
    assert steady(feed, examiner, 1).shard_arrival_per_s.tolist() == [100, 100]


def test_a_difference_across_two_writers_is_missing_and_adds_nothing() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 11)
    feed.counts["s0"] = Counts(50_000, 49_000, 7e9, 0.0, 9e9, writer="w1")
    examined = look(feed, examiner)
    assert examined.missing == ""
    assert examined.shard_arrival_per_s.tolist() == [100]
    assert examined.instantaneous_us.tolist() == [pytest.approx(5000)]
    assert examined.service_per_s.tolist() == [1000]


def test_a_count_that_falls_is_of_another_writer() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 11)
    feed.counts["s0"] = Counts(3, 3)
    assert look(feed, examiner).shard_arrival_per_s.tolist() == [100]
    assert steady(feed, examiner, 1).shard_arrival_per_s.tolist() == [100]


def test_a_shard_on_no_executor_makes_the_state_invalid() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E2"}), Examiner(TARGET)
    steady(feed, examiner, 11)
    assert look(feed, examiner, executors=["E1"]).missing == "shard s1 is on no executor"
    assert look(feed, examiner).missing == ""


def test_other_shards_begin_a_new_window() -> None:
    examiner = Examiner(TARGET)
    feed = Feed({"s0": "E1"})
    steady(feed, examiner, 11)
    other = Feed({"t0": "E1"})
    other.at_us = feed.at_us
    assert "0 ms of a window" in look(other, examiner).missing


def test_looks_come_in_the_order_of_time() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    look(feed, examiner)
    with pytest.raises(ValueError, match="a look at 0 us after one at 0 us"):
        examiner.observe(0, feed.seen())


def test_an_operator_without_executors_or_shards_is_missing() -> None:
    nothing = OperatorSnapshot("op", (), {}, {})
    assert Examiner(TARGET).observe(0, nothing).missing == "no executor is there"
    idle = OperatorSnapshot("op", (ExecutorSeen("E1", 1, 1),), {}, {})
    assert Examiner(TARGET).observe(0, idle).missing == "no shard is there"


# --- standing still -----------------------------------------------------------------------------------


def test_an_executor_that_completes_nothing_while_rows_wait_is_stalled() -> None:
    # Rows wait from the end of slot 12 on at least: 200 ms later that may still be the rhythm of telling.
    feed, examiner = Feed({"s0": "E1", "s1": "E2"}), Examiner(TARGET)
    steady(feed, examiner, 12)
    stalls = []
    for _ in range(4):
        feed.add("s0", 10, 0)
        feed.add("s1", 10, 10, 5000, 1000)
        examined = look(feed, examiner)
        stalls.append((examined.stalled.tolist(), examined.instantaneous_us.tolist()[0]))
    assert [stalled for stalled, _ in stalls] == [[False, False]] * 3 + [[True, False]]
    assert stalls[-1][1] == 300_000
    assert stalls[-2][1] == pytest.approx(5000)


def test_a_slow_row_is_no_stall() -> None:
    # 400 ms a row: ten of them may pass by chance.
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 40, rows=1, busy_us=400_000)
    for _ in range(20):
        feed.add("s0", 1, 0)
        assert not look(feed, examiner).stalled.any()


def test_a_pause_for_a_treatment_is_no_stall() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    steady(feed, examiner, 12)
    for _ in range(8):
        feed.add("s0", 10, 0)
        look(feed, examiner, treatment=True)
    for _ in range(2):
        feed.add("s0", 10, 0)
        assert not look(feed, examiner).stalled.any()
    feed.add("s0", 10, 0)
    assert look(feed, examiner).stalled.all()


def test_an_executor_without_rows_is_not_late() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E2"}), Examiner(TARGET)
    for _ in range(30):
        feed.add("s0", 10, 10, 5000, 1000)
        examined = look(feed, examiner)
    assert examined.instantaneous_us.tolist() == [pytest.approx(5000), 0]
    assert not examined.stalled.any()


def test_a_shard_whose_rows_wait_and_none_is_completed_is_the_last_to_move() -> None:
    feed, examiner = Feed({"s0": "E1", "s1": "E1"}), Examiner(TARGET)
    look(feed, examiner)
    for _ in range(11):
        feed.add("s0", 10, 10, 5000, 1000)
        feed.add("s1", 1, 0)
        examined = look(feed, examiner)
    assert examined.shard_latency_us.tolist() == [pytest.approx(5000), math.inf]


# --- arrays -------------------------------------------------------------------------------------------

row_counts = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=6, max_size=6)


@settings(deadline=None, max_examples=30)
@given(st.lists(row_counts, min_size=12, max_size=16))
def test_samples_as_columns_or_tables_are_examined_as_plain_ones_are(
    slots: list[list[tuple[int, int]]],
) -> None:
    names = tuple(f"s{i}" for i in range(6))
    feed = Feed({name: f"E{i % 2}" for i, name in enumerate(names)})
    plain, columns, tables = Examiner(TARGET), Examiner(TARGET), Examiner(TARGET)
    writers, shards = Writers(), Shards(names)
    for slot in slots:
        for name, (arrived, completed) in zip(names, slot, strict=True):
            backlog = feed.counts[name].arrived - feed.counts[name].completed
            feed.add(name, arrived, min(completed, backlog + arrived), 7000, 900)
        seen = feed.seen()
        counts = [feed.counts[name] for name in names]
        arrays = [
            np.array([getattr(count, field) for count in counts], dtype=np.float64)
            for field in ("arrived", "completed", "waited_us", "served_us", "busy_us")
        ]
        as_columns = SampleColumns(names, *arrays, writer="w0")
        assert dict(as_columns) == dict(seen.samples)
        one = plain.observe(feed.at_us, seen)
        for examiner, samples in ((columns, as_columns), (tables, table_of(seen.samples, shards, writers))):
            other = examiner.observe(
                feed.at_us, OperatorSnapshot("op", seen.executors, seen.assignment, samples)
            )
            assert other.missing == one.missing
            assert np.array_equal(other.arrival_per_s, one.arrival_per_s, equal_nan=True)
            assert np.array_equal(other.service_per_s, one.service_per_s, equal_nan=True)
            assert np.array_equal(other.instantaneous_us, one.instantaneous_us, equal_nan=True)
        feed.at_us += SLOT_US


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="for 2 shards"):
        SampleColumns(("s0", "s1"), np.zeros(2), np.zeros(3))


def test_a_shard_that_was_not_read_is_missing_in_columns_too() -> None:
    columns = SampleColumns(("s0", "s1"), np.array([1.0, np.nan]), np.array([1.0, 2.0]))
    assert columns["s1"] is None
    sample = columns["s0"]
    assert sample is not None
    assert (sample.arrived, sample.busy_us) == (1, None)


def test_a_long_run_keeps_its_figures() -> None:
    feed, examiner = Feed({"s0": "E1"}), Examiner(TARGET)
    examined = steady(feed, examiner, 1000, rows=20)
    assert examined.arrival_per_s.tolist() == [200]
    assert examined.instantaneous_us.tolist() == [pytest.approx(5000)]
