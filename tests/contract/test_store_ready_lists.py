"""Store contract: a task waits on one ready list and is handed what has work, once, in order."""

from __future__ import annotations

from typing import Any

import pytest

from backends.store_backends import Backend
from penstock.store.port import Answer, Entry, FetchedShard, WaitReady, Wake
from scenes.store_scenario import NOW_US, SHARDS, Scene, out, payloads

_TIMED = {"now_ms": 1, "timers_max": 100}
FORMS = [
    pytest.param({}, id="plain"),
    pytest.param(_TIMED, id="timers"),
    pytest.param({**_TIMED, "producers": ("src",)}, id="event-time"),
]


def ready(scene: Scene, name: str) -> bool:
    return scene.store.call(WaitReady(name, 1))


# --- what puts a shard on the list


def test_a_placed_entry_makes_its_shard_ready_once(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert not ready(scene, "mid@w1")
    scene.append("mid/0", 1, b"a")
    scene.append("mid/0", 2, b"b")
    assert ready(scene, "mid@w1")
    fetched = scene.fetch("mid@w1")
    entries = (Entry(1, NOW_US, b"a"), Entry(2, NOW_US, b"b"))
    assert fetched.shards == (FetchedShard("mid/0", 1, 0, entries),)
    assert not fetched.control
    assert not ready(scene, "mid@w1")


def test_without_a_look_what_comes_onto_an_empty_list_is_heard_once(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    assert not ready(scene, "mid@w1")
    for shard in ("mid/0", "mid/1"):
        scene.append(shard, 1)
    assert scene.store.call(WaitReady("mid@w1", 2000, look=False))
    assert not scene.store.call(WaitReady("mid@w1", 1, look=False))
    assert scene.fetch_names("mid@w1") == ["mid/0", "mid/1"]
    assert scene.fetch("mid@w1").shards == ()
    scene.store.call(Wake("mid@w1"))
    assert scene.store.call(WaitReady("mid@w1", 2000, look=False))


def test_a_look_takes_what_has_rung(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert not ready(scene, "mid@w1")
    scene.append("mid/0", 1)
    assert ready(scene, "mid@w1")
    # The ring comes on a connection of its own, and may be behind the first look's answer, not the second's.
    assert ready(scene, "mid@w1")
    assert not scene.store.call(WaitReady("mid@w1", 1, look=False))


def test_an_output_of_a_commit_makes_its_target_ready(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.commit("src/0", out("mid/0", b"a"), again=True, now_us=77)
    assert scene.fetch_one("mid/0") == (Entry(1, 77, b"a"),)


def test_a_taken_shard_is_not_handed_out_twice(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    scene.fetch_one("mid/0")
    scene.append("mid/0", 2)
    assert not ready(scene, "mid@w1")
    assert scene.fetch("mid@w1").shards == ()


def test_a_commit_that_leaves_entries_puts_the_shard_at_the_end_of_the_list(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.append("mid/0", 1, b"a")
    scene.append("mid/0", 2, b"b")
    entries = scene.fetch_one("mid/0")
    scene.append("mid/1", 1)
    scene.commit("mid/0", entries=entries[:1])
    fetched = scene.fetch("mid@w1")
    assert [one.shard for one in fetched.shards] == ["mid/1", "mid/0"]
    assert payloads(fetched.shards[1].entries) == [b"b"]
    assert fetched.shards[1].offset == 1


def test_a_commit_that_empties_the_inbox_leaves_the_shard_to_the_next_entry(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    scene.commit("mid/0", entries=scene.fetch_one("mid/0"))
    assert not ready(scene, "mid@w1")
    scene.append("mid/0", 2, b"next")
    assert payloads(scene.fetch_one("mid/0")) == [b"next"]


def test_two_commits_after_one_fetch_put_the_shard_on_the_list_once(scene: Scene) -> None:
    scene.set_up("mid/0")
    for number in (1, 2, 3):
        scene.append("mid/0", number, b"%d" % number)
    entries = scene.fetch_one("mid/0")
    scene.commit("mid/0", entries=entries[:1])
    scene.commit("mid/0", entries=entries[:2][1:])
    assert payloads(scene.fetch_one("mid/0")) == [b"3"]
    assert scene.fetch("mid@w1").shards == ()


def test_a_commit_in_hand_puts_a_shard_with_more_entries_on_the_list_once(scene: Scene) -> None:
    scene.set_up("mid/0")
    for number in (1, 2, 3):
        scene.append("mid/0", number, b"%d" % number)
    entries = scene.fetch_one("mid/0")
    scene.commit("mid/0", entries=entries[:1], in_hand=True)
    assert payloads(scene.fetch_one("mid/0")) == [b"2", b"3"]
    assert scene.fetch("mid@w1").shards == ()


def test_entries_that_come_while_a_shard_is_in_hand_wait_for_its_commit(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1, b"1")
    entries = scene.fetch_one("mid/0")
    scene.append("mid/0", 2, b"2")
    assert scene.fetch("mid@w1").shards == ()
    scene.commit("mid/0", entries=entries, in_hand=True)
    assert payloads(scene.fetch_one("mid/0")) == [b"2"]
    assert scene.fetch("mid@w1").shards == ()


def test_a_commit_without_a_fetch_does_not_list_a_shard_twice(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    scene.commit("mid/0")
    scene.commit("mid/0")
    assert scene.fetch_names("mid@w1") == ["mid/0"]
    assert scene.fetch("mid@w1").shards == ()


def test_a_shard_that_nobody_owns_is_on_no_list(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    scene.append("mid/0", 1, b"early")
    scene.claim("mid/0")
    assert payloads(scene.fetch_one("mid/0")) == [b"early"]


# --- claims and lists


def test_a_claim_makes_a_shard_with_entries_ready(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.append("mid/0", 1)
    scene.fetch_one("mid/0")
    scene.claim("mid/0")
    scene.claim("mid/1")
    assert scene.fetch_names("mid@w1") == ["mid/0"]


def test_a_claim_takes_the_shard_off_the_old_owners_list(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.append("mid/0", 1)
    scene.append("mid/1", 1)
    scene.claim("mid/0", ready="mid@w1#2")
    assert scene.fetch_names("mid@w1") == ["mid/1"]
    fetched = scene.fetch("mid@w1#2")
    assert [(one.shard, one.epoch) for one in fetched.shards] == [("mid/0", 2)]


def test_a_shard_claimed_back_is_handed_out_once(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    scene.claim("mid/0", ready="other")
    scene.claim("mid/0")
    scene.claim("mid/0")
    assert scene.fetch_names("mid@w1") == ["mid/0"]
    assert scene.fetch_names("mid@w1") == []
    assert scene.fetch_names("other") == []


def test_an_entry_placed_after_a_claim_goes_to_the_new_owners_list(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.claim("mid/0", ready="other")
    scene.append("mid/0", 1)
    assert not ready(scene, "mid@w1")
    assert scene.fetch_names("other") == ["mid/0"]


def test_what_a_lost_fetch_took_comes_back_by_a_claim(scene: Scene) -> None:
    scene.set_up("mid/0", "src/0")
    scene.append("mid/0", 1, b"a")
    scene.fetch("mid@w1")
    scene.fetch("src@w1")
    scene.claim("mid/0")
    scene.claim("src/0")
    assert payloads(scene.fetch_one("mid/0")) == [b"a"]
    assert scene.fetch_names("src@w1") == ["src/0"]


def test_a_fenced_commit_puts_nothing_on_a_list(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    scene.append("mid/0", 2)
    late = scene.next_commit("mid/0", entries=scene.fetch_one("mid/0")[:1])
    scene.claim("mid/0", ready="other")
    scene.fetch("other")
    assert scene.store.call(late) is Answer.FENCED
    assert not ready(scene, "mid@w1")
    assert not ready(scene, "other")


# --- sources


def test_a_claimed_source_is_ready_with_nothing_to_read(scene: Scene) -> None:
    scene.set_up("src/0")
    assert scene.fetch("src@w1").shards == (FetchedShard("src/0", 1, 0, ()),)
    assert scene.fetch("src@w1").shards == ()


def test_a_source_comes_again_when_its_commit_says_so(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.fetch_one("src/0")
    scene.commit("src/0", again=True)
    scene.commit("src/0", again=True)
    assert scene.fetch_names("src@w1") == ["src/0"]
    scene.commit("src/0")
    assert scene.fetch_names("src@w1") == []


def test_a_finished_source_is_not_handed_out_again(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.fetch_one("src/0")
    scene.commit("src/0", again=True, finished=True)
    assert not ready(scene, "src@w1")
    scene.claim("src/0")
    assert not ready(scene, "src@w1")


# --- budgets


def test_a_fetch_takes_no_more_shards_than_asked(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.append("mid/0", 1)
    scene.append("mid/1", 1)
    assert scene.fetch_names("mid@w1", shards_max=1) == ["mid/0"]
    assert scene.fetch_names("mid@w1", shards_max=1) == ["mid/1"]


def test_a_fetch_stays_within_its_bytes_and_leaves_the_rest_on_the_list(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    for number in (1, 2, 3):
        scene.append("mid/0", number, b"a" * 10)
    scene.append("mid/1", 1, b"b" * 10)
    fetched = scene.fetch("mid@w1", bytes_max=20)
    assert [(one.shard, len(one.entries)) for one in fetched.shards] == [("mid/0", 2)]
    assert [(one.shard, len(one.entries)) for one in scene.fetch("mid@w1").shards] == [("mid/1", 1)]


def test_a_fetch_reads_one_entry_of_a_shard_whatever_its_size(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.append("mid/0", 1, b"a" * 90)
    scene.append("mid/0", 2, b"b")
    scene.append("mid/1", 1, b"c" * 90)
    fetched = scene.fetch("mid@w1", bytes_max=10)
    assert [(one.shard, len(one.entries)) for one in fetched.shards] == [("mid/0", 1)]
    fetched = scene.fetch("mid@w1", bytes_max=10)
    assert [(one.shard, len(one.entries)) for one in fetched.shards] == [("mid/1", 1)]


def test_several_shards_share_a_fetchs_bytes(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.append("mid/0", 1, b"a" * 10)
    for number in (1, 2, 3):
        scene.append("mid/1", number, b"b" * 10)
    fetched = scene.fetch("mid@w1", bytes_max=40)
    assert [(one.shard, len(one.entries)) for one in fetched.shards] == [("mid/0", 1), ("mid/1", 3)]


@pytest.mark.parametrize("fields", FORMS)
def test_an_inbox_that_does_not_fit_beside_another_comes_first_in_the_next_fetch(
    scene: Scene, fields: dict[str, Any]
) -> None:
    scene.shards = (*SHARDS, "mid/2")
    scene.set_up("mid/0", "mid/1", "mid/2")
    for shard, entries in (("mid/0", 1), ("mid/1", 3), ("mid/2", 1)):
        scene.fill(shard, *[10] * entries)
    fetched = scene.fetch("mid@w1", bytes_max=30, **fields)
    assert [(one.shard, len(one.entries)) for one in fetched.shards] == [("mid/0", 1)]
    fetched = scene.fetch("mid@w1", bytes_max=20, **fields)
    assert [(one.shard, len(one.entries)) for one in fetched.shards] == [("mid/1", 2)]
    fetched = scene.fetch("mid@w1", bytes_max=20, **fields)
    assert [(one.shard, len(one.entries)) for one in fetched.shards] == [("mid/2", 1)]
    assert scene.fetch("mid@w1", **fields).shards == ()


@pytest.mark.parametrize("fields", FORMS)
@pytest.mark.parametrize("shards", [("mid/0", "mid/1"), ("mid/0", "mid/1", "mid/2")], ids=["two", "three"])
@pytest.mark.parametrize("bytes_max", [20, 30, 40, 50])
def test_no_shard_is_starved_by_others_whose_inboxes_fill_up_again(
    scene: Scene, shards: tuple[str, ...], bytes_max: int, fields: dict[str, Any]
) -> None:
    """Before what a fetch took is committed as much has come."""
    scene.shards = (*SHARDS, "mid/2")
    scene.set_up(*shards)
    worked = dict.fromkeys(shards, 0)
    for shard in shards:
        scene.fill(shard, 10, 10)
    turns = 24
    for _ in range(turns):
        fetched = scene.fetch("mid@w1", bytes_max=bytes_max, **fields).shards
        for one in fetched:
            scene.fill(one.shard, *[10] * len(one.entries))
        for one in fetched:
            scene.commit(one.shard, entries=one.entries)
            worked[one.shard] += len(one.entries)
    assert max(worked.values()) - min(worked.values()) <= 2, worked
    assert sum(worked.values()) >= turns * 2


def test_an_empty_fetch_answers_nothing(scene: Scene) -> None:
    scene.set_up("mid/0")
    fetched = scene.fetch("mid@w1")
    assert (fetched.shards, fetched.control) == ((), False)
    assert scene.fetch("never-heard-of").shards == ()


# --- held


@pytest.mark.parametrize("sizes", [[30] * 4, [1] * 5], ids=["bytes", "entries"])
def test_a_shard_with_an_outbox_over_its_bound_is_held_until_it_is_trimmed(
    scene: Scene, sizes: list[int]
) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1, b"a")
    scene.append("mid/0", 2, b"b")
    entries = scene.fetch_one("mid/0")
    scene.commit("mid/0", *[out("far/0", b"o" * size) for size in sizes], entries=entries[:1])
    assert scene.fetch("mid@w1").shards == ()
    assert not ready(scene, "mid@w1")
    scene.append("mid/0", 3, b"c")
    assert not ready(scene, "mid@w1")
    assert scene.acknowledge("mid/0", "far/0", 1) is Answer.OK
    assert payloads(scene.fetch_one("mid/0")) == [b"b", b"c"]


def test_an_outbox_at_its_bound_holds_nobody(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.fetch_one("src/0")
    scene.commit("src/0", *[out("far/0", b"o" * 25)] * 4, again=True)
    assert scene.fetch_names("src@w1") == ["src/0"]


def test_a_held_source_comes_back_when_its_outbox_is_trimmed(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.fetch_one("src/0")
    scene.commit("src/0", *[out("files", b"o", external=True)] * 6, again=True)
    assert scene.fetch("src@w1").shards == ()
    scene.acknowledge("src/0", "files", 1)
    assert scene.fetch("src@w1").shards == ()
    scene.acknowledge("src/0", "files", 2)
    assert scene.fetch_names("src@w1") == ["src/0"]
    scene.acknowledge("src/0", "files", 6)
    assert scene.fetch("src@w1").shards == ()


def test_a_held_shard_that_is_claimed_is_held_again(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.fetch_one("src/0")
    scene.commit("src/0", *[out("far/0")] * 5, again=True)
    scene.fetch("src@w1")
    scene.claim("src/0", ready="other")
    assert scene.fetch("other").shards == ()
    scene.acknowledge("src/0", "far/0", 5)
    assert not ready(scene, "src@w1")
    assert scene.fetch_names("other") == ["src/0"]


def test_a_held_shard_without_entries_is_not_woken_for_nothing(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    scene.append("mid/0", 2)
    entries = scene.fetch_one("mid/0")
    scene.commit("mid/0", *[out("far/0")] * 5, entries=entries[:1])
    assert scene.fetch("mid@w1").shards == ()
    scene.commit("mid/0", entries=entries[1:])
    scene.acknowledge("mid/0", "far/0", 5)
    assert not ready(scene, "mid@w1")
    scene.append("mid/0", 3, b"next")
    assert payloads(scene.fetch_one("mid/0")) == [b"next"]


def test_a_second_commit_puts_a_listed_shard_at_the_end_or_takes_it_off(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    for number in (1, 2, 3):
        scene.append("mid/0", number)
    entries = scene.fetch_one("mid/0")
    scene.commit("mid/0", entries=entries[:1])
    scene.append("mid/1", 1)
    scene.commit("mid/0", entries=entries[1:2])
    assert scene.fetch_names("mid@w1", shards_max=1) == ["mid/1"]
    scene.commit("mid/0", entries=entries[2:])
    assert not ready(scene, "mid@w1")


def test_trimming_does_not_list_a_shard_that_was_not_held(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.fetch_one("src/0")
    scene.commit("src/0", *[out("far/0")] * 5, again=True)
    scene.acknowledge("src/0", "far/0", 5)
    assert scene.fetch_names("src@w1") == ["src/0"]
    assert scene.fetch("src@w1").shards == ()


def test_a_held_shard_does_not_use_up_a_fetch(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.append("mid/0", 1)
    scene.append("mid/0", 2)
    entries = scene.fetch_one("mid/0")
    scene.commit("mid/0", *[out("far/0")] * 5, entries=entries[:1])
    scene.append("mid/1", 1)
    assert scene.fetch_names("mid@w1", shards_max=1) == ["mid/1"]


def test_a_frozen_shard_is_not_handed_out(scene: Scene, backend: Backend) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    backend.set_status("mid/0", "frozen")
    assert scene.fetch("mid@w1").shards == ()
