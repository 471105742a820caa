"""Store contract: what large state and rows need: a note of how far the work is, and answers in parts."""

from __future__ import annotations

from msgspec.structs import replace

from backends.store_backends import Backend
from penstock.store.port import LOAD_BYTES, Answer, Bounds, Load, ReadOutbox, Scan, StateWrite
from scenes.move_scene import MoveScene
from scenes.store_scenario import Scene, out

PART = bytes(128 << 10)


def within(scene: Scene, shard: str, note: bytes | None) -> Answer:
    commit = replace(scene.next_commit(shard, rows=0), within=note)
    answer = scene.store.call(commit)
    scene.numbers[shard] += answer is Answer.OK
    return answer


def test_what_is_noted_within_is_told_to_the_next_owner(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert scene.claim("mid/0").within == b""
    assert within(scene, "mid/0", b"\x00three \xffrows") is Answer.OK
    assert scene.claim("mid/0").within == b"\x00three \xffrows"


def test_a_commit_that_says_nothing_of_it_leaves_what_is_noted_within(scene: Scene) -> None:
    scene.set_up("mid/0")
    within(scene, "mid/0", b"a")
    scene.commit("mid/0", out("far/0"), state=[StateWrite(b"", b"f", b"1")])
    assert scene.claim("mid/0").within == b"a"
    within(scene, "mid/0", b"")
    assert scene.claim("mid/0").within == b""


def test_a_note_comes_with_state_and_outputs_or_not_at_all(scene: Scene) -> None:
    scene.set_up("mid/0", "end/0")
    commit = scene.next_commit(
        "mid/0", out("end/0"), out("sink", external=True), state=[StateWrite(b"c", b"f", b"1")]
    )
    noted = replace(commit, within=b"n", position=b"p")
    assert scene.store.call(replace(noted, number=7)) is Answer.CONFLICT
    assert scene.claim("mid/0").within == b""
    assert scene.send(noted) is Answer.FENCED
    epoch = scene.claims["mid/0"].epoch
    assert scene.send(noted, epoch=epoch) is Answer.OK
    claimed = scene.claim("mid/0")
    assert (claimed.within, claimed.position, claimed.external["sink"].issued) == (b"n", b"p", 1)
    assert scene.measure("end/0").inbox_entries == 1


def test_a_shard_that_moves_takes_its_note_along_and_leaves_none(backend: Backend) -> None:
    moving = MoveScene(backend)
    assert within(moving.a, "mid/0", b"half way") is Answer.OK
    move = moving.precopy("mid/0")
    moving.copy_round("mid/0", move)
    assert within(moving.a, "mid/0", b"further") is Answer.OK
    moving.rest("mid/0", move)
    assert moving.b.claim("mid/0", worker="w2", version=moving.version).within == b"further"
    assert within(moving.b, "mid/0", b"") is Answer.OK
    back = moving.precopy("mid/0", target="s1", source="s2")
    moving.copy_round("mid/0", back)
    moving.rest("mid/0", back)
    assert moving.a.claim("mid/0", version=moving.version).within == b""


def large(backend: Backend, fields: int, collection: bytes = b"") -> Scene:
    """A shard whose collection has so many fields of 128 KiB, "f00" and on."""
    scene = Scene(backend.open_store(bounds=Bounds())).set_up("mid/0")
    for number in range(fields):
        scene.commit("mid/0", state=[StateWrite(collection, b"f%02d" % number, PART)])
    return scene


def test_a_load_of_large_values_answers_the_first_of_them(backend: Backend) -> None:
    scene = large(backend, 40)
    claimed = scene.claims["mid/0"]
    left = [b"f%02d" % number for number in range(40)] + [b"none"]
    answers = []
    while left:
        load = Load("mid/0", claimed.generation, claimed.epoch, b"", tuple(left))
        answer = scene.store.call(load)
        assert isinstance(answer, list)
        assert answer
        assert sum(len(value or b"") for value in answer) <= LOAD_BYTES + 16 * len(PART)
        answers.append(len(answer))
        assert answer == [None if field == b"none" else PART for field in left[: len(answer)]]
        del left[: len(answer)]
    assert len(answers) > 2


def test_a_load_of_small_values_answers_all_of_them(backend: Backend) -> None:
    scene = Scene(backend.open_store(bounds=Bounds())).set_up("mid/0")
    writes = [StateWrite(b"", b"%d" % number, b"v%d" % number) for number in range(0, 5000, 2)]
    scene.commit("mid/0", state=writes)
    claimed = scene.claims["mid/0"]
    fields = tuple(b"%d" % number for number in range(5000))
    answer = scene.store.call(Load("mid/0", claimed.generation, claimed.epoch, b"", fields))
    assert answer == [None if number % 2 else b"v%d" % number for number in range(5000)]


def test_a_scan_of_large_values_comes_in_small_chunks_and_whole(backend: Backend) -> None:
    scene = large(backend, 60, b"c")
    claimed = scene.claims["mid/0"]
    found, cursor, chunks = {}, "0", 0
    while True:
        answer = scene.store.call(Scan("mid/0", claimed.generation, claimed.epoch, b"c", cursor, 512))
        assert isinstance(answer, tuple)
        cursor, fields = answer
        assert sum(len(value) for _, value in fields) <= LOAD_BYTES + 20 * len(PART)
        found.update(fields)
        chunks += 1
        if cursor == "0":
            break
    assert found == {b"f%02d" % number: PART for number in range(60)}
    assert chunks > 1


def test_an_outbox_is_read_on_from_behind_a_number(scene: Scene) -> None:
    scene.set_up("mid/0")
    for number in range(1, 6):
        scene.commit("mid/0", out("far/0", b"%d" % number), rows=0)
    read = scene.store.call(ReadOutbox("mid/0", "far/0", 2, after=2))
    assert [(number, payload) for number, _, _, payload in read] == [(3, b"3"), (4, b"4")]
    assert scene.store.call(ReadOutbox("mid/0", "far/0", 100, after=5)) == []
    scene.acknowledge("mid/0", "far/0", 3)
    assert [entry[0] for entry in scene.store.call(ReadOutbox("mid/0", "far/0", 100, after=1))] == [4, 5]
