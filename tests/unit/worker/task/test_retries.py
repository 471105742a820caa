"""A task whose code fails for a while and whose manifest says Retry, on the store's twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store.codec import decode_counts
from penstock.store.port import Failures, Measure, StateSnapshot
from penstock_worker.task.loop import TaskLoop
from scenes.letter_scene import LetterScene, Losing
from unit.worker.task.test_dead_letters import begun, last_totals

BOTH = ("count/0", "count/1")
FAILS_FOR = (
    "if key[0] == 'poison' and timers.getCurrentProcessingTimeInMs() < {}: raise ValueError('not yet')"
)
THRICE = "{policy: Retry, attempts: 3, backoff: 100ms}"


def scene_with(folder: Path, fault: str, on_error: str = THRICE, **more: str) -> LetterScene:
    return LetterScene(folder, fault, on_error, **more)


def held_rows(scene: LetterScene) -> int:
    counters = scene.store.call(Measure(BOTH))
    return sum(decode_counts(one.counts).get("count/held", 0) for one in counters if one is not None)


def passed(scene: LetterScene, task: TaskLoop, ms: int) -> None:
    """Turns of a task, over so many milliseconds."""
    for _ in range(ms // 10):
        scene.clock.sleep_us(10_000)
        task.turn()


def test_only_the_key_waits_that_code_fails_on_and_keeps_its_order(tmp_path: Path):
    scene = scene_with(tmp_path, FAILS_FOR.format(1_000_150), numbered=True)
    begun(scene, "poison1 ash1 poison2\n")
    task = scene.task("count", BOTH)
    scene.turns(task, 4)
    assert last_totals(scene) == {"ash": 1}
    assert scene.waiting() == 0
    assert held_rows(scene) == 2
    (scene.folder / "b.txt").write_text("poison3 ash2\n")
    scene.publish_more("lines/b.txt")
    scene.turns(scene.task("lines", ["lines/a.txt", "lines/b.txt"], ready="again"))
    scene.turns(task, 4)
    assert last_totals(scene) == {"ash": 2}
    assert held_rows(scene) == 3
    passed(scene, task, 400)
    assert last_totals(scene) == {"ash": 2, "poison": 3}
    assert held_rows(scene) == 0
    assert scene.letters("count") == {}
    assert not [at for at, _ in scene.store.call(StateSnapshot("count/0")) if at.startswith(b"d")]


def test_keys_of_several_shards_that_are_worked_in_one_go_wait_and_go_on(tmp_path: Path):
    scene = scene_with(
        tmp_path, "if timers.getCurrentProcessingTimeInMs() < 1_000_250: raise ValueError('not yet')"
    )
    words = [f"w{letter}" for letter in "abcdefghijkl"]
    begun(scene, " ".join(words * 3) + "\n")
    task = scene.task("count", BOTH)
    scene.turns(task, 4)
    assert held_rows(scene) == 36
    assert scene.store.call(Measure(BOTH)) is not None
    passed(scene, task, 700)
    assert last_totals(scene) == dict.fromkeys(words, 3)
    assert held_rows(scene) == 0


def test_what_fails_each_time_fails_the_operator_and_is_tried_again_by_mended_code(tmp_path: Path):
    scene = scene_with(tmp_path, FAILS_FOR.format(1 << 60))
    begun(scene, "poison ash\n")
    task = scene.task("count", BOTH)
    scene.turns(task, 4)
    passed(scene, task, 650)
    assert scene.store.call(Failures()) == {}
    passed(scene, task, 200)
    assert "ValueError: not yet" in scene.store.call(Failures())["count"]
    assert held_rows(scene) == 1
    scene.set_code()
    scene.turns(scene.task("count", BOTH, ready="mended"))
    assert last_totals(scene) == {"ash": 1, "poison": 1}
    assert held_rows(scene) == 0


def test_what_fails_each_time_becomes_a_letter_where_the_manifest_says_so(tmp_path: Path):
    scene = scene_with(
        tmp_path,
        "if row.n == 2: raise ValueError(row.n)",
        "{policy: Retry, attempts: 3, backoff: 100ms, then: DeadLetter}",
        numbered=True,
    )
    begun(scene, "ash1 ash2 ash3\n")
    task = scene.task("count", BOTH)
    scene.turns(task, 4)
    assert last_totals(scene) == {}
    passed(scene, task, 900)
    assert last_totals(scene) == {"ash": 2}
    assert [(one.rows, one.attempts) for one in scene.letters("count").values()] == [([["ash", 2]], 4)]
    assert held_rows(scene) == 0
    assert scene.store.call(Failures()) == {}


def test_another_owner_goes_on_with_what_waits(tmp_path: Path):
    scene = scene_with(tmp_path, FAILS_FOR.format(1_000_150))
    begun(scene, "poison ash poison\n")
    scene.turns(scene.task("count", BOTH), 4)
    assert held_rows(scene) == 2
    passed(scene, scene.task("count", BOTH, ready="next"), 400)
    assert last_totals(scene) == {"ash": 1, "poison": 2}
    assert held_rows(scene) == 0


def test_what_waits_goes_on_also_where_the_manifest_says_retry_no_more(tmp_path: Path):
    scene = scene_with(tmp_path, FAILS_FOR.format(1 << 60))
    begun(scene, "poison ash\n")
    scene.turns(scene.task("count", BOTH), 4)
    after = LetterScene(tmp_path, FAILS_FOR.format(1 << 60), "DeadLetter")
    scene.plan = after.plan
    passed(scene, scene.task("count", BOTH, ready="next"), 300)
    assert len(scene.letters("count")) == 1
    assert held_rows(scene) == 0


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_lost_answers_lose_and_double_nothing_that_waits(tmp_path: Path, lost: int):
    scene = scene_with(tmp_path, FAILS_FOR.format(1_000_250))
    begun(scene, "poison ash poison\nash\n")
    task = scene.task("count", BOTH, store=Losing(scene.store, lost))
    scene.turns(task, 4)
    passed(scene, task, 700)
    assert last_totals(scene) == {"ash": 2, "poison": 2}
    assert held_rows(scene) == 0


def test_a_timer_of_a_key_that_is_held_back_waits_behind_it(tmp_path: Path):
    scene = scene_with(
        tmp_path,
        "if row.n == 1: self.handle.registerTimer(5)\n            "
        + "elif timers.getCurrentProcessingTimeInMs() < 1_000_200: raise ValueError('not yet')",
        timers="assert self.total.get()[0] == 2; yield (key[0], 100)",
        numbered=True,
    )
    begun(scene, "ash1\nash2\n")
    task = scene.task("count", BOTH)
    scene.turns(task, 4)
    passed(scene, task, 500)
    assert scene.store.call(Failures()) == {}
    assert last_totals(scene) == {"ash": 100}


def test_a_step_that_is_tried_again_keeps_its_shard_waiting_and_no_other(tmp_path: Path):
    scene = LetterScene(tmp_path, "pass", step_on_error="{policy: Retry, attempts: 3, backoff: 100ms}")
    (tmp_path / "a.txt").write_text("unsplittable\nash\n")
    (tmp_path / "b.txt").write_text("sea\n")
    scene.publish(["lines/a.txt", "lines/b.txt"])
    task = scene.task("lines", ["lines/a.txt", "lines/b.txt"])
    scene.turns(task, 4)
    (a, b) = scene.store.call(Measure(("lines/a.txt", "lines/b.txt")))
    assert a is not None
    assert b is not None
    assert (a.finished, b.finished) == (False, True)
    passed(scene, task, 800)
    assert "this line is no words" in scene.store.call(Failures())["lines"]


def test_a_step_that_fails_each_time_leaves_letters_where_the_manifest_says_so(tmp_path: Path):
    on_error = "{policy: Retry, attempts: 3, backoff: 100ms, then: DeadLetter}"
    scene = LetterScene(tmp_path, "pass", step_on_error=on_error)
    begun(scene, "unsplittable\nash\n")
    task = scene.task("lines", ["lines/a.txt"], ready="next")
    scene.turns(task, 4)
    passed(scene, task, 900)
    assert [letter.rows for letter in scene.letters("words", "lines/a.txt").values()] == [[["unsplittable"]]]
    scene.turns(scene.task("count", BOTH))
    assert last_totals(scene) == {"ash": 1}
