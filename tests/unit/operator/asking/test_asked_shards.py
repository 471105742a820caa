"""What a command asks is answered by the process at the stores, message by message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.errors import PermanentError
from penstock.store import kept_questions as kept
from penstock.store.dead_letters import Place
from penstock.store.letters import DROP, REPLAY, LetterId
from penstock.store.shard_homes import ShardHomes
from penstock_operator.asking.asked_shards import AskedShards
from penstock_operator.asking.keys import key_of, keyed_head
from penstock_operator.asking.line import LineBroken
from penstock_operator.asking.shown_letters import letter_json, letter_line, letter_text
from scenes.answering_line import AnsweringHere, asked_here
from scenes.letter_scene import LetterScene

BOTH = ("count/0", "count/1")
NOWHERE = Place("count", "count/0", LetterId(999, 0))


@pytest.fixture
def scene(tmp_path: Path) -> LetterScene:
    """Two letters of `count`, and one of `words`; ash was counted."""
    scene = LetterScene(tmp_path, step_on_error="DeadLetter")
    (tmp_path / "a.txt").write_text("ash poison\nunsplittable\npoison\n")
    scene.publish(["lines/a.txt"])
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    scene.turns(scene.task("count", BOTH))
    return scene


@pytest.fixture
def asked(scene: LetterScene) -> AskedShards:
    homes = dict.fromkeys(("lines/a.txt", *BOTH), "s1")
    return asked_here(ShardHomes(homes, {"s1": scene.store}, lambda _: None))


def test_letters_are_listed_of_all_operators_or_one_and_no_more_than_are_wanted(asked: AskedShards) -> None:
    found = list(asked.letters())
    assert sorted((one.place.operator, one.letter.rows) for one in found) == [
        ("count", [["poison"]]),
        ("count", [["poison"]]),
        ("words", [["unsplittable"]]),
    ]
    assert asked.are_all
    assert [one.place.operator for one in asked.letters("words")] == ["words"]
    assert len(list(asked.letters(most=2))) == 2
    assert not asked.are_all
    assert len(list(asked.letters(most=3))) == 3
    assert asked.are_all


def test_letters_in_brief_have_neither_rows_nor_key_and_are_found_by_their_names(asked: AskedShards) -> None:
    for one in list(asked.letters("count", is_brief=True)):
        assert (one.letter.rows, one.letter.key, one.rows, one.letter.attempts) == ([], None, 1, 1)
        whole = asked.letter(one.place)
        assert whole is not None
        assert whole.rows == [["poison"]]
    assert asked.letter(NOWHERE) is None


def test_an_order_is_carried_out_by_the_shards_owner_and_waited_for(
    asked: AskedShards, scene: LetterScene
) -> None:
    first, second = asked.letters("count")
    asked.order(REPLAY, first.place)
    asked.order(DROP, second.place)
    with pytest.raises(TimeoutError):
        asked.outcome(first.place, first.letter.attempts, 0)
    scene.turns(scene.task("count", BOTH, ready="next"), 20)
    again = asked.outcome(first.place, first.letter.attempts, 0)
    assert again is not None
    assert again.attempts == 2
    assert asked.outcome(second.place, second.letter.attempts, 0) is None


def test_an_order_to_a_shard_that_nobody_knows_is_refused_with_its_name(asked: AskedShards) -> None:
    with pytest.raises(PermanentError, match="no store knows shard nobody/0"):
        asked.order(DROP, Place("nobody", "nobody/0", LetterId(1, 0)))
    assert asked.letter(NOWHERE) is None, "it answers on"


def test_what_a_key_holds_and_which_keys_there_are(asked: AskedShards, scene: LetterScene) -> None:
    head = keyed_head(scene.plan, "count")
    assert asked.state_of("count", head, key_of(head, ["ash"])).variables["total"] == {"n": 1}
    assert asked.state_of("count", head, key_of(head, ["elm"])).variables == {}
    assert asked.keys_of("count", head, 9) == kept.Keys([["ash"]])


def test_what_speaks_another_version_is_told_before_anything_is_asked() -> None:
    line = AnsweringHere(ShardHomes({}, {}), version=2)
    with pytest.raises(PermanentError, match="speaks version 2, this command 1"):
        AskedShards(line, kept.Opening("uid", {}, {}))
    assert line.opening is None


def test_what_is_no_answer_is_told() -> None:
    class Talking:
        def __init__(self, *said: bytes) -> None:
            self._said = list(said)

        def send(self, data: bytes) -> None: ...

        def receive(self, within_s: float) -> bytes:
            return self._said.pop(0) if self._said else b""

        def close(self) -> None: ...

    opening = kept.Opening("uid", {}, {})
    with pytest.raises(kept.NoQuestion, match="something else than an answer"):
        AskedShards(Talking(b"Traceback (most recent call last)"), opening)
    with pytest.raises(kept.NoQuestion, match="something else than an answer"):
        AskedShards(Talking(b"\0\0\0\1x"), opening)
    with pytest.raises(LineBroken, match="has ended"):
        AskedShards(Talking(b"\0\0\0"), opening)
    with pytest.raises(kept.NoQuestion, match="Done came"):
        AskedShards(Talking(kept.framed(kept.Done())), opening)


def test_a_letter_is_shown_to_people_and_to_machines(asked: AskedShards) -> None:
    listed = next(one for one in list(asked.letters("count")))
    place, letter = listed.place, listed.letter
    assert letter_line(listed) == f'{place}  key ["poison"], 1 row  ValueError: this word is poison'
    text = letter_text(place, letter)
    assert 'loop_code.py", line' in text
    assert "attempts  1" in text
    told = json.loads(letter_json(place, letter))
    assert told["rows"] == [["poison"]]
    assert told["id"] == str(place)
