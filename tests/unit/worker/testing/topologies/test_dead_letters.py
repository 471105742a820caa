"""A test reads what a topology's code has failed on, and has it worked on again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.testing import DeadLetter, Misuse, TopologyTest

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: letters}
spec:
  code: {module: tested_letters}
  operators:
  - name: rows
    source: {files: {glob: "*.jsonl", format: jsonl, schema: "word string, at timestamp"}}
  - name: checked
    inputs: [rows]
    map: tested_letters:checked
    outputSchema: "word string, size bigint"
    onError: {policy: DeadLetter}
  - name: count
    inputs: [checked]
    keyBy: [word, size]
    processor: tested_letters:Count
    outputSchema: "word string, total bigint"
    timeMode: ProcessingTime
    shards: 4
    onError: {policy: DeadLetter}
  - name: out
    inputs: [count]
    sink: {console: {}}
"""
CODE = """
from pyspark.sql.streaming import StatefulProcessor

MENDED = False


def checked(row):
    if row.word == "" and not MENDED:
        raise ValueError("a word has letters")
    return [(row.word, len(row.word))]


class Count(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key, rows, timerValues):
        if key[0] == "poison" and not MENDED:
            raise KeyError("this word is poison")
        if key[0] == "late":
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1000)
        total = (self.total.get() or (0,))[0] + sum(1 for _ in rows)
        self.total.update((total,))
        yield (key[0], total)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        raise RuntimeError("too late")

    def close(self):
        pass
"""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def test(tmp_path: Path) -> Iterator[TopologyTest]:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "tested_letters.py").write_text(CODE)
    with TopologyTest.of(tmp_path / "topology.yaml") as test:
        yield test
    sys.modules.pop("tested_letters", None)


def mend() -> None:
    sys.modules["tested_letters"].__dict__["MENDED"] = True


def test_letters_have_rows_and_key_as_the_operator_was_given_them(test: TopologyTest) -> None:
    test.feed("rows", [("ash", NOON), ("poison", NOON), ("", NOON), ("poison", NOON), ("ash", NOON)])
    assert test.rows("out") == [{"word": "ash", "total": 2}]
    (of_step,) = test.dead_letters("checked")
    assert (of_step.operator, of_step.key, of_step.rows) == ("checked", None, [{"word": "", "at": NOON}])
    assert "ValueError: a word has letters" in of_step.error
    assert "tested_letters.py" in of_step.error
    letters = test.dead_letters("count")
    assert [(one.key, one.rows, one.attempts) for one in letters] == [
        (("poison", 6), [{"word": "poison", "size": 6}], 1)
    ] * 2
    assert test.dead_letters("rows") == []


def test_a_timer_that_raises_is_a_letter_with_its_time(test: TopologyTest) -> None:
    test.feed("rows", [("late", NOON)])
    due = test.now + timedelta(seconds=1)
    test.advance(seconds=2)
    (letter,) = test.dead_letters("count")
    assert (letter.key, letter.rows, letter.timer) == (("late", 4), [], due)
    assert isinstance(letter, DeadLetter)


def test_a_replay_works_on_them_again_and_keeps_what_fails_again(test: TopologyTest) -> None:
    test.feed("rows", [("poison", NOON), ("", NOON)])
    assert test.replay("count") == 1
    (again,) = test.dead_letters("count")
    assert again.attempts == 2
    mend()
    assert test.replay("count") == 1
    assert test.replay("checked") == 1
    assert test.dead_letters("count") == test.dead_letters("checked") == []
    assert test.rows("out") == [{"word": "poison", "total": 1}, {"word": "", "total": 1}]
    assert test.replay("count") == 0


def test_letters_of_what_is_no_operator_are_a_slip(test: TopologyTest) -> None:
    with pytest.raises(Misuse, match=r"no operator is called 'counts' \(did you mean count\?\)"):
        test.dead_letters("counts")


@pytest.mark.parametrize("sink", ["{files: {path: dead}}", "{foreachBatch: {call: 'tested_letters:write'}}"])
def test_letters_of_a_sink_are_its_rows_and_are_not_kept(tmp_path: Path, sink: str) -> None:
    manifest = MANIFEST.replace("  operators:\n", f"  deadLetters: {sink}\n  operators:\n", 1)
    (tmp_path / "topology.yaml").write_text(manifest)
    (tmp_path / "tested_letters.py").write_text(CODE + "\n\ndef write(frame, number):\n    frame.show()\n")
    with TopologyTest.of(tmp_path / "topology.yaml") as test:
        test.feed("rows", [("ash", NOON), ("poison", NOON), ("", NOON)])
        test.feed("rows", [("late", NOON)])
        test.advance(seconds=2)
        rows = test.rows("dead-letters")
        found = {(row["operator"], row["kind"]): row for row in rows}
        assert sorted(found) == [("checked", "rows"), ("count", "rows"), ("count", "timer")]
        assert len(rows) == 3
        assert found["checked", "rows"]["record"] == '{"word":"","at":"2026-01-01T12:00:00.000Z"}'
        poisoned = found["count", "rows"]
        assert (poisoned["key"], poisoned["error"]) == (
            '{"word":"poison","size":6}',
            "KeyError: 'this word is poison'",
        )
        assert "tested_letters.py" in poisoned["traceback"]
        assert found["count", "timer"]["timer"] == test.now - timedelta(seconds=1)
        told = r"dead letters of count are not kept.*rows\('dead-letters'\).*count.onError.to=Store"
        with pytest.raises(Misuse, match=told):
            test.dead_letters("count")
        with pytest.raises(Misuse, match="dead letters of checked are not kept"):
            test.replay("checked")
    sys.modules.pop("tested_letters", None)
    overrides = ["count.onError.to=Store"]
    with TopologyTest.of(tmp_path / "topology.yaml", overrides) as test:
        test.feed("rows", [("poison", NOON), ("", NOON)])
        assert len(test.dead_letters("count")) == len(test.rows("dead-letters")) == 1
    sys.modules.pop("tested_letters", None)
