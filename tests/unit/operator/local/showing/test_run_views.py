"""What people see of a run: the live view, the log lines, the summary."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from penstock.figures.operators import OperatorFigures
from penstock_operator.local.showing.live_view import LiveView, render
from penstock_operator.local.showing.log_lines import event_line, status_line
from penstock_operator.local.showing.progress import OperatorTotal
from penstock_operator.local.showing.run_output import LiveOutput, PlainOutput
from penstock_operator.local.showing.run_status import RunEvent, RunStatus, WorkerLine
from penstock_operator.local.showing.run_summary import (
    RunSummary,
    headline,
    late_words,
    summary_json,
    summary_table,
)

UNKNOWN = OperatorFigures("count", "keyed", "count")
LINES = OperatorFigures(
    "lines", "source", "lines", 12000.0, records=60000,
    workers=1, executors=1, tasks_ready=1, shards=12, trend=(1.0, 2.0),
)  # fmt: skip
WORDS = OperatorFigures("words", "step", "lines", 96000.0, records=480000)
COUNT = OperatorFigures(
    "count", "keyed", "count", 96000.0, 2.31, 8.7, 479000, 12, 1000,
    workers=2, executors=2, tasks_ready=4, shards=64, trend=(1.0, 2.0),
)  # fmt: skip
TOTALS = OperatorFigures("totals", "sink", "count", 5.25, 2.9, 1400.0, 479)
CLICKS = replace(
    LINES, name="clicks", stage="clicks", has_event_time=True, watermark_ms=1767268805250,
    watermark_lag_ms=3200,
)  # fmt: skip
SESSIONS = replace(
    COUNT, name="sessions", stage="sessions", has_event_time=True, watermark_ms=1767268804000,
    watermark_lag_ms=4450, late_rows=1003,
)  # fmt: skip
STATUS = RunStatus(
    topology="word-count",
    durability="Process",
    phase="running",
    elapsed_s=65.0,
    store_away=False,
    workers=(WorkerLine("w0", "ready", 0), WorkerLine("w1", "starting", 2)),
    operators=(LINES, WORDS, COUNT, TOTALS),
    events=(RunEvent(61.0, "worker w1 killed by SIGKILL; its 32 shards went to w0", is_trouble=True),),
)
SUMMARY = RunSummary(
    topology="word-count",
    result="finished",
    message="",
    resumed=True,
    duration_s=65.0,
    worked_s=50.0,
    operators=(
        OperatorTotal("lines", "source", 1000, None, None, None),
        OperatorTotal("totals", "sink", None, 2.5, 8.0, 90.0),
    ),
    restarts={"w1": 2},
    store_restarts=1,
    events=STATUS.events,
)


def drawn(status: RunStatus, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(render(status, width))
    return out.getvalue().splitlines()


def test_the_view_has_a_title_a_line_per_operator_and_the_events() -> None:
    lines = drawn(STATUS, 120)
    title = "word-count running 1:05 durability Process workers 1/2 ready w0 ready w1 starting (restarted 2)"
    assert " ".join(lines[0].split()) == title
    assert [line.split()[0] for line in lines[2:6]] == ["lines", "words", "count", "totals"]
    assert lines[6] == "1:01 worker w1 killed by SIGKILL; its 32 shards went to w0"


def test_a_stage_shows_all_that_is_known_of_it() -> None:
    count = " ".join(drawn(STATUS, 120)[4].split())
    assert count.startswith("count 96 000 2.31 ms 8.70 ms 479 000 12 / 1 000 2 2 4 64")


def test_a_fused_operator_is_indented_and_leaves_places_empty() -> None:
    lines = drawn(STATUS, 120)
    assert lines[3].startswith("  words")
    assert lines[3].split() == ["words", "96", "000", "480", "000"]


def test_what_is_unknown_is_a_dash_and_never_a_zero() -> None:
    line = drawn(replace(STATUS, operators=(UNKNOWN,)), 120)[2]
    assert line.split() == ["count", *(["–"] * 9)]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(STATUS, width)
    assert len(lines) == 7
    assert all(len(line) <= width for line in lines)


def test_event_time_has_columns_where_an_operator_has_it() -> None:
    timed = replace(STATUS, operators=(CLICKS, WORDS, SESSIONS, TOTALS))
    lines = [" ".join(line.split()) for line in drawn(timed, 160)]
    assert "records waiting watermark late workers" in lines[1]
    assert "60 000 12:00:05 1 1 1 12" in lines[2], "a source has no late rows"
    assert "12 / 1 000 12:00:04 1 003 2 2 4 64" in lines[4]
    assert "12:00" not in lines[3] + lines[5]
    plain = "\n".join(drawn(STATUS, 160))
    assert "watermark" not in plain
    assert "late" not in plain


def test_a_watermark_that_is_not_known_is_a_dash_and_an_old_one_has_its_day() -> None:
    clicks = replace(CLICKS, watermark_ms=None, watermark_lag_ms=None)
    sessions = replace(SESSIONS, watermark_lag_ms=None, late_rows=None)
    lines = drawn(replace(STATUS, operators=(clicks, sessions)), 160)
    assert "60 000 – 1 1 1 12" in " ".join(lines[2].split())
    assert "2026-01-01 12:00:04 – 2" in " ".join(lines[3].split())


@pytest.mark.parametrize("width", [80, 90, 100, 110, 120, 140, 200])
def test_columns_give_way_where_a_figure_would_be_cut(width: int) -> None:
    old = replace(SESSIONS, watermark_lag_ms=None)
    for operators in ((CLICKS, WORDS, SESSIONS, TOTALS), (CLICKS, WORDS, old, TOTALS)):
        lines = drawn(replace(STATUS, operators=operators), width)
        assert len(lines) == 7
        assert all(len(line) <= width for line in lines)
        assert "…" not in "".join(lines[1:6])


def test_where_an_operator_runs_gives_way_to_event_time_and_that_to_what_it_does() -> None:
    timed = replace(STATUS, operators=(CLICKS, WORDS, SESSIONS, TOTALS))
    headers = {width: drawn(timed, width)[1].split() for width in (80, 100, 200)}
    assert headers[80] == ["operator", "records/s", "p50", "p99", "records", "waiting", "tasks", "shards"]
    assert headers[100] == [*headers[80][:6], "watermark", "late", "tasks", "shards"]
    assert {"watermark", "late", "workers", "executors", "last"} <= set(headers[200])


def test_a_store_that_is_away_is_in_the_title() -> None:
    assert "the store is away" in drawn(replace(STATUS, store_away=True), 160)[0]


def test_the_status_line_tells_all_in_one_line() -> None:
    assert status_line(STATUS) == (
        "1:05 running, 1/2 workers ready | lines 12 000/s | count 96 000/s p50 2.31 ms p99 8.70 ms "
        "waiting 1 000 | totals 5.2/s p50 2.90 ms p99 1.40 s"
    )
    assert event_line(STATUS.events[0]).startswith("1:01 worker w1")


def test_the_status_line_tells_watermarks_and_late_rows_of_stages_with_event_time() -> None:
    ended = replace(SESSIONS, watermark_lag_ms=None, late_rows=0)
    unknown = replace(SESSIONS, watermark_ms=None, watermark_lag_ms=None, late_rows=None)
    told = status_line(replace(STATUS, operators=(CLICKS, WORDS, SESSIONS, ended, unknown))).split(" | ")
    assert told[1] == "clicks 12 000/s watermark 12:00:05 (3.2 s behind)"
    assert told[2].endswith("waiting 1 000 watermark 12:00:04 (4.5 s behind) late 1 003")
    assert told[3].endswith("waiting 1 000 watermark 2026-01-01 12:00:04 late 0")
    assert told[4].endswith("waiting 1 000 watermark – late –")


def test_the_summary_says_in_a_sentence_what_came_late() -> None:
    totals = [replace(SUMMARY.operators[0], name=name, late_rows=late) for name, late in
              (("sessions", 1003), ("joined", 1), ("days", 0), ("count", None))]  # fmt: skip
    late = replace(SUMMARY, operators=tuple(totals))
    assert late_words(late) == "1 003 rows came late to sessions, 1 row to joined."
    assert late_words(SUMMARY) == ""
    assert json.loads(summary_json(late))["operators"]["joined"]["late_records"] == 1
    stderr = io.StringIO()
    PlainOutput(Console(file=stderr, width=80), io.StringIO(), 5.0).end(late)
    assert "1 row to joined.\n" in stderr.getvalue()


def test_the_summary_is_one_json_object_with_null_for_what_is_unknown() -> None:
    document = json.loads(summary_json(SUMMARY))
    assert document["result"] == "finished"
    assert document["restarts"] == {"w1": 2}
    assert document["operators"]["lines"] == {
        "kind": "source",
        "records": 1000,
        "records_per_s": 20.0,
        "p50_ms": None,
        "p99_ms": None,
        "max_ms": None,
        "late_records": None,
    }
    assert document["operators"]["totals"]["records"] is None


def test_the_headline_tells_how_it_ended_and_what_was_started_again() -> None:
    assert headline(SUMMARY) == (
        "word-count: finished after 1:05; workers started again: w1 (2 times); "
        "the store was started again (1 time)"
    )
    assert headline(replace(SUMMARY, restarts={}, store_restarts=0)) == "word-count: finished after 1:05"
    assert summary_table(SUMMARY).row_count == 2


def test_the_view_leaves_the_screen_and_shows_the_cursor_again_also_after_an_exception() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)

    def fail() -> None:
        with LiveView(console) as view:
            view.show(STATUS)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    hidden, shown = out.getvalue().rfind("\x1b[?25l"), out.getvalue().rfind("\x1b[?25h")
    assert 0 <= hidden < shown


def test_plain_output_keeps_rows_apart_from_what_is_told() -> None:
    stderr, stdout = io.StringIO(), io.StringIO()
    output = PlainOutput(Console(file=stderr, width=80), stdout, 5.0)
    output.tell(STATUS.events[0])
    output.show(STATUS)
    output.rows(['{"a":1}', '{"a":2}'])
    output.end(SUMMARY)
    assert stdout.getvalue() == '{"a":1}\n{"a":2}\n'
    assert stderr.getvalue().startswith("1:01 worker w1 killed")
    assert "\x1b" not in stderr.getvalue()


def test_live_output_writes_rows_to_a_stdout_that_is_no_terminal() -> None:
    stderr, stdout = io.StringIO(), io.StringIO()
    output = LiveOutput(Console(file=stderr, force_terminal=True, width=100), stdout)
    output.show(STATUS)
    output.rows(['{"a":1}'])
    output.end(SUMMARY)
    output.close()
    assert stdout.getvalue() == '{"a":1}\n'
    assert "word-count: finished" in stderr.getvalue()
