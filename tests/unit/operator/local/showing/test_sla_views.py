"""What people see of a latency SLA: a line of the live view, of the log, of the summary, and a picture."""

from __future__ import annotations

import importlib.util
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from penstock.sla.standing import SlaLine, SlaSummary, TimelinePoint
from penstock_operator.local.showing.live_view import render
from penstock_operator.local.showing.log_lines import status_line
from penstock_operator.local.showing.run_status import RunStatus
from penstock_operator.local.showing.sla_picture import draw
from penstock_operator.words.sla_words import sla_words, summary_words

LINE = SlaLine(
    name="quick",
    about="count",
    policy="StreamSwitch",
    dry_run=False,
    bound_ms=250.0,
    window_ms=1000.0,
    mean_ms=34.2,
    worst_ms=80.1,
    expected_ms=12.0,
    met=True,
    success_recent=0.981,
    success=0.975,
    executors=3,
    tasks=3,
    mean_tasks=2.41,
    last_decision="count: scale-out, a cannot keep up",
)
STATUS = RunStatus("words", "Process", "running", 65.0, False, (), (), (), (LINE,))
POINTS = tuple(
    TimelinePoint(float(second), None if second == 0 else 100.0, 90.0, 20.0, 40.0, 1, 1, 0.5, 5, 5)
    for second in range(4)
)
SUMMARY = SlaSummary(
    name="quick",
    operator="count",
    policy="StreamSwitch",
    dry_run=False,
    bound_ms=250.0,
    window_ms=1000.0,
    success=0.9712,
    success_recent=0.9712,
    success_of_shards={"count/0": 1.0, "count/1": 0.9424, "count/2": None},
    mean_executors=2.5,
    mean_tasks=2.5,
    decisions={"scale-out": 3, "scale-in": 1},
    timeline=POINTS,
)


def shown(status: RunStatus, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(status, width))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_view_shows_target_latency_success_and_the_last_decision() -> None:
    text = shown(STATUS)
    assert "quick count ≤ 250 ms over 1.00 s  now 34.2 ms, worst 80.1 ms  expected 12.0 ms" in text
    assert "kept 98.1% of 5 min, 97.5% in all  3 tasks (mean 2.4)  StreamSwitch" in text
    assert "count: scale-out, a cannot keep up" in text


def test_the_view_shows_conditions_and_what_is_not_known_as_a_dash() -> None:
    unknown = replace(
        LINE, mean_ms=None, worst_ms=None, met=None, success=None, success_recent=None, mean_tasks=None,
        expected_ms=math.inf, conditions={"MetricsUnavailable": "the store is away"},
    )  # fmt: skip
    text = shown(replace(STATUS, slas=(unknown,)))
    assert "now –, worst –  expected never to catch up  kept – of 5 min, – in all  3 tasks (mean –)" in text
    assert "MetricsUnavailable: the store is away" in text


def test_the_log_line_says_it_in_one() -> None:
    assert status_line(STATUS).endswith(
        "quick: count 34.2 ms of 250 ms, worst shard 80.1 ms, 98.1% kept, 3 tasks"
    )
    told = sla_words(replace(LINE, dry_run=True, conditions={"Held": "worker w1 is not up"}))
    assert told.endswith("3 tasks, dry run, Held")


def test_the_summary_is_a_sentence() -> None:
    assert summary_words(SUMMARY) == (
        "quick (count within 250 ms over 1.00 s, StreamSwitch): kept 97.1% of windows, 94.2% at the "
        "worst shard, with 2.50 tasks on average; decided: 1 scale-in, 3 scale-out"
    )
    dry = replace(SUMMARY, dry_run=True, decisions={}, picture="quick.png", operator="")
    assert "end to end within" in summary_words(dry)
    assert summary_words(dry).endswith("would have been decided: nothing; picture: quick.png")


def test_a_run_of_a_moment_has_no_picture(tmp_path: Path) -> None:
    assert not draw(tmp_path / "quick.png", replace(SUMMARY, timeline=POINTS[:1]))
    assert not (tmp_path / "quick.png").exists()


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is in the dev extra")
def test_the_picture_is_drawn(tmp_path: Path) -> None:
    assert draw(tmp_path / "quick.png", SUMMARY)
    assert (tmp_path / "quick.png").read_bytes().startswith(b"\x89PNG")
