"""Store contract: a fetch hands out timers that are due, until a commit has taken them away."""

from __future__ import annotations

import pytest

from penstock.store.port import Answer, DueTimer, Entry, Fetched, FetchedShard, Publish, TimerWrite
from scenes.store_scenario import NOW_US, SMALL, Scene, out

LATER_MS = 20
"""A shard whose timers have to wait is looked at again after so long."""


def timers(**due_ms: int | None) -> list[TimerWrite]:
    return [TimerWrite(name.encode(), due) for name, due in due_ms.items()]


def due(scene: Scene, now_ms: int, ready: str = "mid@w1", **fields: int) -> Fetched:
    return scene.fetch(ready, now_ms=now_ms, **{"timers_max": 100, **fields})


def names(fetched: Fetched) -> dict[str, list[bytes]]:
    return {one.shard: [timer.name for timer in one.timers] for one in fetched.shards}


def test_a_timer_is_handed_out_when_it_is_due_and_not_before(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=1_700_000_000_500))
    early = due(scene, 1_700_000_000_499)
    assert (early.shards, early.next_due_ms) == ((), 1_700_000_000_500)
    fired = due(scene, 1_700_000_000_500)
    timer = DueTimer(b"a", 1_700_000_000_500)
    assert fired.shards == (FetchedShard("mid/0", 1, 0, (), (timer,)),)
    assert fired.next_due_ms is None


def test_a_fetch_that_asks_for_no_timers_is_told_of_none(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5))
    assert scene.fetch("mid@w1") == Fetched((), control=False)
    scene.append("mid/0", 1, b"row")
    assert scene.fetch("mid@w1").shards == (FetchedShard("mid/0", 1, 0, (Entry(1, NOW_US, b"row"),)),)


def test_a_timer_is_there_until_a_commit_takes_it_away(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5, b=9))
    assert names(due(scene, 7)) == {"mid/0": [b"a"]}
    assert names(due(scene, 7)) == {"mid/0": [b"a"]}
    scene.commit("mid/0", timers=timers(a=None))
    assert (names(due(scene, 7)), due(scene, 7).next_due_ms) == ({}, 9)
    scene.commit("mid/0", timers=timers(b=None))
    assert due(scene, 99) == Fetched((), control=False)


def test_timers_come_in_the_order_in_which_they_are_due(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.commit("mid/0", timers=timers(late=9, b=4, a=4))
    scene.commit("mid/1", timers=timers(first=3))
    assert list(names(due(scene, 9)).items()) == [("mid/1", [b"first"]), ("mid/0", [b"a", b"b", b"late"])]


def test_setting_a_timer_again_moves_it(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5))
    scene.commit("mid/0", timers=timers(a=50))
    assert due(scene, 10) == Fetched((), control=False, next_due_ms=50)
    scene.commit("mid/0", timers=timers(a=8))
    assert names(due(scene, 10)) == {"mid/0": [b"a"]}


def test_of_one_name_the_last_word_in_a_commit_counts(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=[*timers(a=5, b=5), *timers(a=None), *timers(b=None), *timers(b=6)])
    assert due(scene, 9).shards[0].timers == (DueTimer(b"b", 6),)


