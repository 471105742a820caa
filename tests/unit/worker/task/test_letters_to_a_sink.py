"""A task whose code fails on some rows and whose dead letters go to a sink, on the store's twin."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.dataflow.letter_columns import LETTER_SCHEMA
from penstock.dataflow.plan import Plan
from penstock.store.codec import decode_counts
from penstock.store.dead_letters import Place
from penstock.store.letters import DROP, INITIAL, INPUT, REPLAY, ROWS, TIMER, Letter, LetterId
from penstock.store.port import Failures, Measure
from penstock_worker.task.launch import Poison
from penstock_worker.values.letter_rows import LetterRows
from penstock_worker.values.wire_values import shown
from scenes.letter_scene import LetterScene, Losing
from scenes.task_scene import Scene

BOTH = ("count/0", "count/1")
LINES = "ash poison ash\npoison sea ash\n"
DEAD = "{files: {path: dead/}}"


def sending(folder: Path, fault: str | None = None, **named: object) -> LetterScene:
    given = {} if fault is None else {"fault": fault}
    return LetterScene(folder, letters_to=DEAD, **given, **named)  # type: ignore[arg-type]


def begun(scene: Scene, lines: str = LINES) -> None:
    (scene.folder / "a.txt").write_text(lines)
    scene.publish(["lines/a.txt"])
    scene.turns(scene.task("lines", ["lines/a.txt"]))


def counted(scene: Scene) -> Counter[str]:
    counts: Counter[str] = Counter()
    for counters in scene.store.call(Measure(BOTH)):
        counts.update(decode_counts(counters.counts if counters is not None else b""))
    return counts


def test_rows_that_code_fails_on_go_to_the_sink_and_none_stays(tmp_path: Path):
    scene = sending(tmp_path)
    begun(scene)
    scene.turns(scene.task("count", BOTH))
    sent = scene.sent()
    assert len(sent) == 2
    assert all(set(row) == set(LETTER_SCHEMA.names) - {"timer"} for row in sent)
    for row in sent:
        assert row["operator"] == "count"
        assert row["kind"] == ROWS
        assert json.loads(row["key"]) == {"word": "poison"}
        assert json.loads(row["record"]) == {"word": "poison"}
        assert row["error"] == "ValueError: this word is poison"
        assert 'loop_code.py", line' in row["traceback"]
        assert row["shard"] in BOTH
        assert row["position"].startswith(f"inbox of {row['shard']}, behind entry ")
        assert row["id"].startswith(f"count@{row['shard']}:")
    assert len({row["id"] for row in sent}) == 2
    assert scene.letters("count") == {}
    counts = counted(scene)
    assert (counts["count/dead"], counts["dead-letters"]) == (2, 2)
    assert scene.store.call(Failures()) == {}
    assert scene.waiting() == 0
    assert any("ash" in line for line in scene.out())


def test_a_letter_tells_of_its_own_row_and_not_of_the_calls_for_more_of_them(tmp_path: Path):
    scene = sending(tmp_path, "if row.n == 5: raise ValueError(row.n)", numbered=True)
    begun(scene, " ".join(f"ash{n}" for n in range(1, 9)) + "\n")
    scene.turns(scene.task("count", BOTH))
    (row,) = scene.sent()
    assert row["error"] == "ValueError: 5"
    assert row["traceback"].count("Traceback") == 1
    assert "During handling" not in row["traceback"]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_commit_whose_answer_is_lost_sends_its_letters_once(tmp_path: Path, lost: int):
    scene = sending(tmp_path)
    begun(scene)
    scene.turns(scene.task("count", BOTH, store=Losing(scene.store, lost)), 20)
    assert len(scene.sent()) == 2
    assert scene.waiting() == 0


def test_letters_of_steps_and_lines_that_are_no_rows_go_there_too(tmp_path: Path):
    source = "{files: {glob: '*.txt', format: jsonl, schema: 'value string'}}\n    onError: DeadLetter"
    scene = sending(tmp_path, "pass", step_on_error="DeadLetter", source=source)
    begun(scene, '{"value": "ash"}\n{"value": \n{"value": "unsplittable"}\n')
    step, line = sorted(scene.sent(), key=lambda row: row["operator"], reverse=True)
    assert (step["operator"], step["kind"], json.loads(step["record"])) == (
        "words",
        ROWS,
        {"value": "unsplittable"},
    )
    assert "this line is no words" in step["error"]
    assert "key" not in step
    assert (line["operator"], line["kind"], json.loads(line["record"])) == (
        "lines",
        INPUT,
        {"line": '{"value": '},
    )
    assert line["position"].endswith("a.txt, line 2")
    assert scene.letters("words", "lines/a.txt") == scene.letters("lines", "lines/a.txt") == {}


def test_a_timer_that_code_fails_on_goes_there_with_its_time(tmp_path: Path):
    scene = sending(tmp_path, "self.handle.registerTimer(5)", timers="raise ValueError(expiry)")
    begun(scene, "ash\n")
    scene.turns(scene.task("count", BOTH))
    (row,) = scene.sent()
    assert (row["kind"], row["timer"], json.loads(row["key"])) == (
        TIMER,
        "1970-01-01T00:00:00.005Z",
        {"word": "ash"},
    )
    assert "record" not in row


def test_a_batch_that_tasks_have_crashed_at_goes_there(tmp_path: Path):
    scene = sending(tmp_path, 'if key[0] == "poison": raise AssertionError("it was called")')
    begun(scene, "ash poison poison\n")
    poison = [Poison(shard, 0, shown(("poison",)), "tasks crashed 5 times in a row here") for shard in BOTH]
    scene.turns(scene.task("count", BOTH, poison=poison))
    sent = scene.sent()
    assert [json.loads(row["record"]) for row in sent] == [{"word": "poison"}] * 2
    assert all("tasks crashed 5 times in a row here" in row["traceback"] for row in sent)


def test_an_operator_whose_letters_stay_keeps_them_in_the_store(tmp_path: Path):
    scene = sending(tmp_path, on_error="{policy: DeadLetter, to: Store}")
    begun(scene)
    scene.turns(scene.task("count", BOTH))
    assert (len(scene.letters("count")), scene.sent()) == (2, [])


def test_a_letter_that_is_too_large_for_a_sink_stays_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("penstock_worker.values.letter_rows.RECORD_BYTES_MAX", 200)
    scene = sending(tmp_path)
    begun(scene)
    scene.turns(scene.task("count", BOTH))
    assert (len(scene.letters("count")), scene.sent()) == (2, [])


def test_what_was_kept_before_the_sink_came_is_replayed_and_dropped_as_ever(tmp_path: Path):
    scene = LetterScene(tmp_path)
    begun(scene)
    scene.turns(scene.task("count", BOTH))
    ((shard, first), (_, second)) = scene.letters("count")
    scene.plan = plan_of(tmp_path, letters_to=DEAD)
    scene.order(REPLAY, "count", shard, first)
    scene.order(DROP, "count", shard, second)
    scene.turns(scene.task("count", BOTH, ready="with-sink"))
    kept = scene.letters("count")
    assert [letter.attempts for letter in kept.values()] == [2]
    assert list(kept) == [(shard, first)]
    assert scene.sent() == []


def test_what_was_sent_is_delivered_after_the_operator_sends_no_more(tmp_path: Path):
    scene = sending(tmp_path)
    begun(scene)
    task = scene.task("count", BOTH)
    task._sinks._writers.pop("dead-letters")  # type: ignore[attr-defined]  # its owner dies before it writes
    scene.turns(task)
    assert scene.sent() == []
    scene.plan = plan_of(tmp_path, letters_to=DEAD, on_error="Fail")
    scene.turns(scene.task("count", BOTH, ready="another"))
    assert len(scene.sent()) == 2


def plan_of(folder: Path, letters_to: str, on_error: str = "DeadLetter") -> Plan:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    return LetterScene(elsewhere, letters_to=letters_to, on_error=on_error).plan


def test_initial_rows_and_several_of_a_letter_are_rows_with_their_own_columns(tmp_path: Path):
    stage = sending(tmp_path).plan.stage("count")
    letter = Letter(ROWS, ["a"], [["a"], ["b"]], [1, 1], "f\n  g\nValueError: x\n", 7, "here")
    rows = LetterRows(stage).of(Place("count", "count/0", LetterId(3, 0)), letter, None)
    assert rows is not None
    assert [row[LETTER_SCHEMA.names.index("record")] for row in rows] == ['{"word":"a"}', '{"word":"b"}']
    assert {row[LETTER_SCHEMA.names.index("error")] for row in rows} == {"ValueError: x"}
    assert {row[LETTER_SCHEMA.names.index("time")] for row in rows} == {7000}
    with pytest.raises(RuntimeError, match="no rows of its own"):
        LetterRows(stage).of(
            Place("count", "count/0", LetterId(3, 0)),
            Letter(INITIAL, None, [["a"]], [1], "x", 7, "here"),
            None,
        )
