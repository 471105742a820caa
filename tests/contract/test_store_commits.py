"""Store contract: a commit is a compare-and-swap that is applied whole, once, or not at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.store.port import (
    Answer,
    Append,
    Create,
    Load,
    Measure,
    Output,
    Scan,
    StateSnapshot,
    StateWrite,
    TimerWrite,
)
from scenes.store_scenario import SMALL, Scene, out, payloads


def put(field: bytes, value: bytes | None, collection: bytes = b"") -> StateWrite:
    return StateWrite(collection, field, value)


def snapshot(scene: Scene, shard: str = "mid/0") -> dict[tuple[bytes, bytes], bytes]:
    return scene.store.call(StateSnapshot(shard))


def load(scene: Scene, *fields: bytes, collection: bytes = b"") -> object:
    claimed = scene.claims["mid/0"]
    return scene.store.call(Load("mid/0", claimed.generation, claimed.epoch, collection, fields))


def scan(scene: Scene, collection: bytes, count: int) -> dict[bytes, bytes]:
    claimed = scene.claims["mid/0"]
    found: dict[bytes, bytes] = {}
    cursor = "0"
    while True:
        answer = scene.store.call(Scan("mid/0", claimed.generation, claimed.epoch, collection, cursor, count))
        assert not isinstance(answer, Answer)
        cursor, items = answer
        found.update(items)
        if cursor == "0":
            return found


# --- numbers


def test_commits_are_numbered_one_by_one(scene: Scene) -> None:
    scene.set_up("mid/0")
    for _ in range(3):
        scene.commit("mid/0")
    assert scene.measure("mid/0").commit == 3


def test_the_same_commit_again_is_done_and_applied_once(scene: Scene) -> None:
    scene.set_up("mid/0", "end/0")
    scene.append("mid/0", 1, b"abc", rows=2)
    entries = scene.fetch_one("mid/0")
    commit = scene.next_commit(
        "mid/0", out("end/0", b"o"), out("far/0", b"o"), entries=entries, rows=2, state=[put(b"f", b"1")]
    )
    assert scene.store.call(commit) is Answer.OK
    before = scene.measure("mid/0"), scene.measure("end/0")
    assert scene.store.call(commit) is Answer.DONE
    assert scene.store.call(commit) is Answer.DONE
    assert (scene.measure("mid/0"), scene.measure("end/0")) == before
    assert scene.outbox("mid/0", "far/0") == [(1, b"o")]


def test_a_commit_number_out_of_line_is_a_conflict(scene: Scene) -> None:
    scene.set_up("mid/0")
    for _ in range(3):
        scene.commit("mid/0")
    commit = scene.next_commit("mid/0", out("far/0"), state=[put(b"f", b"1")])
    assert scene.send(commit, number=2) is Answer.CONFLICT
    assert scene.send(commit, number=5) is Answer.CONFLICT
    assert snapshot(scene) == {}
    assert scene.outbox("mid/0", "far/0") == []


def test_another_table_version_is_a_conflict(scene: Scene) -> None:
    scene.set_up()
    scene.store.call(Create("mid/0", table_version=4))
    assert scene.claim("mid/0").table_version == 4
    commit = scene.next_commit("mid/0", state=[put(b"f", b"1")])
    assert scene.send(commit, table_version=3) is Answer.CONFLICT
    assert snapshot(scene) == {}
    assert scene.store.call(commit) is Answer.OK


def test_a_fenced_commit_is_fenced_whatever_its_number(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0")
    commit = scene.next_commit("mid/0")
    scene.claim("mid/0")
    assert [scene.send(commit, number=n) for n in (1, 2, 3)] == [Answer.FENCED] * 3


def test_numbers_go_on_under_the_next_owner(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", out("far/0", b"a"))
    scene.claim("mid/0")
    scene.commit("mid/0", out("far/0", b"b"))
    assert scene.measure("mid/0").commit == 2
    assert scene.outbox("mid/0", "far/0") == [(1, b"a"), (2, b"b")]


# --- inbox, offset, position, counters


def test_a_commit_trims_what_was_worked_on(scene: Scene) -> None:
    scene.set_up("mid/0")
    for number, payload in enumerate((b"a", b"bb", b"ccc"), 1):
        scene.append("mid/0", number, payload, rows=number)
    entries = scene.fetch_one("mid/0")
    assert [entry.number for entry in entries] == [1, 2, 3]
    scene.commit("mid/0", entries=entries[:2], rows=3)
    counters = scene.measure("mid/0")
    assert (counters.inbox_entries, counters.inbox_bytes) == (1, 3)
    assert (counters.arrived_rows, counters.completed_rows) == (6, 3)
    assert payloads(scene.fetch_one("mid/0")) == [b"ccc"]


def test_an_entry_that_came_after_the_fetch_is_not_trimmed(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1, b"old")
    entries = scene.fetch_one("mid/0")
    scene.append("mid/0", 2, b"new")
    scene.commit("mid/0", entries=entries)
    assert payloads(scene.fetch_one("mid/0")) == [b"new"]


def test_the_inbox_is_numbered_by_its_own_counter(scene: Scene) -> None:
    scene.set_up("mid/0")
    seen = []
    for number in range(1, 4):
        scene.append("mid/0", number, producer="far/0")
        scene.append("mid/0", number, producer="far/1")
        entries = scene.fetch_one("mid/0")
        seen += [entry.number for entry in entries]
        scene.commit("mid/0", entries=entries)
    assert seen == [1, 2, 3, 4, 5, 6]


def test_a_commit_without_work_moves_no_offset_back(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    scene.commit("mid/0", entries=scene.fetch_one("mid/0"))
    scene.commit("mid/0")
    assert scene.claim("mid/0").offset == 1


def test_an_offset_beyond_the_inbox_is_a_conflict(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    entries = scene.fetch_one("mid/0")
    assert scene.send(scene.next_commit("mid/0", entries=entries), offset=2) is Answer.CONFLICT
    assert scene.measure("mid/0").inbox_entries == 1


def test_commits_that_are_sent_together_are_taken_or_refused_each_by_itself(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1", "end/0")
    first, middle, last = (
        scene.next_commit(shard, state=[put(b"f", shard.encode())]) for shard in ("mid/0", "mid/1", "end/0")
    )
    late = replace(middle, epoch=middle.epoch - 1)
    gap = replace(middle, number=middle.number + 1)
    assert scene.store.pipeline([first, late, gap, last, last]) == [
        Answer.OK,
        Answer.FENCED,
        Answer.CONFLICT,
        Answer.OK,
        Answer.DONE,
    ]
    assert [scene.measure(shard).commit for shard in ("mid/0", "mid/1", "end/0")] == [1, 0, 1]
    assert snapshot(scene, "end/0") == {(b"", b"f"): b"end/0"}
    assert snapshot(scene, "mid/1") == {}


def test_a_shard_may_commit_several_times_in_what_is_sent_together(scene: Scene) -> None:
    scene.set_up("mid/0", "end/0")
    first = scene.next_commit("mid/0", out("end/0", b"a"))
    second = replace(first, number=first.number + 1, outputs=(out("end/0", b"b"),))
    assert scene.store.pipeline([first, second]) == [Answer.OK, Answer.OK]
    assert payloads(scene.fetch_one("end/0")) == [b"a", b"b"]


def test_commits_sent_together_find_the_outputs_of_those_before_them(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1", "end/0")
    together = [scene.next_commit(shard, out("end/0", shard.encode())) for shard in ("mid/1", "mid/0")]
    assert scene.store.pipeline(together) == [Answer.OK, Answer.OK]
    assert payloads(scene.fetch_one("end/0")) == [b"mid/1", b"mid/0"]


def test_a_position_is_kept_until_another_is_given(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", position=b"\x00\xfe", again=True)
    scene.commit("src/0", again=True)
    assert scene.claim("src/0").position == b"\x00\xfe"
    scene.commit("src/0", position=b"", again=True)
    assert scene.claim("src/0").position == b""


def test_a_finished_source_stays_finished(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", finished=True)
    scene.commit("src/0")
    assert scene.claim("src/0").finished
    assert scene.measure("src/0").finished


def test_counters_of_a_shard_without_a_record_are_none(scene: Scene) -> None:
    scene.set_up("mid/0")
    counters = scene.store.call(Measure(("end/0", "mid/0", "end/1")))
    assert [one is None for one in counters] == [True, False, True]


# --- state


def test_state_is_written_and_read(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit(
        "mid/0", state=[put(b"f", b"1"), put(b"g", b""), put(b"f", b"x", b"list"), put(b"", b"y", b"m")]
    )
    assert load(scene, b"g", b"none", b"f") == [b"", None, b"1"]
    assert load(scene, b"f", b"g", collection=b"list") == [b"x", None]
    assert snapshot(scene) == {(b"", b"f"): b"1", (b"", b"g"): b"", (b"list", b"f"): b"x", (b"m", b""): b"y"}


def test_state_is_any_bytes(scene: Scene) -> None:
    scene.set_up("mid/0")
    every = bytes(range(256))
    scene.commit("mid/0", state=[put(every, every, every), put(every, every)])
    assert load(scene, every, collection=every) == [every]
    assert snapshot(scene) == {(every, every): every, (b"", every): every}


def test_state_changes_apply_in_order(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", state=[put(b"f", b"1"), put(b"f", b"2"), put(b"g", b"1"), put(b"g", None)])
    scene.commit("mid/0", state=[put(b"x", b"1", b"c"), StateWrite(b"c", None, None), put(b"y", b"2", b"c")])
    assert snapshot(scene) == {(b"", b"f"): b"2", (b"c", b"y"): b"2"}


def test_deleting_what_is_not_there_is_no_fault(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", state=[put(b"f", None), put(b"f", None, b"c"), StateWrite(b"c", None, None)])
    assert snapshot(scene) == {}
    assert load(scene, b"f", collection=b"c") == [None]


def test_a_collection_that_was_emptied_is_gone(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", state=[put(b"f", b"1", b"c"), put(b"g", b"1", b"c"), put(b"f", b"1", b"d")])
    scene.commit("mid/0", state=[put(b"f", None, b"c"), put(b"g", None, b"c"), StateWrite(b"d", None, None)])
    assert snapshot(scene) == {}
    assert scan(scene, b"c", 10) == {}


def test_many_writes_fit_one_commit(scene: Scene) -> None:
    scene.set_up("mid/0")
    for start in (0, 10_000):
        state = [put(b"%d" % n, b"v", b"many") for n in range(start, start + 10_000)]
        scene.commit("mid/0", state=[write._replace(value=b"") for write in state])
    assert len(scan(scene, b"many", 1000)) == 20_000


def test_a_scan_in_chunks_sees_every_field(scene: Scene) -> None:
    scene.set_up("mid/0")
    expected = {b"k%d" % n: b"%d" % n for n in range(200)}
    scene.commit("mid/0", state=[put(key, value, b"map") for key, value in expected.items()])
    assert scan(scene, b"map", 7) == expected
    assert scan(scene, b"map", 1000) == expected
    assert scan(scene, b"", 10) == {}


def test_state_of_one_shard_is_not_anothers(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.commit("mid/0", state=[put(b"f", b"1")])
    assert snapshot(scene, "mid/1") == {}
    assert snapshot(scene, "no/shard") == {}


def test_state_survives_a_change_of_owner_and_generation(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", state=[put(b"f", b"1")])
    scene.open()
    scene.claim("mid/0")
    assert load(scene, b"f") == [b"1"]


def test_timers_are_part_of_a_commit(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", timers=[TimerWrite(b"k\x00", 1_700_000_000_000), TimerWrite(b"k2", 5)])
    scene.commit("mid/0", timers=[TimerWrite(b"k\x00", None), TimerWrite(b"none", None)])
    assert snapshot(scene) == {}


# --- caps


@pytest.mark.parametrize(
    "outputs",
    [
        [out("far/0")] * (SMALL.outputs_per_commit_max + 1),
        [out("far/0", b"x" * (SMALL.entry_bytes_max + 1))],
        [out("far/0", b"x" * 199)] * 4,
    ],
    ids=["outputs", "entry", "bytes"],
)
def test_a_commit_beyond_the_caps_is_refused_before_it_leaves(scene: Scene, outputs: list[Output]) -> None:
    scene.set_up("mid/0")
    with pytest.raises(ValueError, match=r"far/0|mid/0"):
        scene.store.call(scene.next_commit("mid/0", *outputs))
    assert scene.measure("mid/0").commit == 0


def test_an_entry_beyond_the_cap_is_not_appended(scene: Scene) -> None:
    scene.set_up("mid/0")
    with pytest.raises(ValueError, match="mid/0"):
        scene.store.call(Append("far/0", "mid/0", 1, b"x" * (SMALL.entry_bytes_max + 1), 1, 0))


def test_the_value_hash_cannot_be_deleted_whole(scene: Scene) -> None:
    scene.set_up("mid/0")
    with pytest.raises(ValueError, match="value hash"):
        scene.store.call(scene.next_commit("mid/0", state=[StateWrite(b"", None, None)]))


def test_a_commit_at_the_caps_is_taken(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", *[out("far/0", b"x" * 30)] * SMALL.outputs_per_commit_max)
    scene.commit("mid/0", *[out("far/0", b"x" * SMALL.entry_bytes_max)] * 3)
    assert scene.measure("mid/0").outbox_entries == SMALL.outputs_per_commit_max + 3
