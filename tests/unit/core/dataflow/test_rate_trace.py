"""Rate traces: what a file may say, what each moment and row means in it, and the faults of a file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.compile import compile_topology
from penstock.api.load import parse_manifest
from penstock.connectors.files import FilesSource
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.identity import identity_of
from penstock.dataflow.rate_trace import LINES_MAX, InvalidRateTrace, parse_rate_trace, read_rate_trace
from penstock.manifest.faults import InvalidManifest
from penstock_operator.cluster.decisions.identity import stage_identity

# 1 000 rows in 10 s, 3 000 in the next 10 s, a pause of 5 s, and then 100 a second for good.
PAUSED = "seconds,rate_per_s\n0,100\n10,300\n20,0\n25,100\n"


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidRateTrace) as refused:
        parse_rate_trace(text)
    return refused.value.problems


# --- what a trace says ----------------------------------------------------------------------------


def test_each_row_is_due_where_the_counted_rows_reach_it() -> None:
    trace = parse_rate_trace(PAUSED)
    rows = np.array([0.0, 999.0, 1000.0, 1003.0, 3997.0, 4000.0, 4001.0])
    # 999 / 100 s; then 10 s + 3 / 300 s and 10 s + 2997 / 300 s; then 25 s and 25 s + 1 / 100 s.
    assert trace.due_us(rows).tolist() == [0, 9_990_000, 10_000_000, 10_010_000, 19_990_000, 25e6, 25_010_000]


def test_a_row_that_would_fall_into_a_pause_is_due_after_it_and_reached_before_it() -> None:
    trace = parse_rate_trace(PAUSED)
    assert trace.due_us(np.array([4000.0])).tolist() == [25_000_000]
    assert trace.reached_us(4000) == 20_000_000
    assert trace.reached_us(4001) == 25_010_000
    late = parse_rate_trace("0,0\n5,10\n")
    assert (late.reached_us(0), late.due_us(np.array([0.0])).tolist()) == (0, [5_000_000])


def test_rows_are_counted_up_to_a_moment() -> None:
    trace = parse_rate_trace(PAUSED)
    moments_us = [0, 5_000_000, 10_000_000, 15_000_000, 22_000_000, 26_000_000]
    assert [trace.rows_before(at_us) for at_us in moments_us] == [0, 500, 1000, 2500, 4000, 4100]
    assert [trace.rate_per_s(at_us) for at_us in moments_us] == [100, 100, 300, 300, 0, 100]


def test_the_last_rate_goes_on_and_a_last_rate_of_0_ends_the_trace() -> None:
    assert math.isinf(parse_rate_trace(PAUSED).total)
    ended = parse_rate_trace("0,0.1\n10,0.2\n20,0")
    assert ended.total == 3.0, "10 times 0.1 and 10 times 0.2, without a rounding error"
    assert ended.due_us(np.array([2.0, 3.0])).tolist() == [15_000_000, math.inf]


def test_header_comments_empty_lines_and_spaces_are_passed_over() -> None:
    text = "# bursts, seed 7\r\n\r\n seconds, rate_per_s\r\n0, 100.5 \r\n# a burst\r\n2.5,1e3\r\n"
    trace = parse_rate_trace(text)
    assert trace.starts_us.tolist() == [0, 2_500_000]
    assert trace.rates_per_s.tolist() == [100.5, 1000.0]


def test_a_file_is_read_as_its_text(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("\ufeff" + PAUSED, encoding="utf-8")
    assert read_rate_trace(tmp_path / "rates.csv").counts.tolist() == [0, 1000, 4000, 4000]


@given(
    st.lists(st.tuples(st.integers(1, 10**7), st.integers(0, 10**9)), min_size=1, max_size=6),
    st.lists(st.floats(0, 1e5), min_size=1, max_size=20),
)
def test_a_row_is_due_when_as_many_rows_were_before_it(
    spans: list[tuple[int, int]], rows: list[float]
) -> None:
    at_us, lines = 0, []
    for length_us, rate_e6 in spans:
        lines.append(f"{at_us / 1e6:.6f},{rate_e6 / 1e6:.6f}")
        at_us += length_us
    trace = parse_rate_trace("\n".join([*lines, f"{at_us / 1e6:.6f},5"]))
    due_us = trace.due_us(np.array(sorted(rows)))
    assert due_us.tolist() == sorted(due_us.tolist())
    for row, due in zip(sorted(rows), due_us.tolist(), strict=True):
        assert trace.rows_before(due) == pytest.approx(row, rel=1e-9, abs=1e-6)
        assert trace.reached_us(row) <= due


# --- faults of a file -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no lines; give some of seconds,rate_per_s, such as 0,500"),
        ("seconds,rate_per_s\n", "has no lines; give some of seconds,rate_per_s, such as 0,500"),
        ("5,100", "line 1: is the first, at second 5; begin at second 0"),
        (
            "0,100\n9,5\n3,7",
            "line 3: second 3 does not come after 9; sort the lines by seconds, each second once",
        ),
        (
            "0,100\n0,200",
            "line 2: second 0 does not come after 0; sort the lines by seconds, each second once",
        ),
        ("0,-5", "line 1: rate_per_s -5 is negative; give 0 or more"),
        ("0,1\n-1,5", "line 2: seconds -1 is negative; give 0 or more"),
        ("0,fast", "line 1: rate_per_s 'fast' is no number; give one such as 0.5 or 1200"),
        ("0,nan", "line 1: rate_per_s nan is no finite number; give one such as 0.5 or 1200"),
        ("0,2e9", "line 1: rate_per_s 2e9 is above 1000000000; give at most that"),
        ("0,1,2", "line 1: '0,1,2' has 3 values; give two, seconds,rate_per_s"),
        ("0;100", "line 1: '0;100' has 1 values; give two, seconds,rate_per_s"),
        ("0,0\n5,0", "every rate is 0; give one above 0, or no row is ever due"),
    ],
)
def test_a_fault_names_its_line_and_what_would_be_right(text: str, problem: str) -> None:
    assert problems_of(text) == (problem,)


def test_all_faults_are_listed_at_once_and_very_many_are_counted() -> None:
    assert [problem.split(":")[0] for problem in problems_of("0,a\n1,-1\n2,5\n1,5")] == [
        "line 1",
        "line 2",
        "line 4",
    ]
    many = problems_of("\n".join(f"{second},x" for second in range(30)))
    assert (len(many), many[-1]) == (21, "and 10 more")


def test_a_trace_has_a_bounded_number_of_lines() -> None:
    lines = "\n".join(f"{second},5" for second in range(LINES_MAX + 1))
    assert problems_of(lines) == (f"has {LINES_MAX + 1} lines; at most {LINES_MAX} are read",)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"0,100 \xe9")
    for name, problem in (
        ("absent.csv", "no such file; put one there with lines of seconds,rate_per_s"),
        ("latin.csv", "is not UTF-8 text: unexpected end of data"),
        ("", "cannot be read: Is a directory"),
    ):
        with pytest.raises(InvalidRateTrace) as refused:
            read_rate_trace(tmp_path / name)
        assert refused.value.problems == (problem,)


# --- in a manifest --------------------------------------------------------------------------------

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: traced}
spec:
  operators:
  - name: lines
    source: {files: {glob: "*.txt", rateTrace: {file: rates.csv}}}
  - name: numbers
    source: {zipf: {keys: 5, rateTrace: {file: bursts.csv}}}
  - {name: written, inputs: [lines], sink: {console: {}}}
  - {name: counted, inputs: [numbers], sink: {files: {path: out}}}
"""
LINES_FILE = "spec.operators[0] (lines).source.files.rateTrace.file"
NUMBERS_FILE = "spec.operators[1] (numbers).source.zipf.rateTrace.file"


