"""State is never read as something else than it was written as: what it was declared as lies beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.dataflow.plan import PROCESSING_TIME
from penstock.store.port import ClearFailure, Failures
from penstock_worker.state.declared import Declaration
from penstock_worker.state.encoding import pack
from penstock_worker.state.handle import TaskHandle
from penstock_worker.state.shapes import StateMisuse
from scenes.owned_state import OwnedState
from scenes.task_scene import CODE, Scene

Declare = Callable[[TaskHandle], Any]


def value(schema: Any) -> Declare:
    return lambda handle: handle.getValueState("v", schema)


def declared_as(declare: Declare) -> OwnedState:
    """A shard on which one key has state."""
    owned = OwnedState(declare)
    owned.prefetch(("a",))
    with owned.at("a") as variable:
        if hasattr(variable, "appendValue"):
            variable.appendValue((6,))
        elif hasattr(variable, "updateValue"):
            variable.updateValue(("k",), (6,))
        else:
            variable.update((6,))
    owned.commit()
    return owned


def refusal(owned: OwnedState, declare: Declare) -> str:
    later = OwnedState(declare, after=owned)
    later.prefetch(("b",))
    return later.state.refusal


LONG = value("n long")
ENTRIES: Declare = lambda handle: handle.getMapState("v", "k string", "n long")  # noqa: E731 - one line each


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (
            LONG,
            value("n timestamp"),
            "a value of (`n` bigint) in the store, and a value of (`n` timestamp) in",
        ),
        (LONG, value("n int"), "a value of (`n` int) in the code"),
        (LONG, value("n decimal(20,0)"), "a value of (`n` decimal(20,0)) in the code"),
        (value("n double"), value("n float"), "a value of (`n` float) in the code"),
        (LONG, value("n string, m long"), "a value of (`n` string, `m` bigint) in the code"),
        (LONG, value("m long"), "a value of (`m` bigint) in the code"),
        (LONG, value("m struct<n:long>"), "a value of (`m` struct<n:bigint>) in the code"),
        (LONG, lambda handle: handle.getListState("v", "n long"), "a list of (`n` bigint) in the code"),
        (LONG, ENTRIES, "a map of (`k` string) to (`n` bigint) in the code"),
        (ENTRIES, lambda handle: handle.getMapState("v", "k binary", "n long"), "a map of (`k` binary) to"),
        (ENTRIES, lambda handle: handle.getMapState("v", "k string", "n date"), "to (`n` date) in the code"),
    ],
)
def test_a_variable_of_another_kind_or_schema_is_refused_with_both(
    before: Declare, now: Declare, words: str
) -> None:
    owned = declared_as(before)
    text = refusal(owned, now)
    assert "state 'v' is " in text
    assert words in text
    assert "give the variable a new name" in text
    assert refusal(owned, before) == ""


def test_the_same_schema_in_other_words_is_the_same() -> None:
    struct = StructType([StructField("k", StringType(), nullable=False), StructField("n", LongType())])
    owned = OwnedState(value("k STRING, n BIGINT"))
    owned.prefetch(("a",))
    with owned.at("a") as variable:
        variable.update(("x", 1))
    owned.commit()
    assert refusal(owned, value(struct)) == ""


def test_a_new_variable_is_added_and_one_that_is_gone_stays_noted() -> None:
    owned = declared_as(LONG)
    other = OwnedState(lambda handle: handle.getValueState("w", "n long"), after=owned)
    other.prefetch(("a",))
    assert other.state.refusal == ""
    with other.at("a") as variable:
        variable.update((1,))
    other.commit()
    assert "a value of (`n` date) in the code" in refusal(owned, value("n date"))
    other_again: Declare = lambda handle: handle.getValueState("w", "n date")  # noqa: E731
    assert "state 'w'" in refusal(owned, other_again)


def test_the_note_is_written_once_and_again_after_a_batch_that_was_rolled_back() -> None:
    owned = OwnedState(LONG)
    owned.prefetch(("a",))
    for number in (1, 2):
        with owned.at("a") as variable:
            variable.update((number,))
        if number == 1:
            owned.state.take_writes()
            owned.state.rollback()
    assert owned.noted() is None
    owned.commit()
    assert owned.noted() is not None
    with owned.at("a") as variable:
        variable.update((3,))
    assert len(owned.state.take_writes()) == 1


def test_a_note_from_before_schemas_could_change_is_read_as_it_was() -> None:
    noted = pack({"v": (b"v", ("`n` bigint",)), "gone": (b"m", ("`k` string", "`n` int"))})
    same = Declaration([("v", b"v", ("`n` bigint",))]).standing(noted)
    assert (same.refusal, same.to_note, same.stored) == ("", None, (None,))
    wider = Declaration([("v", b"v", ("`n` double",))]).standing(noted)
    assert wider.refusal == ""
    assert wider.to_note is not None
    assert wider.stored != (None,)
    assert Declaration([], ["gone"]).standing(noted).deleted == (b"m" + pack("gone"),)


def test_state_from_before_there_were_notes_is_worked_on_and_noted() -> None:
    owned = OwnedState(LONG)
    with owned.at("a") as variable:  # without a prefetch nothing is noted
        variable.update((6,))
    owned.commit()
    assert owned.noted() is None
    later = OwnedState(LONG, after=owned)
    later.prefetch(("a",))
    assert later.state.refusal == ""
    with later.at("a") as variable:
        assert variable.get() == (6,)
        variable.update((7,))
    later.commit()
    assert later.noted() is not None


def test_a_task_with_other_code_reports_it_before_it_works_on_a_row_and_the_code_as_it_was_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    scene = Scene(tmp_path)
    (tmp_path / "a.txt").write_text("ash ash\n")
    scene.publish(["lines/a.txt"])
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    scene.turns(scene.task("count", scene.count_shards))
    (tmp_path / "b.txt").write_text("ash\n")
    scene.publish_more("lines/b.txt")
    scene.turns(scene.task("lines", ["lines/b.txt"], ready="more"))

    def with_code(text: str, ready: str) -> dict[str, str]:
        (tmp_path / "loop_code.py").write_text(text)
        sys.modules.pop("loop_code", None)
        scene.turns(scene.task("count", scene.count_shards, ready=ready))
        return scene.store.call(Failures())

    failure = with_code(CODE.replace('"n long"', '"n timestamp"'), "other")["count"]
    assert failure.startswith("operator count: state 'total' is a value of (`n` bigint) in the store, and")
    assert scene.waiting() == 1
    assert scene.out() == ['{"word":"ash","total":2}']
    scene.store.call(ClearFailure("count"))
    assert with_code(CODE, "again") == {}
    assert scene.out() == ['{"word":"ash","total":2}', '{"word":"ash","total":3}']


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (value("long"), "state 'v': column 'long' has no type"),
        (value("long"), 'write "value long"'),
        (value(LongType()), 'write "value bigint"'),
        (value("array<int>"), 'write "value array<int>"'),
        (lambda handle: handle.getListState("v", "date"), 'write "value date"'),
        (lambda handle: handle.getMapState("v", "string", "n long"), 'write "key string"'),
        (lambda handle: handle.getMapState("v", "k string", "long"), 'write "value long"'),
        (value("total lng"), "state 'v': column 'total': type lng is unknown"),
    ],
)
def test_a_schema_that_cannot_be_read_names_its_state_and_what_to_write(declare: Declare, words: str) -> None:
    with pytest.raises(StateMisuse) as refused:
        OwnedState(declare)
    assert words in str(refused.value)


def test_state_with_a_time_to_live_goes_on_under_another_schema() -> None:
    def declaring(value: str) -> Any:
        return lambda handle: (
            handle.getValueState("v", value, 1000),
            handle.getListState("l", value, 1000),
            handle.getMapState("m", "k int", value, 1000),
        )

    first = OwnedState(declaring("n int"), time_mode=PROCESSING_TIME)
    first.prefetch(("a",))
    with first.at("a") as (value, elements, entries):
        value.update((1,))
        elements.put([(2,), (3,)])
        entries.updateValue((4,), (5,))
    first.commit()
    later = OwnedState(declaring("more string, n bigint"), after=first, time_mode=PROCESSING_TIME)
    later.prefetch(("a",))
    with later.at("a") as (value, elements, entries):
        assert value.get() == (None, 1)
        assert list(elements.get()) == [(None, 2), (None, 3)]
        assert entries.getValue((4,)) == (None, 5)
        value.update(("new", 6))
        elements.appendValue(("new", 7))
    later.commit()
    later.new_owner()
    later.state.now_ms = 999
    later.prefetch(("a",))
    with later.at("a") as (value, elements, entries):
        assert value.get() == ("new", 6)
        assert list(elements.get()) == [(None, 2), (None, 3), ("new", 7)]
        later.state.now_ms = 1000
        assert (value.get(), list(elements.get()), entries.exists()) == (None, [], False)
