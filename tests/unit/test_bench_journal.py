"""A long bench goes on where it was stopped, and takes nothing for answered that other code answered."""

from __future__ import annotations

from pathlib import Path

from bench.journal import Journal
from bench.sla_trials import in_processes


def double(value: int) -> int:
    return 2 * value


def test_answers_outlive_the_bench_and_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "answers.pickle"
    first = Journal(path)
    first[double, (1,)] = 2
    first[double, (2,)] = 4
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    again = Journal(path)
    assert (double, (1,)) in again
    assert again[double, (1,)] == 2
    assert (double, (2,)) not in again


def test_jobs_in_the_journal_are_not_run_again_and_none_begins_too_late() -> None:
    journal = Journal(None)
    journal[double, (1,)] = 77
    jobs = [(double, (1,)), (double, (2,))]
    assert list(in_processes(jobs, "a test", 1, journal, until_s=0.0)) == [(double, (1,), 77)]
    assert list(in_processes(jobs, "a test", 1, journal)) == [(double, (1,), 77), (double, (2,), 4)]
    assert journal[double, (2,)] == 4