def test_a_fetch_hands_out_so_many_timers_and_no_shard_has_more_than_a_quarter(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.commit("mid/0", timers=timers(a=1, b=2, c=3))
    scene.commit("mid/1", timers=timers(d=4, e=5))
    fetched = due(scene, 9, timers_max=8)
    assert names(fetched) == {"mid/0": [b"a", b"b"], "mid/1": [b"d", b"e"]}
    fetched = due(scene, 9, timers_max=3)
    assert names(fetched) == {"mid/0": [b"a"], "mid/1": [b"d"]}
    fetched = due(scene, 9, timers_max=1)
    assert (names(fetched), fetched.next_due_ms) == ({"mid/0": [b"a"]}, 9)


def test_a_fetch_hands_out_no_more_shards_than_asked_for(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.commit("mid/0", timers=timers(a=1))
    scene.commit("mid/1", timers=timers(b=2))
    fetched = due(scene, 9, shards_max=1)
    assert (names(fetched), fetched.next_due_ms) == ({"mid/0": [b"a"]}, 9)


def test_a_shard_with_entries_comes_once_with_its_timers(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5, b=50))
    scene.append("mid/0", 1, b"row")
    fetched = due(scene, 9)
    assert fetched.shards == (FetchedShard("mid/0", 1, 0, (Entry(1, NOW_US, b"row"),), (DueTimer(b"a", 5),)),)
    scene.commit("mid/0", entries=fetched.shards[0].entries, in_hand=True, timers=timers(a=None))
    assert due(scene, 9) == Fetched((), control=False, next_due_ms=50)


def test_timers_of_a_shard_in_hand_wait_a_little(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1, b"row")
    entries = scene.fetch_one("mid/0")
    scene.commit("mid/0", timers=timers(a=5))
    scene.append("mid/0", 2, b"row")
    scene.fetch("mid@w1")
    assert due(scene, 9) == Fetched((), control=False, next_due_ms=9 + LATER_MS)
    scene.commit("mid/0", entries=[*entries, Entry(2, NOW_US, b"row")], in_hand=True)
    assert names(due(scene, 9 + LATER_MS)) == {"mid/0": [b"a"]}


def test_a_shard_that_waits_on_the_list_has_its_timers_in_its_turn(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.commit("mid/1", timers=timers(a=5))
    scene.append("mid/0", 1, b"row")
    scene.append("mid/1", 1, b"row")
    fetched = due(scene, 9, bytes_max=1)
    assert (names(fetched), fetched.next_due_ms) == ({"mid/0": []}, 9 + LATER_MS)
    assert names(due(scene, 9)) == {"mid/1": [b"a"]}


def test_a_shard_over_its_outbox_bound_fires_nothing_until_there_is_room(scene: Scene) -> None:
    scene.set_up("mid/0")
    payload = b"x" * SMALL.entry_bytes_max
    many = SMALL.outbox_bytes_max // len(payload) + 1
    for _ in range(many):
        scene.commit("mid/0", out("far/0", payload))
    scene.commit("mid/0", timers=timers(a=5))
    assert due(scene, 9) == Fetched((), control=False, next_due_ms=9 + LATER_MS)
    scene.acknowledge("mid/0", "far/0", many)
    assert names(due(scene, 9 + LATER_MS)) == {"mid/0": [b"a"]}


def test_timers_go_with_a_claim_to_the_new_owners_list(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5))
    scene.claim("mid/0", ready="other")
    assert due(scene, 9) == Fetched((), control=False)
    fetched = due(scene, 9, "other")
    assert [(one.shard, one.epoch) for one in fetched.shards] == [("mid/0", 2)]


def test_an_old_owner_takes_no_timer_away(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5))
    late = scene.next_commit("mid/0", timers=timers(a=None))
    scene.claim("mid/0", ready="other")
    assert scene.store.call(late) is Answer.FENCED
    assert names(due(scene, 9, "other")) == {"mid/0": [b"a"]}


def test_a_commit_that_comes_twice_takes_its_timer_away_once(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5))
    fired = scene.next_commit("mid/0", timers=timers(a=None))
    scene.commit("mid/0", timers=timers(a=None))
    assert scene.store.call(fired) is Answer.DONE
    scene.commit("mid/0", timers=timers(a=6))
    assert scene.store.call(fired) is Answer.CONFLICT
    assert names(due(scene, 9)) == {"mid/0": [b"a"]}


def test_after_a_start_of_the_store_a_claim_brings_the_timers_back(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5))
    scene.open()
    scene.claim("mid/0")
    assert names(due(scene, 9)) == {"mid/0": [b"a"]}


def test_more_shards_than_one_fetch_looks_at_are_all_reached(scene: Scene) -> None:
    scene.set_up()
    shards = [f"mid/{n}" for n in range(150)]
    places = tuple((shard, "mid@w1", "s1") for shard in shards)
    workers, executors = (("w1", "node-1", "host-1", "uid-w1"),), (("mid@w1", "w1", 1),)
    assert scene.store.call(Publish("mid", 2, 1, workers, executors, places)) is Answer.OK
    for shard in shards:
        scene.create(shard)
        scene.claim(shard, version=2)
        scene.commit(shard, timers=timers(a=5))
    fired: set[str] = set()
    for _ in range(10):
        fetched = due(scene, 9, timers_max=400, shards_max=64)
        for one in fetched.shards:
            scene.commit(one.shard, timers=timers(a=None))
            fired.add(one.shard)
        if fetched.next_due_ms is None:
            break
        assert fetched.next_due_ms == 9
    assert fired == set(shards)


@pytest.mark.parametrize("now_ms", [0, 4])
def test_nothing_is_due_before_its_time(scene: Scene, now_ms: int) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=5))
    assert due(scene, now_ms).shards == ()
