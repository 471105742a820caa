"""A task whose code fails on some rows and whose manifest says DeadLetter, on the store's twin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from penstock.store.codec import decode_counts
from penstock.store.letters import COUNTED, DROP, INPUT, REPLAY, ROWS, TIMER, collection_of, decode_kept
from penstock.store.port import Failures, Measure, Reopen, StateSnapshot
from penstock_worker.task.held_shards import REFRESH_US
from penstock_worker.task.launch import Poison
from penstock_worker.values.wire_values import shown
from scenes.letter_scene import CODE, LetterScene, Losing
from scenes.task_scene import Scene

BOTH = ("count/0", "count/1")
LINES = "ash poison ash\npoison sea ash\n"


@pytest.fixture
def scene(tmp_path: Path) -> LetterScene:
    return LetterScene(tmp_path)


def begun(scene: Scene, lines: str = LINES) -> None:
    (scene.folder / "a.txt").write_text(lines)
    scene.publish(["lines/a.txt"])
    scene.turns(scene.task("lines", ["lines/a.txt"]))


def last_totals(scene: Scene) -> dict[str, int]:
    totals: dict[str, int] = {}
    for line in scene.out():
        word, total = line.split('"')[3], int(line.rsplit(":", 1)[1].rstrip("}"))
        totals[word] = max(totals.get(word, 0), total)
    return totals


def test_rows_that_code_fails_on_become_letters_and_all_other_keys_go_on(scene: LetterScene):
    begun(scene)
    scene.turns(scene.task("count", BOTH))
    assert last_totals(scene) == {"ash": 3, "sea": 1}
    found = list(scene.letters("count").values())
    assert [(letter.kind, letter.key, letter.rows) for letter in found] == [
        (ROWS, ["poison"], [["poison"]])
    ] * 2
    assert all("ValueError: this word is poison" in letter.error for letter in found)
    assert all('loop_code.py", line' in letter.error for letter in found)
    assert all(letter.place.startswith("inbox of count/") and letter.at_ms > 0 for letter in found)
    assert scene.store.call(Failures()) == {}
    assert scene.waiting() == 0
    counts: Counter[str] = Counter()
    for counters in scene.store.call(Measure(BOTH)):
        counts.update(decode_counts(counters.counts if counters is not None else b""))
    assert counts["count/dead"] == 2


def test_what_a_call_did_to_its_state_before_it_raised_is_undone(tmp_path: Path):
    # The list, the map and the value would tell a call that was undone in part.
    once = "if total == 3 and not hasattr(self, 'spent'): self.spent = 1; raise ValueError(total)"
    scene = LetterScene(tmp_path, once)
    begun(scene, "ash ash ash ash ash ash ash ash\n")
    scene.turns(scene.task("count", BOTH))
    assert scene.letters("count") == {}
    assert last_totals(scene) == {"ash": 8}


@pytest.mark.parametrize("bad", [(0,), (3,), (7,), (1, 2), (0, 4, 7), tuple(range(8))])
def test_of_a_keys_rows_in_one_batch_only_those_that_fail_alone_are_kept_apart(
    tmp_path: Path, bad: tuple[int, ...]
):
    scene = LetterScene(tmp_path, f"if row.n in {bad!r}: raise ValueError(row.n)", numbered=True)
    begun(scene, " ".join(f"ash{n}" for n in range(8)) + "\n")
    scene.turns(scene.task("count", BOTH))
    assert [letter.rows for letter in scene.letters("count").values()] == [[["ash", n]] for n in bad]
    assert last_totals(scene) == ({"ash": 8 - len(bad)} if len(bad) < 8 else {})


def test_a_step_keeps_the_rows_apart_that_it_fails_on(tmp_path: Path):
    scene = LetterScene(tmp_path, fault="pass", step_on_error="DeadLetter")
    begun(scene, "ash sea\nunsplittable\nash\n")
    scene.turns(scene.task("count", BOTH))
    assert last_totals(scene) == {"ash": 2, "sea": 1}
    (letter,) = scene.letters("words", "lines/a.txt").values()
    assert (letter.kind, letter.key, letter.rows) == (ROWS, None, [["unsplittable"]])
    assert "this line is no words" in letter.error


def test_an_expression_keeps_the_rows_apart_that_it_raises_on(tmp_path: Path):
    select = 'select: ["word", "12 div n AS n"]\n    onError: {policy: DeadLetter}'
    scene = LetterScene(tmp_path, fault="pass", numbered=True, select=select)
    begun(scene, "ash1 sea0 ash3 ash0\nsea2\n")
    scene.turns(scene.task("count", BOTH))
    assert last_totals(scene) == {"ash": 2, "sea": 1}
    found = scene.letters("chosen", "lines/a.txt").values()
    assert [letter.rows for letter in found] == [[["sea", 0]], [["ash", 0]]]
    assert all("12 div n" in letter.error for letter in found)


def test_a_step_that_says_nothing_fails_also_before_a_processor_that_keeps_letters(scene: LetterScene):
    begun(scene, "ash\nunsplittable\n")
    assert "this line is no words" in scene.store.call(Failures())["lines"]


def test_without_room_for_another_letter_the_operator_fails_and_says_what_to_do(tmp_path: Path):
    scene = LetterScene(tmp_path, on_error="{policy: DeadLetter, keep: 2}")
    begun(scene, "poison poison\nash\n")
    task = scene.task("count", BOTH)
    scene.turns(task)
    assert len(scene.letters("count")) == 2
    (scene.folder / "b.txt").write_text("poison\n")
    scene.publish_more("lines/b.txt")
    scene.turns(scene.task("lines", ["lines/a.txt", "lines/b.txt"], ready="again"))
    scene.turns(task)
    failure = scene.store.call(Failures())["count"]
    assert "this word is poison" in failure
    assert "may keep 2 (onError.keep)" in failure
    assert "penstock dead-letters list" in failure
    assert len(scene.letters("count")) == 2
    assert scene.waiting() == 1


def test_a_letter_is_worked_on_again_and_gone_once_its_cause_is(scene: LetterScene):
    begun(scene)
    scene.turns(scene.task("count", BOTH))
    ((shard, first), (_, second)) = scene.letters("count")
    scene.order(REPLAY, "count", shard, first)
    scene.turns(scene.task("count", BOTH, ready="still"))
    again = scene.letters("count")
    assert [again[shard, of].attempts for of in (first, second)] == [2, 1]
    assert scene.store.call(Failures()) == {}
    scene.set_code()
    task = scene.task("count", BOTH, ready="mended")
    for of in (first, second, first):
        scene.order(REPLAY, "count", shard, of)
    scene.turns(task)
    assert scene.letters("count") == {}
    assert last_totals(scene) == {"ash": 3, "sea": 1, "poison": 2}
    kept = scene.store.call(StateSnapshot(shard))[collection_of("count"), COUNTED]
    assert decode_kept(kept) == (0, 0, 0)


def test_a_letter_that_is_dropped_is_gone_and_leaves_room(scene: LetterScene):
    begun(scene)
    task = scene.task("count", BOTH)
    scene.turns(task)
    ((shard, first), (_, second)) = scene.letters("count")
    scene.order(DROP, "count", shard, first)
    scene.turns(task)
    assert list(scene.letters("count")) == [(shard, second)]
    kept = decode_kept(scene.store.call(StateSnapshot(shard))[collection_of("count"), COUNTED])
    assert (kept.letters, kept.rows) == (1, 1)
    assert last_totals(scene) == {"ash": 3, "sea": 1}


def test_orders_about_what_is_not_there_change_nothing(scene: LetterScene):
    begun(scene)
    task = scene.task("count", BOTH)
    scene.turns(task)
    before = scene.letters("count")
    ((shard, first), _) = before
    scene.order(REPLAY, "count", shard, first._replace(place=99))
    scene.order(DROP, "nobody", shard, first)
    scene.turns(task)
    assert scene.letters("count") == before
    assert scene.waiting() == 0


def test_a_steps_letter_is_worked_on_again_in_its_source_also_where_that_is_at_its_end(tmp_path: Path):
    scene = LetterScene(tmp_path, fault="pass", step_on_error="DeadLetter")
    begun(scene, "unsplittable words\nash\n")
    ((shard, of),) = scene.letters("words", "lines/a.txt")
    code = CODE.replace('"unsplittable" in line.value', "False")
    scene.set_code("pass", code)
    scene.order(REPLAY, "words", shard, of)
    scene.store.call(Reopen(shard))
    scene.turns(scene.task("lines", ["lines/a.txt"], ready="mended"), 20)
    assert scene.letters("words", "lines/a.txt") == {}
    scene.turns(scene.task("count", BOTH))
    assert last_totals(scene) == {"ash": 1, "unsplittable": 1, "words": 1}
    (counters,) = scene.store.call(Measure((shard,)))
    assert counters is not None
    assert (counters.finished, counters.inbox_entries) == (True, 0)


def test_lines_that_are_no_rows_become_letters_where_the_source_says_so(tmp_path: Path):
    source = "{files: {glob: '*.txt', format: jsonl, schema: 'value string'}}"
    scene = LetterScene(tmp_path, "pass", source=f"{source}\n    onError: DeadLetter")
    begun(scene, '{"value": "ash"}\n{"value": \n{"value": "sea"}\n[]\n')
    scene.turns(scene.task("count", BOTH))
    assert last_totals(scene) == {"ash": 1, "sea": 1}
    found = list(scene.letters("lines", "lines/a.txt").values())
    assert [(letter.kind, letter.rows) for letter in found] == [(INPUT, ['{"value": ']), (INPUT, ["[]"])]
    assert [letter.place.rsplit("/", 1)[1] for letter in found] == ["a.txt, line 2", "a.txt, line 4"]


def test_a_line_that_is_no_row_fails_the_source_that_says_nothing(tmp_path: Path):
    source = "{files: {glob: '*.txt', format: jsonl, schema: 'value string'}}"
    scene = LetterScene(tmp_path, "pass", source=source)
    begun(scene, '{"value": "ash"}\n{"value": \n')
    assert "line 2" in scene.store.call(Failures())["lines"]


def test_an_order_finds_a_source_that_rests(tmp_path: Path):
    scene = LetterScene(tmp_path, "pass", step_on_error="DeadLetter")
    (tmp_path / "a.txt").write_text("unsplittable\nash\nsea")
    scene.publish(["lines/a.txt"])
    task = scene.task("lines", ["lines/a.txt"])
    scene.turns(task, 3)
    ((shard, of),) = scene.letters("words", "lines/a.txt")
    scene.order(DROP, "words", shard, of)
    scene.clock.sleep_us(REFRESH_US)
    scene.turns(task, 3)
    assert scene.letters("words", "lines/a.txt") == {}


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_commit_whose_answer_is_lost_writes_its_letters_once(tmp_path: Path, lost: int):
    scene = LetterScene(tmp_path)
    begun(scene)
    scene.turns(scene.task("count", BOTH, store=Losing(scene.store, lost)), 20)
    assert len(scene.letters("count")) == 2
    assert last_totals(scene) == {"ash": 3, "sea": 1}
    assert scene.waiting() == 0


def test_a_row_that_comes_to_more_than_a_task_holds_becomes_a_letter(tmp_path: Path):
    scene = LetterScene(tmp_path, 'if key[0] == "poison": yield from (("x", 1) for _ in iter(int, 1))')
    begun(scene)
    scene.turns(scene.task("count", BOTH))
    found = list(scene.letters("count").values())
    assert [letter.rows for letter in found] == [[["poison"]]] * 2
    assert all("yield fewer for one row" in letter.error for letter in found)
    assert last_totals(scene) == {"ash": 3, "sea": 1}


def test_a_row_with_a_text_that_is_none_becomes_a_letter_of_who_put_it_out(tmp_path: Path):
    scene = LetterScene(tmp_path, 'if key[0] == "poison": yield ("\\ud800", 1)')
    begun(scene)
    scene.turns(scene.task("count", BOTH))
    assert [letter.rows for letter in scene.letters("count").values()] == [[["poison"]]] * 2
    assert last_totals(scene) == {"ash": 3, "sea": 1}


def test_a_timer_that_code_fails_on_becomes_a_letter_and_fires_once_its_cause_is_gone(tmp_path: Path):
    scene = LetterScene(tmp_path, "self.handle.registerTimer(5)", timers="raise ValueError(expiry)")
    begun(scene, "ash sea\n")
    scene.turns(scene.task("count", BOTH))
    found = scene.letters("count")
    assert sorted((letter.kind, letter.key, letter.expiry_ms) for letter in found.values()) == [
        (TIMER, ["ash"], 5),
        (TIMER, ["sea"], 5),
    ]
    counters = scene.store.call(Measure(BOTH))
    assert [one.next_timer_ms for one in counters if one is not None] == [None, None]
    scene.set_code("pass", timers="assert not self.handle.listTimers() == []; yield (key[0], 100 + expiry)")
    for shard, of in found:
        scene.order(REPLAY, "count", shard, of)
    scene.turns(scene.task("count", BOTH, ready="mended"))
    assert scene.letters("count") == {}
    assert last_totals(scene) == {"ash": 105, "sea": 105}


def test_rows_that_tasks_have_crashed_at_become_letters_without_a_call_and_only_in_that_batch(tmp_path: Path):
    # It would end the process, as `os._exit` does.
    scene = LetterScene(tmp_path, 'if key[0] == "poison": raise AssertionError("it was called")')
    begun(scene, "ash poison poison\n")
    poison = [Poison(shard, 0, shown(("poison",)), "tasks crashed 5 times in a row here") for shard in BOTH]
    task = scene.task("count", BOTH, poison=poison)
    scene.turns(task)
    found = list(scene.letters("count").values())
    assert [letter.rows for letter in found] == [[["poison"]]] * 2
    assert all("operator count: tasks crashed 5 times in a row here" in letter.error for letter in found)
    assert last_totals(scene) == {"ash": 1}
    (scene.folder / "b.txt").write_text("poison\n")
    scene.publish_more("lines/b.txt")
    scene.turns(scene.task("lines", ["lines/a.txt", "lines/b.txt"], ready="again"))
    scene.turns(task)
    assert "it was called" in list(scene.letters("count").values())[-1].error
