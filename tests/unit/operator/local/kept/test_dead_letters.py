"""Letters of a store as a command beside the run reads them, and its orders, on the store's twin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.store.letters import CLERK, DROP, REPLAY, LetterId, encode_order
from penstock.store.port import Answer, Append
from penstock_operator.local.kept.dead_letters import DeadLetters, LetterUnknown, Place, place_of
from penstock_operator.local.showing.letters import letter_json, letter_lines, letter_text
from scenes.letter_scene import LetterScene

BOTH = ("count/0", "count/1")


@pytest.fixture
def scene(tmp_path: Path) -> LetterScene:
    """Two letters of `count`, and one of `words`."""
    scene = LetterScene(tmp_path, step_on_error="DeadLetter")
    (tmp_path / "a.txt").write_text("ash poison\nunsplittable\npoison\n")
    scene.publish(["lines/a.txt"])
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    scene.turns(scene.task("count", BOTH))
    return scene


def letters_of(scene: LetterScene) -> DeadLetters:
    return DeadLetters(scene.store, {"lines": ["lines/a.txt"], "count": BOTH}, lambda _: None)


def test_all_letters_are_found_by_operator_and_name(scene: LetterScene):
    letters = letters_of(scene)
    found = dict(letters.all())
    assert sorted((place.operator, letter.rows) for place, letter in found.items()) == [
        ("count", [["poison"]]),
        ("count", [["poison"]]),
        ("words", [["unsplittable"]]),
    ]
    assert [place.operator for place, _ in letters.all("words")] == ["words"]
    for place, letter in found.items():
        assert place_of(str(place)) == place
        assert letters.one(place) == letter
    assert letters.one(Place("count", "count/0", LetterId(999, 0))) is None
    assert letters.one(Place("count", "nobody/0", LetterId(1, 0))) is None


def test_orders_of_several_commands_are_all_carried_out(scene: LetterScene):
    letters = letters_of(scene)
    (first, before), (second, _) = letters.all("count")
    # Others have given orders about this shard before.
    for number in range(1, 12):
        payload = encode_order(DROP, "count", LetterId(999, 0))
        assert scene.store.call(Append(CLERK, first.shard, number, payload, 0, 1)) is Answer.OK
    letters.order(REPLAY, first)
    letters.order(DROP, second)
    with pytest.raises(TimeoutError):
        letters.outcome(first, before, 0)
    scene.turns(scene.task("count", BOTH, ready="next"), 20)
    again = letters.outcome(first, before, 0)
    assert again is not None
    assert again.attempts == 2
    assert [place for place, _ in letters.all("count")] == [first]


def test_a_name_that_is_none_is_told_with_what_one_looks_like() -> None:
    for name in ("", "count", "count@count/3", "count@count/3:x.y"):
        with pytest.raises(LetterUnknown, match=r"it is like count@count/3:481\.0"):
            place_of(name)
    assert place_of("words@lines/a:b@c.txt:7.1") == Place("words", "lines/a:b@c.txt", LetterId(7, 1))


def test_a_letter_is_shown_to_people_and_to_machines(scene: LetterScene):
    place, letter = next(letters_of(scene).all("count"))
    assert (
        letter_lines([(place, letter)]) == f'{place}  key ["poison"], 1 row  ValueError: this word is poison'
    )
    text = letter_text(place, letter)
    assert 'loop_code.py", line' in text
    assert "attempts  1" in text
    told = json.loads(letter_json(place, letter))
    assert told["rows"] == [["poison"]]
    assert told["id"] == str(place)
