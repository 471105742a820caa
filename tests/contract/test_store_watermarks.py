"""Store contract: a watermark is told once all that came out before is in inboxes, and is true for ever."""

from __future__ import annotations

from typing import Any

import pytest

from backends.store_backends import Backend
from penstock.store.port import (
    Advance,
    Advanced,
    Advancing,
    Answer,
    DueTimer,
    Entry,
    Fetched,
    FetchedShard,
    Publish,
    ReadFacts,
    ReadWatermark,
    Retract,
    TakeFacts,
    TimerWrite,
    ToldOperators,
    Topologies,
    Watermark,
    WatermarkFact,
)
from penstock.store.port.moves import Activate, Depart, Discard, Drop, Thaw
from scenes.move_scene import MoveScene
from scenes.moved_shards import X, clear, departed, finish
from scenes.store_scenario import NOW_US, Scene, out

GENERATION = 1 << 32
"""By so much the versions of a store's next start are higher."""


def at(ms: int | None, *, idle: bool = False) -> Watermark:
    return Watermark(ms, idle)


def timers(**due_ms: int | None) -> list[TimerWrite]:
    return [TimerWrite(name.encode(), due) for name, due in due_ms.items()]


def facts(scene: Scene, operator: str = "src") -> list[WatermarkFact]:
    return scene.store.call(ReadFacts(operator))


def told(scene: Scene, shard: str = "src/0") -> Watermark | None:
    """What is known of one shard."""
    return next((one.watermark for one in facts(scene, shard.split("/")[0]) if one.shard == shard), None)


def version(scene: Scene, shard: str = "src/0") -> int:
    return next(one.version for one in facts(scene, shard.split("/")[0]) if one.shard == shard)


def known(scene: Scene, *producers: str) -> Watermark:
    return scene.store.call(ReadWatermark(producers or ("src",)))


def take(scene: Scene, shard: str, number: int, watermark: Watermark) -> Answer:
    return scene.store.call(TakeFacts(shard.split("/")[0], (WatermarkFact(shard, number, watermark),)))


def tell_all(scene: Scene, watermark: Watermark, *shards: str) -> None:
    for shard in shards or ("src/0", "src/1"):
        scene.commit(shard, watermark=watermark)


def advance(scene: Scene, *shards: str, producers: tuple[str, ...] = ("src",), **changes: int) -> Advanced:
    advancing = [
        Advancing(shard, scene.claims[shard].generation, scene.claims[shard].epoch)._replace(**changes)
        for shard in shards
    ]
    return scene.store.call(Advance(producers, tuple(advancing)))


def fetch(scene: Scene, ready: str = "mid@w1", **fields: Any) -> Fetched:
    return scene.fetch(ready, timers_max=100, producers=("src",), **fields)


def fired(fetched: Fetched) -> dict[str, list[bytes]]:
    return {one.shard: [timer.name for timer in one.timers] for one in fetched.shards}


# --- what a shard tells


def test_with_an_empty_outbox_it_is_told_at_once(scene: Scene) -> None:
    scene.set_up("src/0")
    assert scene.store.call(ToldOperators()) == []
    scene.commit("src/0", watermark=at(50))
    assert told(scene) == at(50)
    assert scene.store.call(ToldOperators()) == ["src"]


