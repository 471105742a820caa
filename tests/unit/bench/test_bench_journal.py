"""A long bench goes on where it was stopped, and takes nothing for answered that other code answered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench import journal, sla
from bench.journal import Journal
from bench.sla_trials import in_processes, stock_exchange_trial


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


def test_a_bench_in_pieces_runs_the_margins_and_policies_that_are_asked_for() -> None:
    asked = [
        "--full",
        "--seed",
        "9",
        "--margin",
        "0.1",
        "--margin",
        "0.2",
        "--policy",
        "drs",
        "--policy",
        "naive_ec",
    ]
    found = [
        (trial.sla, trial.policy, trial.parameter)
        for function, (trial, *_) in sla.jobs(sla.read_options(asked))
        if function is stock_exchange_trial
    ]
    under_the_first = [(policy, margin) for at, policy, margin in found if at == sla.SLAS[0]]
    assert under_the_first == [
        ("streamswitch", 0.2),
        ("drs", 0.4),
        ("naive_ec", 0.2),
        ("streamswitch", 0.1),
        ("drs", 0.1),
        ("drs", 0.2),
    ]
    assert [(policy, margin) for at, policy, margin in found if at == sla.SLAS[2]] == under_the_first


def test_a_bench_without_time_says_what_its_tables_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.sla", "--stock-only", "--seed", "9", "--minutes", "0"])
    monkeypatch.setattr(journal, "FOLDER", tmp_path)
    with pytest.raises(SystemExit, match=r"0 of 16 runs are there.*give it more --minutes"):
        sla.main()
