"""Timers in a task: user code sets them, the task fires them when they are due, or whoever takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store.port import Failures
from penstock_worker.task import held_shards
from scenes.timer_scene import START_MS, TimerScene


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def at(milliseconds: int) -> str:
    return f"self.handle.registerTimer({START_MS + milliseconds})"


def test_a_timer_fires_when_it_is_due_and_once(folder: Path) -> None:
    scene = TimerScene(folder, at(5_000))
    task = scene.begin("a")
    scene.pass_ms(4_500)
    scene.turns(task)
    assert scene.fired() == []
    scene.pass_ms(500)
    scene.turns(task)
    assert scene.fired() == [("a", START_MS + 5_000)]
    assert scene.timers() == {}
    scene.pass_ms(5_000)
    scene.turns(task)
    assert len(scene.fired()) == 1


def test_a_task_waits_until_its_next_timer_and_no_longer(folder: Path) -> None:
    scene = TimerScene(folder, "self.handle.registerTimer(now + 80)")
    scene.begin("a")
    assert 70 <= scene.waits[-1].timeout_ms <= 80


def test_timers_fire_in_the_order_of_their_expiry(folder: Path) -> None:
    scene = TimerScene(folder, "[self.handle.registerTimer(now + 100 * n) for n in (3, 1, 2)]")
    task = scene.begin("a", "b")
    scene.pass_ms(1_000)
    scene.turns(task)
    expiries = [expiry for _, expiry in scene.fired()]
    assert len(expiries) == 6
    assert expiries == sorted(expiries)


def test_a_timer_is_one_however_often_it_is_set(folder: Path) -> None:
    scene = TimerScene(folder, f"{at(5_000)}; {at(5_000)}")
    task = scene.begin("a", "a")
    scene.pass_ms(6_000)
    scene.turns(task)
    assert scene.fired() == [("a", START_MS + 5_000)]


def test_a_timer_in_the_past_fires_at_once(folder: Path) -> None:
    scene = TimerScene(folder, "self.handle.registerTimer(5)")
    scene.begin("a")
    assert scene.fired() == [("a", 5)]


def test_a_deleted_timer_does_not_fire(folder: Path) -> None:
    scene = TimerScene(folder, f"{at(5_000)}; self.handle.deleteTimer({START_MS + 5_000}); {at(6_000)}")
    task = scene.begin("a")
    scene.pass_ms(9_000)
    scene.turns(task)
    assert scene.fired() == [("a", START_MS + 6_000)]


def test_a_timer_that_an_earlier_one_deletes_in_the_same_batch_does_not_fire(folder: Path) -> None:
    scene = TimerScene(folder, f"{at(5_000)}; {at(5_001)}", "self.handle.deleteTimer(expiry + 1)")
    task = scene.begin("a")
    scene.pass_ms(9_000)
    scene.turns(task)
    assert scene.fired() == [("a", START_MS + 5_000)]
    assert scene.timers() == {}


def test_a_timer_set_anew_for_its_own_time_goes_with_it(folder: Path) -> None:
    scene = TimerScene(folder, at(5_000), "self.handle.registerTimer(expiry)")
    task = scene.begin("a")
    scene.pass_ms(9_000)
    scene.turns(task, 30)
    assert scene.fired() == [("a", START_MS + 5_000)]
    assert scene.timers() == {}


def test_a_timer_may_delete_itself(folder: Path) -> None:
    scene = TimerScene(folder, at(5_000), "self.handle.deleteTimer(expiry)")
    task = scene.begin("a")
    scene.pass_ms(9_000)
    scene.turns(task)
    assert scene.fired() == [("a", START_MS + 5_000)]


def test_timers_that_set_others_for_ever_leave_room_for_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_shards, "REFRESH_US", 10_000)
    body = "self.handle.registerTimer(1) if key[0] == 'a' else self.handle.registerTimer(now)"
    scene = TimerScene(folder, body, "self.handle.registerTimer(expiry + 1) if key[0] == 'a' else None")
    task = scene.begin("a")
    scene.turns(task, 30)
    scene.more(task, "b")
    for _ in range(20):
        scene.pass_ms(50)
        task.turn()
    keys = [key for key, _ in scene.fired()]
    assert keys.count("b") == 1
    assert keys.count("a") > 30


def test_the_timers_of_a_key_are_listed_in_order_with_what_the_batch_changed(folder: Path) -> None:
    body = (
        "[self.handle.registerTimer(900_000_000 + n) for n in (3, 1, 2)]"
        "; self.handle.deleteTimer(900_000_001)"
        "; self.handle.registerTimer(900_000_000 + len(list(self.handle.listTimers())))"
        "; self.handle.registerTimer(5)"
    )
    fired = "assert list(self.handle.listTimers())[:3] == [5, 900_000_002, 900_000_003]"
    scene = TimerScene(folder, body, fired)
    scene.begin("a")
    assert scene.fired() == [("a", 5)]


def test_a_key_may_have_more_timers_than_one_field_lists(folder: Path) -> None:
    body = f"[self.handle.registerTimer({START_MS} + 1000 + n) for n in range(300)]"
    fired = f"assert next(self.handle.listTimers()) == expiry, expiry - {START_MS}"
    scene = TimerScene(folder, body, fired)
    task = scene.begin("a")
    scene.pass_ms(9_000)
    for _ in range(20):
        scene.turns(task)
    assert [expiry for _, expiry in scene.fired()] == [START_MS + 1000 + n for n in range(300)]
    assert scene.timers() == {}


def test_what_the_owner_before_had_set_fires_in_the_task_that_takes_over(folder: Path) -> None:
    scene = TimerScene(folder, at(5_000))
    task = scene.begin("a", "b")
    scene.pass_ms(6_000)
    late = scene.count("count.2")
    scene.turns(late)
    assert sorted(scene.fired()) == [("a", START_MS + 5_000), ("b", START_MS + 5_000)]
    scene.turns(task)
    assert len(scene.fired()) == 2


def test_whoever_sets_the_wall_clock_changes_nothing_for_a_timer_that_is_set(folder: Path) -> None:
    scene = TimerScene(folder, "self.handle.registerTimer(now + 5_000)")
    hour_us = 3_600_000_000
    ahead_us = [hour_us]
    scene.clock.wall_us = lambda: scene.clock.now_us() + ahead_us[0]  # type: ignore[method-assign]
    task = scene.begin("a")
    ahead_us[0] = -hour_us
    scene.pass_ms(4_000)
    scene.turns(task)
    assert scene.fired() == []
    scene.pass_ms(1_000)
    scene.turns(task)
    ((key, expiry),) = scene.fired()
    assert key == "a"
    assert expiry - START_MS - 3_600_000 in range(5_000, 5_500)


def test_a_timer_that_raises_fails_its_operator_with_key_and_expiry(folder: Path) -> None:
    scene = TimerScene(folder, at(0), "raise ValueError('this timer is poison')")
    scene.begin("a")
    (message,) = scene.store.call(Failures()).values()
    assert f"handleExpiredTimer raised for key tuple ('a',) at {START_MS}" in message
    assert "this timer is poison" in message


def test_timers_go_with_a_commit_that_takes_several(folder: Path) -> None:
    """Set and fired beside a value that no commit carries whole."""
    init = "self.kept = handle.getValueState('kept', 't string')"
    large = "self.kept.update(('x' * 1_500_000,))"
    scene = TimerScene(folder, f"{large}; {at(5_000)}; {at(6_000)}", large, init)
    task = scene.begin("a")
    assert len(scene.timers()) == 2
    scene.pass_ms(5_500)
    scene.turns(task)
    assert scene.fired() == [("a", START_MS + 5_000)]
    scene.pass_ms(5_500)
    scene.turns(scene.count("count.2"))
    assert scene.fired() == [("a", START_MS + 5_000), ("a", START_MS + 6_000)]
    assert scene.timers() == {}


def test_a_processor_of_the_pandas_form_has_timers_too(folder: Path) -> None:
    fired = "yield pd.DataFrame({'word': [key[0]], 'total': [expiry]}); return"
    scene = TimerScene(
        folder, f"{at(5_000)}; assert len(row) == 2", fired, "global pd; import pandas as pd", "Pandas"
    )
    task = scene.begin("a", "a")
    scene.pass_ms(6_000)
    scene.turns(task)
    assert scene.fired() == [("a", START_MS + 5_000)]
