"""Letters of a store as a command beside the run reads them, and its orders, on the store's twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.store_backends import StoreMeanwhile
from penstock.store.dead_letters import DeadLetters, LetterUnknown, Place, place_of
from penstock.store.letters import CLERK, DROP, REPLAY, Letter, LetterId, encode_order, packed, written
from penstock.store.port import Answer, Append, Load
from penstock.store.shard_homes import ShardHomes, ShardUnsettled
from scenes.letter_scene import LetterScene
from scenes.owned_state import SHARD, OwnedState

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
    homes = dict.fromkeys(("lines/a.txt", *BOTH), "s1")
    return DeadLetters(ShardHomes(homes, {"s1": scene.store}), lambda _: None)


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
        letters.outcome(first, before.attempts, 0)
    scene.turns(scene.task("count", BOTH, ready="next"), 20)
    again = letters.outcome(first, before.attempts, 0)
    assert again is not None
    assert again.attempts == 2
    assert [place for place, _ in letters.all("count")] == [first]


def test_a_name_that_is_none_is_told_with_what_one_looks_like() -> None:
    for name in ("", "count", "count@count/3", "count@count/3:x.y"):
        with pytest.raises(LetterUnknown, match=r"it is like count@count/3:481\.0"):
            place_of(name)
    assert place_of("words@lines/a:b@c.txt:7.1") == Place("words", "lines/a:b@c.txt", LetterId(7, 1))


def large() -> tuple[OwnedState, Place, Letter]:
    """A letter of more than one read."""
    state = OwnedState(lambda _: None)
    of = LetterId(5, 0)
    letter = Letter("rows", ["k"], [["x" * 200_000] for _ in range(8)], [0] * 8, "ValueError: no", 1, "here")
    state.scene.commit(SHARD, state=written("mid", of, packed(letter)))
    return state, Place("mid", SHARD, of), letter


def test_a_letter_that_is_larger_than_one_read_is_read_whole() -> None:
    state, place, letter = large()
    assert DeadLetters(ShardHomes({SHARD: "s1"}, {"s1": state.scene.store})).one(place) == letter


def test_a_letter_is_read_anew_where_the_shards_owner_changes_meanwhile() -> None:
    state, place, letter = large()
    changes = iter((1, 0, 1))
    store = StoreMeanwhile(state.scene.store, Load, lambda: next(changes, 0) and state.lose())
    pauses: list[float] = []
    assert DeadLetters(ShardHomes({SHARD: "s1"}, {"s1": store}), pauses.append).one(place) == letter
    assert len(pauses) == 2


def test_a_shard_whose_owner_changes_each_time_is_not_asked_without_end() -> None:
    state, place, _ = large()
    store = StoreMeanwhile(state.scene.store, Load, state.lose)
    with pytest.raises(ShardUnsettled, match="changes its owner again and again"):
        DeadLetters(ShardHomes({SHARD: "s1"}, {"s1": store}), lambda _: None).one(place)