def test_a_commit_that_does_not_tell_tells_nothing(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", watermark=at(50), tells=False)
    assert facts(scene) == []
    assert scene.measure("src/0").watermark_ms == 50
    scene.commit("src/0")
    assert facts(scene) == []
    scene.commit("src/0", watermark=at(50))
    assert told(scene) == at(50)


def test_what_goes_straight_into_inboxes_is_nothing_to_wait_for(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.commit("src/0", out("mid/0"), watermark=at(50))
    assert told(scene) == at(50)


def test_what_waits_for_a_sink_is_nothing_to_wait_for(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", out("files", external=True), watermark=at(50))
    assert told(scene, "mid/0") == at(50)


def test_an_entry_for_another_store_is_waited_for_until_it_is_acknowledged(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("far/0"), out("far/0"), watermark=at(50))
    assert facts(scene) == []
    assert scene.measure("src/0").told is None
    scene.acknowledge("src/0", "far/0", 1)
    assert facts(scene) == []
    scene.acknowledge("src/0", "far/0", 2)
    assert told(scene) == at(50)
    assert scene.measure("src/0").told == at(50)


def test_all_targets_are_waited_for(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("far/0"), out("far/1"), out("far/2"), watermark=at(50))
    scene.acknowledge("src/0", "far/2", 1)
    scene.acknowledge("src/0", "far/0", 1)
    assert facts(scene) == []
    scene.acknowledge("src/0", "far/1", 1)
    assert told(scene) == at(50)


def test_an_acknowledgement_that_comes_twice_or_late_tells_nothing_more(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("far/0"), watermark=at(50))
    scene.acknowledge("src/0", "far/0", 1)
    before = facts(scene)
    scene.commit("src/0", out("far/0"), watermark=at(60))
    scene.acknowledge("src/0", "far/0", 1)
    scene.acknowledge("src/0", "far/0", 9)
    assert facts(scene) == before
    scene.acknowledge("src/0", "far/0", 2)
    scene.acknowledge("src/0", "far/0", 2)
    assert [one.watermark for one in facts(scene)] == [at(60)]
    assert version(scene) == before[0].version + 1


def test_an_entry_that_waits_for_room_here_is_taken_by_the_targets_commits(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 90)
    scene.commit("src/0", out("mid/0", b"x" * 20), watermark=at(50))
    assert facts(scene) == []
    entries = scene.fetch_one("mid/0")
    scene.commit("mid/0", entries=entries)
    assert told(scene) == at(50)


def test_an_entry_that_waits_here_is_drained_by_its_own_commits(scene: Scene, backend: Backend) -> None:
    scene.set_up("src/0", "mid/0")
    backend.set_status("mid/0", "frozen")
    scene.commit("src/0", out("mid/0"), watermark=at(50))
    backend.set_status("mid/0", "")
    assert facts(scene) == []
    scene.commit("src/0")
    assert told(scene) == at(50)


def test_what_drains_and_what_comes_out_in_one_commit_are_told_apart(scene: Scene, backend: Backend) -> None:
    scene.set_up("src/0", "mid/0")
    backend.set_status("mid/0", "frozen")
    scene.commit("src/0", out("mid/0"), watermark=at(50))
    backend.set_status("mid/0", "")
    scene.commit("src/0", out("far/0"), watermark=at(60))
    assert told(scene) == at(50)
    scene.acknowledge("src/0", "far/0", 1)
    assert told(scene) == at(60)


def test_an_entry_that_waits_for_a_shard_to_be_made_here_is_told_once_it_is(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("mid/0"), watermark=at(50))
    assert facts(scene) == []
    scene.create("mid/0")
    assert told(scene) == at(50)


def test_what_is_reached_meanwhile_is_told_next_though_the_outbox_is_never_empty(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("far/0"), watermark=at(1))
    for number in range(2, 30):
        scene.commit("src/0", out("far/0"), watermark=at(number))
        scene.acknowledge("src/0", "far/0", number - 1)
        waited = told(scene)
        assert waited is not None
        assert waited.ms in {number - 1, number - 2}
    scene.acknowledge("src/0", "far/0", 29)
    assert told(scene) == at(29)


def test_a_target_that_takes_nothing_holds_back_what_came_out_for_it_and_nothing_before(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("far/0"), watermark=at(10))
    scene.acknowledge("src/0", "far/0", 1)
    scene.commit("src/0", out("stuck/0"), out("far/0"), watermark=at(20))
    for number in range(2, 9):
        scene.commit("src/0", out("far/0"), watermark=at(20 + number))
        scene.acknowledge("src/0", "far/0", number)
    assert told(scene) == at(10)
    scene.acknowledge("src/0", "stuck/0", 1)
    scene.acknowledge("src/0", "far/0", 9)
    scene.acknowledge("src/0", "far/0", 8)
    assert told(scene) == at(28)


def test_timers_before_the_watermark_hold_it_back(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=40, b=49, c=50), watermark=at(50))
    assert facts(scene, "mid") == []
    scene.commit("mid/0", timers=timers(a=None), watermark=at(50))
    assert facts(scene, "mid") == []
    scene.commit("mid/0", timers=timers(b=None), watermark=at(50))
    assert told(scene, "mid/0") == at(50)
    scene.commit("mid/0", watermark=at(51))
    assert told(scene, "mid/0") == at(50)


def test_what_a_timer_puts_out_is_told_with_it(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=40), watermark=at(50))
    scene.commit("mid/0", out("far/0"), timers=timers(a=None), watermark=at(50))
    assert facts(scene, "mid") == []
    scene.acknowledge("mid/0", "far/0", 1)
    assert told(scene, "mid/0") == at(50)


def test_a_watermark_never_goes_back(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", watermark=at(50))
    before = facts(scene)
    scene.commit("src/0", watermark=at(40))
    scene.commit("src/0", watermark=at(None))
    assert facts(scene) == before
    assert scene.measure("src/0").watermark_ms == 50


def test_before_1970_time_goes_the_same_way(scene: Scene) -> None:
    scene.set_up("src/0", "src/1")
    tell_all(scene, at(-51))
    assert (told(scene), known(scene)) == (at(-51), at(-51))
    tell_all(scene, at(-50, idle=True))
    assert (told(scene), known(scene)) == (at(-50, idle=True), at(-50, idle=True))


def test_a_shard_may_be_idle_before_it_has_any_watermark(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", watermark=at(None, idle=True))
    assert told(scene) == at(None, idle=True)
    scene.commit("src/0", watermark=at(7))
    assert told(scene) == at(7)


def test_a_refused_commit_tells_nothing_and_one_that_comes_twice_nothing_more(scene: Scene) -> None:
    scene.set_up("src/0")
    old = scene.next_commit("src/0", watermark=at(90))
    scene.claim("src/0")
    assert scene.store.call(old) is Answer.FENCED
    commit = scene.next_commit("src/0", watermark=at(50))
    assert scene.send(commit, number=commit.number + 1) is Answer.CONFLICT
    assert facts(scene) == []
    assert scene.store.call(commit) is Answer.OK
    before = facts(scene)
    assert scene.send(commit, watermark=at(99)) is Answer.DONE
    assert facts(scene) == before == [WatermarkFact("src/0", before[0].version, at(50))]


def test_a_claim_tells_the_watermark(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    assert scene.claim("src/0").watermark_ms is None
    scene.commit("src/0", watermark=at(50), tells=False)
    assert scene.claim("src/0").watermark_ms == 50
    scene.commit("src/0", watermark=at(50, idle=True))
    assert scene.claim("src/0", worker="w1").watermark_ms == 50


def test_what_waits_is_told_after_another_owner_has_claimed_the_shard(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("far/0"), watermark=at(50))
    scene.claim("src/0")
    scene.acknowledge("src/0", "far/0", 1)
    assert told(scene) == at(50)


def test_the_measure_of_a_shard_has_its_watermark_and_its_next_timer(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=timers(a=60, b=70))
    measured = scene.measure("mid/0")
    assert (measured.watermark_ms, measured.next_timer_ms, measured.told) == (None, 60, None)
    scene.commit("mid/0", out("far/0"), watermark=at(50))
    measured = scene.measure("mid/0")
    assert (measured.watermark_ms, measured.next_timer_ms, measured.told) == (50, 60, None)
    scene.acknowledge("mid/0", "far/0", 1)
    scene.commit("mid/0", timers=timers(a=None, b=None), watermark=at(60))
    measured = scene.measure("mid/0")
    assert (measured.watermark_ms, measured.next_timer_ms, measured.told) == (60, None, at(60))


# --- what a stage knows


def test_a_stage_knows_nothing_before_every_shard_of_its_producers_has_told(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0", "mid/1")
    assert known(scene) == at(None)
    scene.commit("src/0", watermark=at(50))
    assert known(scene) == at(None)
    scene.commit("src/1", watermark=at(40))
    assert known(scene) == at(40)
    assert known(scene, "src", "mid") == at(None)
    tell_all(scene, at(30), "mid/0", "mid/1")
    assert known(scene, "src", "mid") == at(30)
    assert known(scene, "nobody") == at(None)


def test_facts_of_an_operator_without_a_schedule_say_nothing(scene: Scene) -> None:
    scene.open()
    assert take(scene, "src/0", 1, at(50)) is Answer.OK
    assert known(scene) == at(None)


def test_facts_about_shards_that_no_schedule_here_names_yet_stand_for_nobody(scene: Scene) -> None:
    """Another store may have a newer schedule, with more shards, of which facts come first."""
    scene.set_up("src/0", "src/1")
    take(scene, "src/2", 1, at(90))
    scene.commit("src/0", watermark=at(50))
    assert known(scene) == at(None)
    scene.commit("src/1", watermark=at(60))
    assert known(scene) == at(50)
    shards = tuple((f"src/{n}", "src@w1", "s1") for n in range(4))
    workers = tuple((w, "node-1", "host-1", f"uid-{w}") for w in scene.workers)
    grown = Publish("src", 2, 1, workers, (("src@w1", "w1", 1),), shards)
    assert scene.store.call(grown) is Answer.OK
    assert known(scene) == at(None)
    take(scene, "src/3", 1, at(40))
    assert known(scene) == at(40)


def test_facts_may_come_before_the_schedule(scene: Scene) -> None:
    scene.open()
    take(scene, "src/0", 1, at(50))
    take(scene, "src/1", 1, at(40))
    scene.publish("src")
    assert known(scene) == at(40)


def test_idle_shards_are_left_out_and_of_idle_ones_alone_the_greatest_counts(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0", "mid/1")
    scene.commit("src/0", watermark=at(10, idle=True))
    scene.commit("src/1", watermark=at(40))
    assert known(scene) == at(40)
    scene.commit("src/1", watermark=at(45, idle=True))
    assert known(scene) == at(45, idle=True)
    tell_all(scene, at(20), "mid/0", "mid/1")
    assert known(scene, "src", "mid") == at(20)
    scene.commit("src/0", watermark=at(12))
    assert known(scene) == at(12)


def test_of_a_keyed_stage_the_last_shard_counts_idle_or_not(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0", "mid/1")

    def behind() -> Watermark:
        return scene.store.call(ReadWatermark(("mid",), ("mid",)))

    for number, told_ms in enumerate((40, 30)):
        take(scene, f"mid/{number}", 1, at(told_ms, idle=True))
    assert behind() == at(30, idle=True)
    take(scene, "mid/0", 2, at(70))
    assert behind() == at(30)
    assert known(scene, "mid") == at(70)
    assert scene.store.call(ReadWatermark(("mid", "src"), ("mid",))) == at(None)
    tell_all(scene, at(20, idle=True))
    assert scene.store.call(ReadWatermark(("mid", "src"), ("mid",))) == at(30)
    take(scene, "mid/1", 2, at(60, idle=True))
    assert behind() == at(60)
    take(scene, "mid/0", 3, at(70, idle=True))
    assert scene.store.call(ReadWatermark(("src", "mid"), ("mid",))) == at(60, idle=True)


def test_where_all_are_idle_that_never_had_any_nothing_is_known(scene: Scene) -> None:
    scene.set_up("src/0", "src/1")
    tell_all(scene, at(None, idle=True))
    assert known(scene) == at(None, idle=True)


def test_a_shard_that_has_none_holds_back_those_before_1970_too(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0", "mid/1")
    scene.commit("src/0", watermark=at(-50))
    scene.commit("src/1", watermark=at(None))
    assert known(scene) == at(None)
    tell_all(scene, at(-70), "mid/0", "mid/1")
    assert known(scene, "src", "mid") == at(None)
    scene.commit("src/1", watermark=at(None, idle=True))
    assert known(scene) == at(-50)
    assert scene.store.call(ReadWatermark(("src",), ("src",))) == at(None)
    scene.commit("src/0", watermark=at(-40, idle=True))
    assert known(scene) == at(-40, idle=True)
    assert scene.store.call(ReadWatermark(("src",), ("src",))) == at(None, idle=True)


def test_of_two_facts_about_a_shard_the_newer_counts_in_whatever_order_they_come(scene: Scene) -> None:
    scene.set_up()
    for number, watermark in ((2, at(20)), (1, at(10)), (2, at(20)), (1, at(90))):
        assert take(scene, "src/0", number, watermark) is Answer.OK
        assert facts(scene) == [WatermarkFact("src/0", 2, at(20))]
    take(scene, "src/0", 3, at(15, idle=True))
    assert told(scene) == at(15, idle=True)
    take(scene, "src/1", 1, at(9))
    assert known(scene) == at(9)


def test_facts_come_by_the_hundred_and_none_is_no_fault(scene: Scene) -> None:
    scene.set_up()
    many = tuple(WatermarkFact(f"src/{n:04}", 1, at(n + 1)) for n in range(600))
    assert scene.store.call(TakeFacts("src", many)) is Answer.OK
    assert scene.store.call(TakeFacts("src", ())) is Answer.OK
    assert facts(scene) == sorted(many)


def test_a_shard_here_goes_on_above_what_an_earlier_time_of_its_store_told_others(scene: Scene) -> None:
    """A store that lost its last writes goes back; who knows more than it lets itself be told again."""
    scene.set_up("src/0", "src/1")
    tell_all(scene, at(50))
    lost = version(scene) + 5
    scene.open()
    scene.claim("src/0")
    take(scene, "src/0", lost, at(55))
    scene.commit("src/0", watermark=at(60))
    assert version(scene) > lost
    assert told(scene) == at(60)
    assert version(scene) > GENERATION


# --- shards without work


def test_a_shard_without_work_takes_its_inputs_watermark_and_tells_it(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0", "mid/1")
    tell_all(scene, at(50))
    assert advance(scene, "mid/0", "mid/1") == Advanced(at(50), (Answer.OK, Answer.OK))
    assert known(scene, "mid") == at(50)
    assert scene.measure("mid/0").watermark_ms == 50
    before = facts(scene, "mid")
    assert advance(scene, "mid/0", "mid/1") == Advanced(at(50), (Answer.OK, Answer.OK))
    assert facts(scene, "mid") == before


def test_nothing_is_advanced_to_what_is_not_known(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    assert advance(scene, "mid/0") == Advanced(at(None), (Answer.OK,))
    assert facts(scene, "mid") == []


def test_idleness_is_passed_on(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    tell_all(scene, at(None, idle=True))
    advance(scene, "mid/0")
    assert told(scene, "mid/0") == at(None, idle=True)
    tell_all(scene, at(50))
    advance(scene, "mid/0")
    assert told(scene, "mid/0") == at(50)


def test_a_shard_with_something_in_its_inbox_or_in_hand_is_not_advanced(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    tell_all(scene, at(50))
    scene.append("mid/0", 1)
    assert advance(scene, "mid/0").answers == (Answer.BUSY,)
    entries = scene.fetch_one("mid/0")
    assert advance(scene, "mid/0").answers == (Answer.BUSY,)
    assert scene.measure("mid/0").watermark_ms is None
    scene.commit("mid/0", entries=entries)
    assert advance(scene, "mid/0").answers == (Answer.OK,)
    assert told(scene, "mid/0") == at(50)


def test_an_advance_waits_for_timers_and_outputs_as_a_commit_does(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    scene.commit("mid/0", out("far/0"), timers=timers(a=40))
    tell_all(scene, at(50))
    advance(scene, "mid/0")
    scene.commit("mid/0", timers=timers(a=None), watermark=at(50))
    assert facts(scene, "mid") == []
    scene.acknowledge("mid/0", "far/0", 1)
    assert told(scene, "mid/0") == at(50)


def test_an_advance_by_who_does_not_own_the_shard_is_refused_alone(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0", "mid/1")
    tell_all(scene, at(50))
    old = Advancing("mid/0", scene.claims["mid/0"].generation, scene.claims["mid/0"].epoch)
    scene.claim("mid/0")
    other = Advancing("mid/1", scene.claims["mid/1"].generation, scene.claims["mid/1"].epoch)
    unknown = Advancing("mid/9", 1, 1)
    got = scene.store.call(Advance(("src",), (old, unknown, other, other._replace(generation=9))))
    assert got.answers == (Answer.FENCED, Answer.UNKNOWN, Answer.OK, Answer.FENCED)
    assert [one.shard for one in facts(scene, "mid")] == ["mid/1"]


# --- timers of event time


def test_timers_that_the_stages_watermark_has_passed_are_handed_out(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    scene.commit("mid/0", timers=timers(a=40, b=49, c=50))
    assert fetch(scene) == Fetched((), control=False, watermark=at(None))
    tell_all(scene, at(50))
    due = (DueTimer(b"a", 40), DueTimer(b"b", 49))
    shard = FetchedShard("mid/0", 1, 0, (), due, watermark=at(50))
    assert fetch(scene) == Fetched((shard,), control=False, watermark=at(50))
    assert fetch(scene) == Fetched((shard,), control=False, watermark=at(50))
    scene.commit("mid/0", timers=timers(a=None, b=None), watermark=at(50))
    assert fetch(scene) == Fetched((), control=False, watermark=at(50))


def test_of_a_shard_that_has_rows_its_own_watermark_counts(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    scene.commit("mid/0", timers=timers(a=30, b=40), watermark=at(31), tells=False)
    scene.append("mid/0", 1, b"row")
    tell_all(scene, at(50))
    fetched = fetch(scene)
    row = Entry(1, NOW_US, b"row")
    due = (DueTimer(b"a", 30),)
    assert fetched.shards == (FetchedShard("mid/0", 1, 0, (row,), due, placed=1, watermark=at(50)),)
    assert fetch(scene).shards == ()
    scene.commit("mid/0", entries=[row], timers=timers(a=None), watermark=at(50))
    assert fired(fetch(scene)) == {"mid/0": [b"b"]}


def test_behind_rows_that_wait_no_timer_fires(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0", "mid/1")
    scene.commit("mid/0", timers=timers(a=30))
    scene.commit("mid/1", timers=timers(b=40))
    scene.append("mid/0", 1, b"row")
    tell_all(scene, at(50))
    first = fetch(scene, shards_max=1)
    assert fired(first) == {"mid/0": []}
    assert fired(fetch(scene)) == {"mid/1": [b"b"]}
    scene.commit("mid/0", entries=first.shards[0].entries)
    assert fired(fetch(scene)) == {"mid/0": [b"a"], "mid/1": [b"b"]}


def test_a_shard_that_holds_its_own_later_watermark_fires_by_it(scene: Scene) -> None:
    """The stage's may be behind: a producer that was idle has come back."""
    scene.set_up("src/0", "src/1", "mid/0")
    scene.commit("mid/0", timers=timers(a=45, b=55), watermark=at(56), tells=False)
    tell_all(scene, at(46))
    assert fired(fetch(scene)) == {"mid/0": [b"a", b"b"]}


def test_more_that_is_due_is_said_to_be_fetched_at_once(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0", "mid/1")
    scene.commit("mid/0", timers=timers(a=1))
    scene.commit("mid/1", timers=timers(b=2))
    tell_all(scene, at(50))
    fetched = fetch(scene, shards_max=1)
    assert (fired(fetched), fetched.next_due_ms) == ({"mid/0": [b"a"]}, 0)
    assert fetch(scene).next_due_ms is None


def test_many_shards_that_have_gone_hide_none_that_is_due(scene: Scene, backend: Backend) -> None:
    """What says when to look may be wrong of all that are looked at in one fetch."""
    scene.set_up("src/0", "src/1", "mid/0")
    shards = [f"mid/{n}" for n in range(1000, 1140)]
    scene.store.call(
        Publish(
            operator="mid",
            version=2,
            term=1,
            workers=tuple((w, "node-1", "host-1", f"uid-{w}") for w in scene.workers),
            executors=(("mid@w1", "w1", 1),),
            shards=tuple((shard, "mid@w1", "s1") for shard in ("mid/0", *shards)),
        )
    )
    for shard in shards:
        scene.create(shard)
        scene.claim(shard, version=2)
        scene.commit(shard, timers=timers(a=10))
    scene.commit("mid/0", timers=timers(z=20))
    for shard in shards:
        backend.set_status(shard, "moved:s2")
    tell_all(scene, at(50))
    for _ in range(3):
        fetched = fetch(scene)
        if fetched.next_due_ms is None:
            break
    assert fired(fetched) == {"mid/0": [b"z"]}


# --- shards that move


def test_a_shard_that_moves_takes_all_along_and_goes_on_telling(moving: MoveScene) -> None:
    moving.a.commit(X, watermark=at(50))
    before = version(moving.a, X)
    moving.move(X)
    assert moving.b.claims[X].watermark_ms == 50
    assert facts(moving.b, "mid") == [WatermarkFact(X, before, at(50))]
    moving.b.commit(X, watermark=at(60))
    assert version(moving.b, X) > before
    moving.a.store.call(TakeFacts("mid", tuple(facts(moving.b, "mid"))))
    assert told(moving.a, X) == at(60)
    moving.move(X, "s1")
    moving.a.commit(X, watermark=at(70))
    assert told(moving.a, X) == at(70)
    assert version(moving.a, X) > version(moving.b, X)


def test_what_the_source_knew_of_it_stays_true_and_does_no_harm(moving: MoveScene) -> None:
    moving.a.commit(X, watermark=at(50))
    old = facts(moving.a, "mid")
    moving.move(X)
    moving.b.commit(X, watermark=at(60))
    moving.b.store.call(TakeFacts("mid", tuple(old)))
    assert told(moving.b, X) == at(60)
    assert told(moving.a, X) == at(50)


@pytest.mark.parametrize("chunks_max", [1, 16])
def test_with_entries_in_its_outbox_it_tells_where_they_leave_it(moving: MoveScene, chunks_max: int) -> None:
    moving.a.commit(X, out("far/0"), watermark=at(50))
    moving.a.commit(X, out("far/1"), watermark=at(60))
    moving.move(X, chunks_max=chunks_max)
    assert facts(moving.b, "mid") == []
    assert moving.b.acknowledge(X, "far/0", 1) is Answer.OK
    assert facts(moving.b, "mid") == []
    moving.b.acknowledge(X, "far/1", 1)
    assert told(moving.b, X) == at(60)
    assert facts(moving.a, "mid") == []


def test_late_acknowledgements_at_the_source_tell_nothing(moving: MoveScene) -> None:
    moving.a.commit(X, out("far/0"), watermark=at(50))
    move = departed(moving)
    moving.a.acknowledge(X, "far/0", 1)
    assert facts(moving.a, "mid") == []
    finish(moving, move)
    moving.a.acknowledge(X, "far/0", 1)
    assert facts(moving.a, "mid") == facts(moving.b, "mid") == []
    moving.b.acknowledge(X, "far/0", 1)
    assert told(moving.b, X) == at(50)


def test_entries_for_shards_of_the_new_home_are_told_when_it_is_taken_up(moving: MoveScene) -> None:
    moving.move("end/0")
    moving.a.commit(X, out("end/0"), watermark=at(50))
    move = departed(moving)
    assert facts(moving.b, "mid") == []
    assert moving.b.store.call(Activate(X, move)) is Answer.OK
    assert told(moving.b, X) == at(50)
    before = facts(moving.b, "mid")
    assert moving.b.store.call(Activate(X, move)) is Answer.DONE
    assert facts(moving.b, "mid") == before


def test_a_frozen_shard_tells_nothing_before_it_is_thawed(moving: MoveScene) -> None:
    moving.a.commit(X, out("far/0"), watermark=at(50))
    move = moving.freeze(X)
    moving.a.acknowledge(X, "far/0", 1)
    assert facts(moving.a, "mid") == []
    assert moving.a.store.call(Thaw(X, move)) is Answer.OK
    assert told(moving.a, X) == at(50)
    assert moving.a.store.call(Thaw(X, move)) is Answer.DONE
    assert [one.watermark for one in facts(moving.a, "mid")] == [at(50)]


def test_a_move_that_is_given_up_leaves_what_waits_waiting(moving: MoveScene) -> None:
    moving.a.commit(X, out("far/0"), out("far/1"), watermark=at(50))
    moving.a.commit(X, watermark=at(60))
    move = moving.freeze(X)
    moving.copy(X, move)
    moving.a.acknowledge(X, "far/0", 1)
    assert moving.a.store.call(Thaw(X, move)) is Answer.OK
    clear(moving.b.store, Discard(X, move))
    assert facts(moving.a, "mid") == facts(moving.b, "mid") == []
    moving.a.acknowledge(X, "far/1", 1)
    assert told(moving.a, X) == at(60)
    assert moving.b.store.call(Activate(X, move)) in {Answer.STALE, Answer.DONE}
    assert facts(moving.b, "mid") == []


def test_acknowledgements_that_come_after_the_rest_was_copied_come_again_at_the_new_home(
    moving: MoveScene,
) -> None:
    moving.a.commit(X, out("far/0"), watermark=at(50))
    move = moving.freeze(X)
    moving.copy(X, move)
    moving.a.acknowledge(X, "far/0", 1)
    assert moving.a.store.call(Depart(X, move)) is Answer.OK
    finish(moving, move)
    assert facts(moving.a, "mid") == facts(moving.b, "mid") == []
    assert moving.b.outbox(X, "far/0") == [(1, b"x")]
    moving.b.acknowledge(X, "far/0", 1)
    assert told(moving.b, X) == at(50)


def test_nothing_of_what_waits_to_be_told_is_left_where_a_shard_has_gone(moving: MoveScene) -> None:
    moving.a.commit(X, out("far/0"), watermark=at(50))
    moving.move(X)
    measured = moving.a.measure(X)
    assert (measured.watermark_ms, measured.told) == (None, None)
    moving.b.acknowledge(X, "far/0", 1)
    moving.b.commit(X, out("far/1"), watermark=at(60))
    moving.move(X, "s1")
    assert told(moving.a, X) == at(50)
    moving.a.acknowledge(X, "far/0", 1)
    assert told(moving.a, X) == at(50)
    moving.a.acknowledge(X, "far/1", 1)
    assert told(moving.a, X) == at(60)


def test_a_drop_in_pieces_and_acknowledgements_between_tell_nothing(moving: MoveScene) -> None:
    moving.a.commit(X, *[out(f"far/{n}") for n in range(12)], watermark=at(50))
    move = departed(moving)
    for number in range(12):
        moving.a.store.call(Drop(X, move))
        moving.a.acknowledge(X, f"far/{number}", 1)
    clear(moving.a.store, Drop(X, move))
    assert facts(moving.a, "mid") == []


def test_a_shard_whose_owner_works_while_it_is_copied_tells_on(moving: MoveScene) -> None:
    moving.a.commit(X, out("far/0"), watermark=at(50))
    moving.precopy(X)
    moving.a.acknowledge(X, "far/0", 1)
    assert told(moving.a, X) == at(50)
    moving.a.commit(X, watermark=at(60))
    assert told(moving.a, X) == at(60)
    moving.move(X)
    assert told(moving.b, X) == at(60)


def test_a_target_that_is_frozen_is_waited_for(moving: MoveScene) -> None:
    move = moving.freeze("end/0")
    moving.a.commit(X, out("end/0"), watermark=at(50))
    assert facts(moving.a, "mid") == []
    assert moving.a.store.call(Thaw("end/0", move)) is Answer.OK
    assert told(moving.a, X) == at(50)


def test_a_target_that_has_moved_is_delivered_to_before_it_is_told(moving: MoveScene) -> None:
    move = moving.freeze("end/0")
    moving.a.commit(X, out("end/0"), watermark=at(50))
    moving.copy("end/0", move)
    assert moving.a.store.call(Depart("end/0", move)) is Answer.OK
    finish(moving, move, "end/0")
    assert facts(moving.a, "mid") == []
    moving.deliver()
    assert told(moving.a, X) == at(50)


# --- the end


def test_a_retracted_topology_has_told_nothing_and_is_told_nothing(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    scene.commit("src/0", out("far/0"), watermark=at(50))
    scene.commit("src/1", watermark=at(50))
    while scene.store.call(Retract()):
        pass
    assert take(scene, "src/0", 9, at(90)) is Answer.UNKNOWN
    assert scene.acknowledge("src/0", "far/0", 1) is Answer.UNKNOWN
    assert advance(scene, "mid/0") == Advanced(at(None), (Answer.UNKNOWN,))
    assert (facts(scene), scene.store.call(ToldOperators()), known(scene)) == ([], [], at(None))


def test_what_facts_alone_left_in_a_store_is_found_and_retracted(scene: Scene) -> None:
    scene.open()
    take(scene, "src/0", 1, at(50))
    assert scene.store.call(Topologies()) == ["t1"]
    while scene.store.call(Retract()):
        pass
    assert scene.store.call(Topologies()) == []
    assert facts(scene) == []
