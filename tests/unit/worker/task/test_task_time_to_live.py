"""State with a time to live in a task: hidden as it expires, as Spark's is, and swept behind that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.store.port import StateSnapshot
from penstock_worker.state import encoding
from scenes.timer_scene import START_MS, TimerScene

SEEN = "self.handle.registerTimer({seen})"
"""What code saw comes out as the expiry of a timer in the past."""
VALUE = "self.kept = handle.getValueState('kept', 'n long', 10_000)"
LIST = "self.kept = handle.getListState('kept', 'n long', 10_000)"
MAP = "self.kept = handle.getMapState('kept', 'k string', 'n long', 10_000)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def words(seen: str, then: str) -> str:
    return f"{SEEN.format(seen=seen)}; {then}"


def state(scene: TimerScene) -> dict[tuple[bytes, bytes], bytes]:
    """What the shard holds, but for what its variables are declared as."""
    found: dict[tuple[bytes, bytes], bytes] = scene.store.call(StateSnapshot("count/0"))
    return {name: value for name, value in found.items() if name != (b"", b"s")}


def seen(scene: TimerScene) -> list[int]:
    return [number for _, number in scene.fired()]


def test_a_value_lives_for_so_long_after_its_last_update(folder: Path) -> None:
    body = words("int(self.kept.exists()) + 2 * (self.kept.get() or (0,))[0]", "self.kept.update((1,))")
    scene = TimerScene(folder, body, init=VALUE)
    task = scene.begin("a")
    scene.pass_ms(9_000)
    scene.more(task, "a")
    scene.pass_ms(9_000)
    scene.more(task, "a")
    scene.pass_ms(10_001)
    scene.more(task, "a")
    assert seen(scene) == [0, 3, 3, 0]


def test_a_value_that_is_not_touched_any_more_is_swept_with_its_timer(folder: Path) -> None:
    scene = TimerScene(folder, "self.kept.update((1,))", init=VALUE)
    task = scene.begin("a", "b", "c")
    assert len(scene.timers()) == 3
    assert len(state(scene)) == 3
    scene.pass_ms(11_100)
    scene.turns(task)
    assert state(scene) == {}
    assert scene.timers() == {}


def test_a_large_value_is_swept_whole(folder: Path) -> None:
    init = "self.kept = handle.getValueState('kept', 't string', 10_000)"
    scene = TimerScene(folder, "self.kept.update(('x' * 600_000,))", init=init)
    task = scene.begin("a")
    assert len(state(scene)) == 4
    scene.pass_ms(11_100)
    scene.turns(task)
    assert state(scene) == {}


def test_a_cleared_value_leaves_no_sweep(folder: Path) -> None:
    scene = TimerScene(folder, "self.kept.update((1,)); self.kept.clear()", init=VALUE)
    scene.begin("a")
    assert (state(scene), scene.timers()) == ({}, {})


def test_elements_of_a_list_live_each_for_so_long(folder: Path) -> None:
    body = words(
        "int(''.join(str(n) for n, in self.kept.get()) or 0) * 10 + int(self.kept.exists())",
        "self.kept.appendValue((len(list(self.kept.get())) + 1,))",
    )
    scene = TimerScene(folder, body, init=LIST)
    task = scene.begin("a")
    for passed_ms in (6_000, 6_000, 6_000, 30_000):
        scene.pass_ms(passed_ms)
        scene.more(task, "a")
    assert seen(scene) == [0, 11, 21, 21, 0]


def test_a_list_is_swept_behind_its_elements(folder: Path) -> None:
    body = "self.kept.appendList([(1,), (2,)]) if row.word == 'a' else self.kept.put([(3,)])"
    scene = TimerScene(folder, body, init=LIST)
    task = scene.begin("a", "b")
    scene.pass_ms(8_000)
    scene.more(task, "a")
    scene.pass_ms(5_000)
    scene.turns(task)
    assert len(state(scene)) == 1
    assert len(scene.timers()) == 1
    scene.pass_ms(8_000)
    scene.turns(task)
    assert (state(scene), scene.timers()) == ({}, {})


def test_entries_of_a_map_live_each_for_so_long_after_their_update(folder: Path) -> None:
    body = words(
        "100 * len(list(self.kept.keys())) + 10 * (self.kept.getValue(('x',)) or (0,))[0]"
        " + int(self.kept.exists()) + 4 * self.kept.containsKey(('x',))",
        "self.kept.updateValue((['x', 'y', 'y', 'y'][now // 6_000 % 4],), (5,))",
    )
    scene = TimerScene(folder, body, init=MAP)
    scene.pass_ms(24_000 - START_MS % 24_000)
    task = scene.begin("a")
    for _ in range(3):
        scene.pass_ms(6_000)
        scene.more(task, "a")
    assert seen(scene) == [0, 155, 101, 101]
    entries = {name for name in state(scene) if name[0]}
    assert {encoding.pack(("y",))} == {field for _, field in entries}
    scene.pass_ms(12_000)
    scene.turns(task)
    assert (state(scene), scene.timers()) == ({}, {})


def test_what_was_cleared_or_removed_is_not_missed_by_its_sweep(folder: Path) -> None:
    body = (
        "self.kept.updateValue(('x',), (1,)); self.kept.updateValue(('y',), (1,)); "
        "self.kept.removeKey(('x',)); self.kept.clear(); self.kept.updateValue(('z',), (1,))"
    )
    scene = TimerScene(folder, body, init=MAP)
    task = scene.begin("a")
    scene.pass_ms(11_100)
    scene.turns(task)
    assert (state(scene), scene.timers()) == ({}, {})


def test_the_owner_that_takes_over_sweeps(folder: Path) -> None:
    scene = TimerScene(folder, "self.kept.update((1,))", init=VALUE)
    scene.begin("a", "b")
    scene.pass_ms(11_100)
    scene.turns(scene.count("count.2"))
    assert (state(scene), scene.timers()) == ({}, {})


def test_a_million_keys_that_expire_are_swept_a_batch_at_a_time(folder: Path) -> None:
    fetched: list[Any] = []
    scene = TimerScene(folder, "self.kept.update((1,))", init=VALUE)
    task = scene.begin(*(f"key{n}" for n in range(2_000)))
    carry_out = scene.store.call

    def noting(call: Any) -> Any:
        answer = carry_out(call)
        fetched.extend(len(one.timers) for one in getattr(answer, "shards", ()) if one.timers)
        return answer

    scene.store.call = noting  # type: ignore[method-assign]
    scene.pass_ms(11_100)
    scene.turns(task)
    assert state(scene) == {}
    assert max(fetched) <= 256
