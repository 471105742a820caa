"""Store contract: who may own a shard, and what a new owner starts from."""

from __future__ import annotations

from backends.store_backends import Backend
from penstock.store.port import (
    Answer,
    Claim,
    Claimed,
    Create,
    Enroll,
    ExternalCursor,
    Load,
    Moved,
    Owner,
    Publish,
    Scan,
    StateWrite,
)
from scenes.store_scenario import Scene, out, payloads


def test_without_a_record_every_call_answers_unknown(scene: Scene) -> None:
    scene.set_up("mid/0")
    claimed = scene.claims["mid/0"]
    generation, epoch = claimed.generation, claimed.epoch
    assert scene.try_claim("mid/1") is Answer.UNKNOWN
    assert scene.append("mid/1", 1) is Answer.UNKNOWN
    assert scene.acknowledge("mid/1", "end/0", 1) is Answer.UNKNOWN
    assert scene.send(scene.next_commit("mid/0"), shard="mid/1") is Answer.UNKNOWN
    assert scene.store.call(Load("mid/1", generation, epoch, b"", (b"f",))) is Answer.UNKNOWN
    assert scene.store.call(Scan("mid/1", generation, epoch, b"c", "0", 10)) is Answer.UNKNOWN


def test_each_claim_raises_the_epoch_by_one(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    assert [scene.claim("mid/0").epoch for _ in range(3)] == [1, 2, 3]


def test_epochs_go_on_across_owners_and_generations(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.publish("mid", version=2, worker="w2")
    scene.open()
    assert scene.claim("mid/0", worker="w2", version=2).epoch == 2


def test_a_first_owner_starts_from_nothing(scene: Scene) -> None:
    scene.set_up()
    scene.store.call(Create("src/0", table_version=3, position=b"line 0", source=True))
    assert scene.claim("src/0") == Claimed(
        epoch=1,
        generation=1,
        commit=0,
        offset=0,
        position=b"line 0",
        table_version=3,
        external={},
        finished=False,
    )


def test_a_new_owner_starts_where_the_last_commit_stood(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1, b"one")
    scene.append("mid/0", 2, b"two")
    entries = scene.fetch_one("mid/0")
    files = [out("files", b"a", external=True), out("files", b"b", external=True)]
    scene.commit("mid/0", out("end/0"), *files, entries=entries[:1])
    scene.acknowledge("mid/0", "files", 1, b"byte 17")
    assert scene.claim("mid/0") == Claimed(
        epoch=2,
        generation=1,
        commit=1,
        offset=1,
        position=b"",
        table_version=0,
        external={"files": ExternalCursor(2, 1, b"byte 17")},
        finished=False,
    )
    assert payloads(scene.fetch_one("mid/0")) == [b"two"]


def test_a_new_owner_learns_that_a_source_is_finished(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", position=b"end", finished=True)
    claimed = scene.claim("src/0")
    assert (claimed.finished, claimed.position) == (True, b"end")


def test_an_executor_that_the_map_does_not_name_is_stale(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    assert scene.try_claim("mid/0", worker="w2") is Answer.STALE
    scene.publish("mid", version=2, worker="w2")
    assert scene.try_claim("mid/0", worker="w1", version=2) is Answer.STALE
    assert isinstance(scene.try_claim("mid/0", worker="w2", version=2), Claimed)


def test_a_shard_that_no_schedule_names_is_stale(scene: Scene) -> None:
    scene.open()
    scene.enroll("w1")
    scene.create("mid/0")
    assert scene.try_claim("mid/0") is Answer.STALE


def test_a_claim_under_an_older_schedule_is_stale(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    scene.publish("mid", version=2)
    assert scene.try_claim("mid/0", version=1) is Answer.STALE
    assert isinstance(scene.try_claim("mid/0", version=2), Claimed)


def test_a_schedule_of_another_operator_does_not_make_a_claim_stale(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    scene.publish("end", version=9)
    assert isinstance(scene.try_claim("mid/0", version=1), Claimed)


def test_an_earlier_start_of_the_worker_is_stale(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    scene.enroll("w1", attempt=2)
    assert scene.try_claim("mid/0", attempt=1) is Answer.STALE
    assert isinstance(scene.try_claim("mid/0", attempt=2), Claimed)


def test_a_worker_that_never_enrolled_is_stale(scene: Scene) -> None:
    scene.open()
    scene.publish("mid")
    scene.create("mid/0")
    assert scene.try_claim("mid/0") is Answer.STALE


def test_a_worker_whose_uid_the_map_replaced_is_stale(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    assert scene.publish("mid", version=2, uid="new-uid") is Answer.OK
    assert scene.try_claim("mid/0", version=2) is Answer.STALE
    assert scene.store.call(Enroll("w1", "new-uid", 2000, 1)) is Answer.OK
    owner = Owner("mid@w1", "new-uid/2000/1", "mid@w1")
    assert isinstance(scene.store.call(Claim("mid/0", owner, 2)), Claimed)


def test_a_shard_that_the_schedule_dropped_is_stale(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    scene.store.call(Publish("mid", 2, 1, (), (), ()))
    assert scene.try_claim("mid/0", version=2) is Answer.STALE


def test_a_stale_claim_changes_nothing(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    assert scene.try_claim("mid/0", worker="w2") is Answer.STALE
    assert scene.measure("mid/0").epoch == 1
    scene.commit("mid/0", entries=scene.fetch_one("mid/0"))


def test_a_late_owner_is_fenced(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    late = scene.next_commit("mid/0", out("end/0"), entries=scene.fetch_one("mid/0"))
    scene.claim("mid/0")
    before = scene.measure("mid/0")
    assert scene.store.call(late) is Answer.FENCED
    assert scene.measure("mid/0") == before
    assert scene.outbox("mid/0", "end/0") == []


def test_an_owner_of_an_earlier_generation_is_fenced(scene: Scene) -> None:
    claimed = scene.set_up("mid/0").claims["mid/0"]
    late = scene.next_commit("mid/0", out("end/0"))
    scene.open()
    assert scene.store.call(late) is Answer.FENCED
    load = Load("mid/0", claimed.generation, claimed.epoch, b"", (b"f",))
    assert scene.store.call(load) is Answer.FENCED
    scene.claim("mid/0")
    scene.commit("mid/0")


def test_a_late_owner_reads_no_state(scene: Scene) -> None:
    late = scene.set_up("mid/0").claims["mid/0"]
    scene.commit("mid/0", state=[StateWrite(b"", b"f", b"1")])
    scene.claim("mid/0")
    assert scene.store.call(Load("mid/0", late.generation, late.epoch, b"", (b"f",))) is Answer.FENCED
    assert scene.store.call(Scan("mid/0", late.generation, late.epoch, b"", "0", 10)) is Answer.FENCED


def test_the_owners_executor_is_counted(scene: Scene) -> None:
    scene.set_up(unclaimed=["mid/0"])
    assert scene.measure("mid/0").executor == ""
    scene.claim("mid/0")
    assert scene.measure("mid/0").executor == "mid@w1"


def test_a_frozen_shard_takes_no_claim_no_commit_and_no_entry(scene: Scene, backend: Backend) -> None:
    scene.set_up("mid/0")
    commit = scene.next_commit("mid/0")
    backend.set_status("mid/0", "frozen")
    assert scene.try_claim("mid/0") is Answer.MOVING
    assert scene.store.call(commit) is Answer.FENCED
    assert scene.append("mid/0", 1) is Answer.MOVING
    backend.set_status("mid/0", "")
    assert scene.store.call(commit) is Answer.OK
    assert scene.append("mid/0", 1) is Answer.OK


def test_a_moved_shard_names_its_new_store(scene: Scene, backend: Backend) -> None:
    scene.set_up("mid/0")
    commit = scene.next_commit("mid/0")
    backend.set_status("mid/0", "moved:s2")
    assert scene.try_claim("mid/0") == Moved("s2")
    assert scene.store.call(commit) is Answer.FENCED
    assert scene.append("mid/0", 1) == Moved("s2")
    assert scene.create("mid/0") is Answer.EXISTS
