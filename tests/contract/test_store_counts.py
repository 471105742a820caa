"""Store contract: what comes out is counted with the commits; a source that grew is handed out again."""

from __future__ import annotations

from msgspec.structs import replace

from backends.store_backends import Backend
from penstock.store.codec import decode_counts, encode_counts
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Fetch, Measure, Reopen
from scenes.move_scene import MoveScene
from scenes.store_scenario import Scene, out


def counts(scene: Scene, shard: str) -> dict[str, int]:
    known = scene.store.call(Measure((shard,)))[0]
    assert known is not None
    return decode_counts(known.counts)


def commit(scene: Scene, owned: OwnedShard, **counted: int) -> Answer:
    built = owned.commit(1, counted=counted, outputs=(out("sink", external=True),))
    answer: Answer = scene.store.call(built)
    owned.settle(built, answer)
    return answer


def test_totals_go_on_from_owner_to_owner(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert counts(scene, "mid/0") == {}
    owned = OwnedShard("mid/0", scene.claim("mid/0"))
    assert commit(scene, owned, words=3, totals=1) is Answer.OK
    assert commit(scene, owned, words=2) is Answer.OK
    assert commit(scene, owned) is Answer.OK
    assert counts(scene, "mid/0") == {"words": 5, "totals": 1}
    later = OwnedShard("mid/0", scene.claim("mid/0"))
    assert commit(scene, later, totals=4) is Answer.OK
    assert counts(scene, "mid/0") == {"words": 5, "totals": 5}


def test_what_was_not_committed_is_not_counted(scene: Scene) -> None:
    scene.set_up("mid/0")
    owned = OwnedShard("mid/0", scene.claim("mid/0"))
    built = owned.commit(1, counted={"words": 3})
    assert scene.store.call(replace(built, number=9)) is Answer.CONFLICT
    assert scene.store.call(built) is Answer.OK
    assert scene.store.call(built) is Answer.DONE
    assert counts(scene, "mid/0") == {"words": 3}
    scene.claim("mid/0")
    assert scene.store.call(owned.commit(1, counted={"words": 3})) is Answer.FENCED
    assert counts(scene, "mid/0") == {"words": 3}


def test_counts_and_what_is_within_stand_beside_each_other(scene: Scene) -> None:
    scene.set_up("mid/0")
    noted = replace(scene.next_commit("mid/0", rows=0), within=b"w", counts=encode_counts({"a": 1}))
    assert scene.store.call(noted) is Answer.OK
    claimed = scene.claim("mid/0")
    assert (claimed.within, decode_counts(claimed.counts)) == (b"w", {"a": 1})


def test_a_shard_that_moves_takes_its_counts_along_and_leaves_none(backend: Backend) -> None:
    moving = MoveScene(backend)
    owned = OwnedShard("mid/0", moving.a.claim("mid/0"))
    assert commit(moving.a, owned, totals=7) is Answer.OK
    moving.a.claim("mid/0")
    moving.move("mid/0")
    assert counts(moving.b, "mid/0") == {"totals": 7}


def test_a_source_that_was_read_to_its_end_is_handed_out_again(scene: Scene) -> None:
    scene.set_up("src/0")
    assert scene.store.call(Reopen("src/0")) is Answer.DONE
    ready = scene.owner("src/0").ready
    scene.store.call(Fetch(ready, 100, 10))
    owned = OwnedShard("src/0", scene.claim("src/0"))
    scene.store.call(Fetch(ready, 100, 10))
    end = owned.commit(1, position=b"end", finished=True, in_hand=True)
    assert scene.store.call(end) is Answer.OK
    known = scene.store.call(Measure(("src/0",)))[0]
    assert known is not None
    assert (known.finished, known.position) == (True, b"end")
    assert scene.store.call(Fetch(ready, 100, 10)).shards == ()
    assert scene.store.call(Reopen("src/0")) is Answer.OK
    assert scene.store.call(Reopen("src/0")) is Answer.DONE
    assert [one.shard for one in scene.store.call(Fetch(ready, 100, 10)).shards] == ["src/0"]
    assert scene.claim("src/0").position == b"end"
    assert scene.store.call(Fetch(ready, 100, 10)).shards != ()


def test_what_is_no_finished_source_is_not_reopened(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert scene.store.call(Reopen("mid/0")) is Answer.DONE
    assert scene.store.call(Reopen("src/9")) is Answer.UNKNOWN
