"""The figures of `make bench-scale-out`: from rows to a reaction, and from a run's words to what it used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import scale_out
from bench.flink_environment import check_python
from bench.flink_side import flat, read_settings
from bench.peer_environment import NoPeerError
from bench.scale_out import BOUND_US, MARKS, WINDOW_US, Load, WrongMarkError, check_told, result_of
from bench.sink_watch import SinkWatch
from bench.step_figures import (
    Rows,
    WrongRowsError,
    ages_us,
    begun_us,
    check_whole,
    longest_gap_us,
    reaction,
    window_means_us,
)

from penstock.dataflow.rate_trace import parse_rate_trace

START_US = 1_700_000_000_000_000
TRACE = parse_rate_trace("0,10\n10,20\n20,0\n")
"""A record every 100 ms, from second 10 on every 50 ms: 300 in all."""


def rows_of(*late: tuple[int, float], processes: dict[int, int] | None = None) -> Rows:
    """All 300 records, 5 ms after they were due, but for (number, ms) that come so late; `processes` is
    number -> process of it and of all after it."""
    numbers = np.arange(300)
    ages = np.full(300, 5_000.0)
    for number, late_ms in late:
        ages[number] = late_ms * 1000
    at_us = (START_US + TRACE.due_us(numbers.astype(np.float64)) + ages).astype(np.int64)
    process = np.zeros(300, np.int64)
    for number, name in sorted((processes or {}).items()):
        process[number:] = name
    order = np.argsort(at_us, kind="stable")
    return Rows(numbers[order], process[order], at_us[order])


def test_the_source_began_when_its_fastest_row_says_so() -> None:
    assert begun_us(rows_of(), TRACE) == START_US + 5_000
    assert ages_us(rows_of((7, 85)), TRACE).max() == pytest.approx(80_000)


def test_a_mean_is_over_the_rows_of_the_window_that_ends_with_it() -> None:
    at_us = np.array([0, 400, 900, 1_400, 5_000])
    means = window_means_us(at_us, np.array([10.0, 20.0, 30.0, 40.0, 90.0]), 1_000)
    # A window is open at its beginning: at 1400 what came at 400 is out of it.
    assert means.tolist() == [10.0, 15.0, 20.0, 35.0, 90.0]


def test_the_longest_gap_counts_from_the_first_moment_to_the_last_one() -> None:
    at_us = np.array([100, 300, 350, 600])
    assert longest_gap_us(at_us, 150, 600) == 250
    assert longest_gap_us(at_us, 150, 2_000) == 1_400
    assert longest_gap_us(at_us, 0, 200) == 100


def test_the_first_record_is_the_first_row_of_a_process_that_came_after_the_step() -> None:
    found = reaction(rows_of(processes={0: 1, 50: 2, 120: 3}), TRACE, 10, 20, BOUND_US, WINDOW_US)
    assert found.first_record_s == pytest.approx(1.0)
    assert found.processes == 2
    nobody = reaction(rows_of(processes={0: 1, 50: 2}), TRACE, 10, 20, BOUND_US, WINDOW_US)
    assert nobody.first_record_s is None


def test_the_decision_is_the_first_one_after_the_step() -> None:
    step_us = START_US + 10_000_000
    decisions_us = (step_us + 900_000, step_us + 405_000, step_us - 1_000_000)
    found = reaction(rows_of(), TRACE, 10, 20, BOUND_US, WINDOW_US, decisions_us)
    assert found.decided_s == pytest.approx(0.4)
    assert reaction(rows_of(), TRACE, 10, 20, BOUND_US, WINDOW_US).decided_s is None


def test_an_sla_that_was_never_broken_was_met_at_once() -> None:
    found = reaction(rows_of(), TRACE, 10, 20, BOUND_US, WINDOW_US)
    assert (found.broken_s, found.sla_met_s) == (None, 0.0)
    assert found.longest_gap_ms == pytest.approx(50.0, abs=1)


def test_an_sla_is_met_again_after_the_last_window_above_the_bound() -> None:
    late = [(number, 600.0) for number in range(140, 180)]
    found = reaction(rows_of(*late), TRACE, 10, 20, BOUND_US, WINDOW_US)
    assert found.broken_s == pytest.approx(2.0 + 0.6 + 0.4, abs=0.3)
    # The last late record is due at second 3.95 and out at 4.55; half a window later the mean is good again.
    assert found.sla_met_s == pytest.approx(4.55 + 0.58, abs=0.3)
    assert found.worst_mean_ms == pytest.approx(595, abs=5)


def test_an_sla_that_is_broken_at_the_end_was_not_met() -> None:
    late = [(number, 600.0) for number in range(240, 300)]
    found = reaction(rows_of(*late), TRACE, 10, 20, BOUND_US, WINDOW_US)
    assert found.broken_s is not None
    assert found.sla_met_s is None


def test_rows_that_are_missing_or_there_twice_are_told() -> None:
    whole = rows_of()
    check_whole(whole, 300)
    with pytest.raises(WrongRowsError, match="299 different records came out of 300"):
        check_whole(Rows(whole.numbers[1:], whole.processes[1:], whole.at_us[1:]), 300)
    twice = Rows(*(np.append(column, column[:2]) for column in (whole.numbers, whole.processes, whole.at_us)))
    with pytest.raises(WrongRowsError, match="2 records came out twice"):
        check_whole(twice, 300)
    check_whole(twice, 300, repeats=True)


def test_the_watch_sees_whole_lines_as_files_grow_and_come(tmp_path: Path) -> None:
    watch = SinkWatch(tmp_path)
    first = tmp_path / "a.jsonl"
    first.write_text('{"number":0,"total":1,"process":7}\n{"number":1,"tot')
    watch._look()
    assert watch.rows().numbers.tolist() == [0]
    with first.open("a") as file:
        file.write('al":1,"process":8}\n')
    (tmp_path / "b.jsonl").write_text('{"number":2,"total":1,"process":9}\n')
    watch._list_s = 0.0
    watch._look()
    rows = watch.rows()
    assert sorted(rows.numbers.tolist()) == [0, 1, 2]
    assert set(rows.processes.tolist()) == {7, 8, 9}
    assert (np.diff(rows.at_us) >= 0).all()
    watch.close()


def test_the_load_breaks_what_one_task_can_serve_and_three_can_serve_it() -> None:
    assert scale_out.BEFORE_PER_S < 200 * 0.8 < scale_out.AFTER_PER_S < 3 * 200 * 0.8
    load = Load(12.0, 15.0)
    assert load.records == 12 * 120 + 15 * 300
    assert load.trace.rate_per_s(11.9e6) == 120
    assert load.trace.rate_per_s(12.1e6) == 300


def test_a_run_that_did_not_use_what_its_mark_is_about_does_not_count() -> None:
    told = "worker w1 is warm ... #1 scale-out: ... warm worker w1 joins"
    check_told(told, MARKS["warm_worker"])
    with pytest.raises(WrongMarkError, match="'no worker has room' is missing"):
        check_told(told, MARKS["new_pod"])
    with pytest.raises(WrongMarkError, match="'scale-out' is missing"):
        check_told("#1 scale-out: ... worker w1 is warm ... warm worker w1 joins", MARKS["warm_worker"])


def test_the_last_line_has_exactly_the_keys_that_were_asked_for() -> None:
    found = reaction(rows_of(processes={0: 1, 120: 3}), TRACE, 10, 20, BOUND_US, WINDOW_US)
    result = result_of(dict.fromkeys(MARKS, found), found)
    assert list(result) == ["bench", "task", "warm_worker", "new_pod", "flink"]
    assert list(result["task"]) == ["first_record_s", "sla_met_s", "longest_gap_ms"]
    assert list(result["flink"]) == ["no_output_s"]


def test_the_peers_keys_are_those_of_penstocks_source() -> None:
    keys = scale_out._keys(5_000)
    assert len(keys) == 5_000
    assert keys.tolist() == scale_out._keys(6_000)[:5_000].tolist()
    assert keys.min() >= 0
    assert keys.max() < 10_000


def test_the_peers_settings_are_whole_and_its_configuration_is_flattened() -> None:
    settings = read_settings()
    assert settings.conf["jobmanager.scheduler"] == "adaptive"
    assert settings.parallelism_before < settings.parallelism_after
    assert flat({"a": {"b": {"c": 1}}, "d.e": "x"}) == {"a.b.c": "1", "d.e": "x"}


def test_a_python_that_the_peer_has_no_packages_for_is_told_in_a_sentence() -> None:
    check_python((3, 11, 7), ("3.9", "3.12"))
    with pytest.raises(NoPeerError, match=r"needs Python 3\.9 to 3\.12, and this is 3\.13"):
        check_python((3, 13, 0), ("3.9", "3.12"))
