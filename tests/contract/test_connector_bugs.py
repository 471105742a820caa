"""The connectors' suite catches what it is there for: each planted fault, by the test that is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PLANTED = "planted/planted_connector_bugs.py"

ONCE = "test_each_partition_gives_its_rows_once_and_in_order"
GOES_ON = "test_whoever_goes_on_at_a_committed_position_gives_what_is_left"
KILLED = "test_owners_that_are_killed_at_any_step_lose_and_double_nothing"
WANTED = "test_no_more_rows_come_than_are_wanted"
NOTHING_LEFT = "test_where_nothing_is_left_no_rows_come_and_nobody_waits"
LATER = "test_rows_that_come_later_are_read_on_from_there"
BAD = "test_bad_input_is_told_in_words_by_each_owner_and_not_passed"

WRITTEN = "test_each_row_is_there_once_and_those_of_a_key_in_order"
CUT = "test_an_owner_that_is_cut_at_any_step_leaves_the_rest_to_the_next_one"
AT_ANY_LINE = "test_a_process_that_is_killed_at_any_line_of_its_writer_is_completed_by_the_next_one"
LATE = "test_an_owner_that_was_replaced_and_comes_late_changes_nothing"
WORKERS = "test_shards_go_on_with_another_number_of_workers"

CAUGHT_BY = {
    "TestSkipsARowAtReopening": GOES_ON,
    "TestDoublesARowAtReopening": GOES_ON,
    "TestStaysWhereItWas": ONCE,
    "TestBeginsAnewAtReopening": GOES_ON,
    "TestGoesByItsOwnPosition": KILLED,
    "TestGivesAllThereIs": WANTED,
    "TestSwapsRows": ONCE,
    "TestSaysNotWhenToLookAgain": NOTHING_LEFT,
    "TestPassesWhatItCannotRead": BAD,
    "TestForgetsWhatComesLater": LATER,
    "TestForgetsItsPosition": WORKERS,
    "TestAppends": CUT,
    "TestKeepsTheLastInMemory": WRITTEN,
    "TestNotesBeforeItWrites": AT_ANY_LINE,
    "TestWritesInPlace": AT_ANY_LINE,
    "TestTurnsRowsAround": WRITTEN,
    "TestSkipsTheFirstEntryOfAnOwner": LATE,
}
RIGHT = {f"{PLANTED}::TestIsRight::{test}" for test in (WRITTEN, CUT, AT_ANY_LINE, LATE, WORKERS)}


@pytest.mark.timeout(300)
def test_each_planted_fault_of_a_connector_is_caught_and_none_is_seen_where_none_is() -> None:
    planted = set(re.findall(r"^(Test\w+) = ", (TESTS / PLANTED).read_text(), re.MULTILINE))
    assert planted == {*CAUGHT_BY, "TestIsRight"}
    cases = {f"{PLANTED}::{fault}::{test}" for fault, test in CAUGHT_BY.items()}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-rA", *cases, *RIGHT]
    told = subprocess.run(
        command, cwd=TESTS, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True
    ).stdout
    said = re.findall(r"^(PASSED|FAILED|ERROR) \S*?(planted/\S+?)(?:\[\d+\])?(?: - .*)?$", told, re.MULTILINE)
    assert {case for word, case in said if word == "FAILED"} == cases, told
    assert {case for word, case in said if word == "PASSED"} - cases == RIGHT, told
    assert [word for word, _ in said if word == "ERROR"] == [], told
