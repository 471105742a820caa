"""Decisions that are kept, and what `penstock explain` makes of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.control.decision import (
    AddExecutor,
    ExecutorView,
    Health,
    MoveShards,
    PolicyDecision,
    Prediction,
    RemoveExecutor,
    Treatment,
)
from penstock.control.locality.locality_decision import (
    ChangeTables,
    EdgeView,
    LocalityDecision,
    TableTreatment,
)
from penstock.control.locality.prediction import LocalityPrediction
from penstock.locality.record import TablesBrought
from penstock.sla.decision_record import Brought, action_words
from penstock_operator.cli.main import main
from penstock_operator.local.kept.decision_log import (
    FILE,
    KEPT,
    DecisionLog,
    read_decisions,
)
from penstock_operator.words.sla_words import brought_words

SCALE_OUT = PolicyDecision(
    at_us=1_760_000_000_000_000,
    policy="StreamSwitch",
    operator="count",
    treatment=Treatment.SCALE_OUT,
    rule="severe",
    reason="a cannot keep up at 950/s of 800/s served and has 140 ms now",
    health=Health.SEVERE,
    actions=(AddExecutor("b"), MoveShards(("count/1", "count/2"), "a", "b")),
    seen=(ExecutorView("a", 950.0, 800.0, 140_000.0, math.inf, Health.SEVERE),),
    without=Prediction(math.inf, 1),
    expected=Prediction(12_000.0, 2),
)


def explained(folder: Path, *arguments: str) -> str:
    ended = CliRunner().invoke(main, ["explain", "trades", "--state-dir", str(folder), *arguments])
    assert ended.exit_code == 0
    return ended.output


def test_a_decision_is_explained_with_what_it_brought(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    number = log.decided(SCALE_OUT, "fast", dry_run=False)
    log.brought(
        Brought(
            number,
            took_us=410_000,
            latency_us=21_000.0,
            tasks=2,
            share=0.93,
            promised_us=12_000.0,
            before_us=140_000.0,
        )
    )
    assert explained(tmp_path).splitlines() == [
        "#1 2025-10-09 08:53:20Z  count: scale-out (StreamSwitch, rule severe; severe)",
        "    seen       a severe: 950/s arrive, 800/s can be served, 140 ms now, never catches up",
        "    predicted  never catches up (1 task) if nothing is done; 12.0 ms (2 tasks) with it",
        "    chosen     a cannot keep up at 950/s of 800/s served and has 140 ms now",
        "               executor b with 1 task; 2 shards from a to b",
        "    brought    done in 410 ms; 140 ms before, 21.0 ms in the window after it, with 2 tasks; "
        "12.0 ms was promised: it helped",
    ]


@pytest.mark.parametrize(
    ("latency_us", "share", "words"),
    [
        (11_000.0, 1.1, "as promised"),
        (60_000.0, 0.6, "it helped"),
        (120_000.0, 0.2, "it helped a little"),
        (138_000.0, 0.02, "no help"),
        (500_000.0, -14.16, "worse than before"),
    ],
)
def test_what_a_decision_brought_is_told_in_words_and_never_in_shares(
    latency_us: float, share: float, words: str
) -> None:
    told = brought_words(
        Brought(1, 410_000, latency_us, 2, share=share, promised_us=12_000.0, before_us=140_000.0)
    )
    assert told.endswith(f"12.0 ms was promised: {words}")
    assert "%" not in told


def test_where_nothing_was_promised_only_what_was_measured_is_told() -> None:
    told = brought_words(Brought(1, 410_000, 21_000.0, 1, before_us=10_000.0))
    assert told == "done in 410 ms; 10.0 ms before, 21.0 ms in the window after it, with 1 task"


def test_a_dry_run_says_that_nothing_was_done(tmp_path: Path) -> None:
    DecisionLog(tmp_path).decided(SCALE_OUT, "fast", dry_run=True)
    text = explained(tmp_path)
    assert "dry run: not carried out" in text
    assert "brought" not in text


def test_a_treatment_that_got_stuck_says_why(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    log.brought(
        Brought(log.decided(SCALE_OUT, "fast", dry_run=False), 10, None, 1, stuck="b did not come up")
    )
    assert "    brought    stuck: b did not come up" in explained(tmp_path)


def test_machines_get_json_in_which_what_never_ends_is_null(tmp_path: Path) -> None:
    DecisionLog(tmp_path).decided(SCALE_OUT, "fast", dry_run=False)
    (record,) = json.loads(explained(tmp_path, "--json"))
    assert record["without"] == {"latency_us": None, "tasks": 1}
    assert record["seen"][0]["overloaded"] is True
    assert record["actions"] == ["executor b with 1 task", "2 shards from a to b"]


def test_numbers_go_on_in_the_next_run_and_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    DecisionLog(tmp_path).decided(SCALE_OUT, "fast", dry_run=False)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"kind":"decision","num')
    assert DecisionLog(tmp_path).decided(SCALE_OUT, "fast", dry_run=False) == 2
    assert [record.number for record in read_decisions(tmp_path)] == [1, 2]


def test_only_the_last_decisions_are_kept(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    for _ in range(2 * KEPT + 10):
        log.decided(SCALE_OUT, "fast", dry_run=False)
    numbers = [record.number for record in read_decisions(tmp_path)]
    assert numbers[-1] == 2 * KEPT + 10
    assert KEPT <= len(numbers) < 2 * KEPT


def test_nothing_that_was_decided_is_told_as_such(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["explain", "trades", "--state-dir", str(tmp_path)])
    assert ended.exit_code == 1
    assert "No decision about trades" in ended.output


def test_every_action_has_its_words() -> None:
    assert action_words(RemoveExecutor("b")) == "executor b goes"
    assert action_words(MoveShards(("count/1",), "a", "b")) == "shard count/1 from a to b"
    assert action_words(AddExecutor("b", 2, "n1")) == "executor b with 2 tasks on node n1"


TABLES = LocalityDecision(
    at_us=1_000_000,
    operators=("tags", "lands"),
    treatment=TableTreatment.CHANGE,
    rule="gain",
    reason="64% of the bytes from tags to lands would stay",
    action=ChangeTables({"lands": {("at",): 3}}, 1, 1, 2048.0, 3072.0),
    seen=(EdgeView("tags to lands", 45_200, 18_000.0, 3910, 0.61),),
    by_hash=LocalityPrediction(0.17, 1.0, 1.0, (("tags to lands", 0.17),)),
    without=LocalityPrediction(0.17, 1.0, 1.0, (("tags to lands", 0.17),)),
    expected=LocalityPrediction(0.64, 1.0, 1.03, (("tags to lands", 0.64),)),
)


def test_decisions_on_tables_stand_beside_the_others_with_what_they_brought(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    first = log.decided(SCALE_OUT, "fast", dry_run=False)
    number = log.tables_decided(TABLES, dry_run=False)
    assert (first, number) == (1, 2)
    log.tables_brought(TablesBrought(2, 1_400_000, 0.62, 0.96, "64% was promised, 62% came"))
    told = explained(tmp_path)
    assert "tags and lands: change-tables (locality, rule gain)" in told
    assert "64% stay on their node with it, 17% without, 17% by hash" in told
    assert "a table of 1 key for lands; 1 key move, 2.0 kB of state" in told
    assert "brought    64% was promised, 62% came, after 1.4 s" in told
    assert [record.number for record in read_decisions(tmp_path)] == [1]
    assert json.loads(explained(tmp_path, "--json"))[1]["brought"]["local_share"] == 0.62


def test_a_dry_run_on_tables_is_told_as_such(tmp_path: Path) -> None:
    DecisionLog(tmp_path).tables_decided(TABLES, dry_run=True)
    assert "dry run: not carried out" in explained(tmp_path)