def faults_in(folder: Path) -> list[str]:
    with pytest.raises(InvalidManifest) as refused:
        parse_manifest(MANIFEST, code_dir=folder)
    return list(map(str, refused.value.faults))


def test_faults_of_all_traces_are_listed_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("0,100\n5,-3\n4,7\n")
    assert faults_in(tmp_path) == [
        f"{LINES_FILE}: rates.csv: line 2: rate_per_s -3 is negative; give 0 or more",
        f"{NUMBERS_FILE}: bursts.csv: no such file; put one there with lines of seconds,rate_per_s",
    ]


def test_a_trace_that_ends_is_for_generators_only(tmp_path: Path) -> None:
    for name in ("rates.csv", "bursts.csv"):
        (tmp_path / name).write_text("0,100\n5,0\n")
    assert faults_in(tmp_path) == [
        f"{LINES_FILE}: rates.csv: its last rate is 0, and what the files hold beyond would never be read; "
        "end it with a rate above 0"
    ]
    (tmp_path / "rates.csv").write_text("0,100\n5,1\n")
    assert parse_manifest(MANIFEST, code_dir=tmp_path).topology.metadata.name == "traced"


def test_files_are_looked_for_only_where_the_manifest_lies() -> None:
    assert parse_manifest(MANIFEST, runtime="cluster").topology.metadata.name == "traced"


def test_a_plan_names_the_trace_and_a_new_one_keeps_the_state() -> None:
    traced = compile_topology(parse_manifest(MANIFEST).topology)
    plain = compile_topology(parse_manifest(MANIFEST, ["numbers.source.zipf.rateTrace=null"]).topology)
    heads = [stage.head for stage in traced.stages]
    assert isinstance(heads[0], FilesSource)
    assert isinstance(heads[1], ZipfSource)
    assert (heads[0].rate_trace, heads[1].rate_trace) == ("rates.csv", "bursts.csv")
    assert traced != plain
    assert identity_of(traced) == identity_of(plain)
    assert list(map(stage_identity, traced.stages)) == list(map(stage_identity, plain.stages))
