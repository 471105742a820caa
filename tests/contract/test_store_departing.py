"""Whose a shard is until it departs for another store: who had it, or was to, whatever a schedule drops."""

from __future__ import annotations

from penstock.store.moving.progress import MoveStep
from penstock.store.port import Answer, Assignment, Claimed, Moved, StateSnapshot, StateWrite
from penstock.store.port.moves import Depart
from scenes.move_scene import MoveScene

X = "mid/0"


def test_a_shard_that_leaves_stays_with_its_executor_until_it_departs(moving: MoveScene) -> None:
    """Also when that is started anew: the schedule names another one already."""
    move = moving.precopy(X)
    assert X in moving.assigned("s1")["mid@w1"]
    assert X in moving.assigned("s2")["mid@w2"]
    assert isinstance(moving.a.try_claim(X, version=moving.version), Claimed)
    moving.copy_round(X, move)
    moving.rest(X, move)
    assert X not in moving.assigned("s1")["mid@w1"]
    moving.send_home(X, "s1")
    moving.send_home(X, "s2")
    assert X not in moving.assigned("s1")["mid@w1"]


def test_an_executor_that_is_dropped_as_its_shards_leave_keeps_them_until_they_depart(
    moving: MoveScene,
) -> None:
    """Its worker, too, which no schedule names any more."""
    moving.send_all_away()
    seen = moving.a.store.call(Assignment("w1"))
    assert (seen.uid, {e.version for e in seen.executors}) == ("uid-w1", {moving.version})
    assert {s: e for e, shards in moving.assigned("s1").items() for s in shards} == {
        shard: f"{shard.split('/')[0]}@w1" for shard in moving.homes
    }
    move = moving.precopy(X)
    moving.a.claim(X, version=moving.version)
    moving.copy_round(X, move)
    moving.a.commit(X, state=[StateWrite(b"", b"k", b"late")])
    moving.send_home(X, "s2")
    moving.a.claim(X, version=moving.version)
    before = moving.a.store.call(StateSnapshot(X))
    moving.rest(X, move)
    assert moving.b.store.call(StateSnapshot(X)) == before
    assert X not in moving.assigned("s1")["mid@w1"]
    assert moving.a.try_claim(X, version=moving.version) == Moved("s2")
    for shard in moving.homes:
        moving.move(shard)
    assert moving.assigned("s1") == {}
    moving.send_home(X, "s2")
    assert moving.a.store.call(Assignment("w1")).uid in {"", "uid-w1"}
    for _ in range(2):
        moving.send_home(X, "s2")
    assert moving.a.store.call(Assignment("w1")).uid == ""


def test_a_dropped_executors_enrolment_is_asked_for_as_any_others(moving: MoveScene) -> None:
    moving.send_all_away()
    moving.a.enroll("w1", attempt=2)
    assert moving.a.try_claim(X, version=moving.version) is Answer.STALE
    assert isinstance(moving.a.try_claim(X, version=moving.version, attempt=2), Claimed)
    assert moving.a.try_claim(X, worker="w2", version=moving.version) is Answer.STALE


def test_a_shard_that_is_sent_on_before_anybody_claimed_it_has_an_owner_all_the_same(
    moving: MoveScene,
) -> None:
    moving.send_home(X, "s2")
    while moving.move_once(X).step is not MoveStep.DONE:
        pass
    moving.send_home(X, "s1")
    assert X in moving.assigned("s2")["mid@w2"]
    back = moving.precopy(X, "s1", "s2")
    moving.b.claim(X, worker="w2", version=moving.version)
    moving.copy_round(X, back)
    moving.b.commit(X, state=[StateWrite(b"", b"k", b"v")])
    assert moving.move_once(X, source="s2", target="s1").step is MoveStep.DROP
    assert moving.a.store.call(StateSnapshot(X)) == {(b"", b"k"): b"v"}


def test_a_shard_that_is_sent_on_while_it_comes_is_its_planned_executors_until_it_departs(
    moving: MoveScene,
) -> None:
    move = moving.freeze(X)
    moving.copy(X, move)
    assert moving.a.store.call(Depart(X, move)) is Answer.OK
    moving.send_home(X, "s1")
    assert X in moving.assigned("s2")["mid@w2"]
    assert moving.move_once(X).step is MoveStep.DONE
    moving.send_home(X, "s1")
    assert isinstance(moving.b.try_claim(X, worker="w2", version=moving.version), Claimed)


def test_a_shard_that_stays_after_all_is_its_home_executors_only(moving: MoveScene) -> None:
    moving.send_home(X, "s2")
    assert isinstance(moving.a.try_claim(X, version=moving.version), Claimed)
    moving.send_home(X, "s1")
    executors = moving.a.store.call(Assignment("w1")).executors
    assert [e.shards.count(X) for e in executors if e.executor == "mid@w1"] == [1]
