"""Store contract: routing tables, and the state of keys that go from one shard of an operator to another."""

from __future__ import annotations

from penstock.store.port import (
    Answer,
    Create,
    DropPairs,
    DropTable,
    PairNames,
    PutPairs,
    PutTable,
    ReadPairs,
    ReadTable,
    TableVersions,
)
from scenes.store_scenario import SMALL, Scene, out, payloads


def test_tables_are_kept_by_version(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert scene.store.call(TableVersions("mid")) == ()
    assert scene.store.call(ReadTable("mid", 1)) is None
    assert scene.store.call(PutTable("mid", 10, b"ten")) is Answer.OK
    assert scene.store.call(PutTable("mid", 9, b"nine")) is Answer.OK
    assert scene.store.call(PutTable("mid", 9, b"nine")) is Answer.OK
    assert scene.store.call(TableVersions("mid")) == (9, 10)
    assert scene.store.call(TableVersions("end")) == ()
    assert scene.store.call(ReadTable("mid", 10)) == b"ten"
    assert scene.store.call(DropTable("mid", 9)) is Answer.OK
    assert scene.store.call(TableVersions("mid")) == (10,)


def test_counted_pairs_are_kept_by_name_the_newest_of_each(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert scene.store.call(ReadPairs()) == {}
    assert scene.store.call(PairNames()) == ()
    assert scene.store.call(DropPairs(())) is Answer.OK
    for name, row in (("mid:end:e:0", b"old"), ("mid:end:e:1", b"one"), ("mid:end:e:0", b"new")):
        assert scene.store.call(PutPairs(name, row)) is Answer.OK
    assert scene.store.call(ReadPairs()) == {"mid:end:e:0": b"new", "mid:end:e:1": b"one"}
    assert sorted(scene.store.call(PairNames())) == ["mid:end:e:0", "mid:end:e:1"]
    assert scene.store.call(DropPairs(("mid:end:e:0", "mid:end:e:9"))) is Answer.OK
    assert scene.store.call(ReadPairs()) == {"mid:end:e:1": b"one"}


def fill(scene: Scene, shard: str) -> int:
    """Rows until the inbox takes no more; answers how many entries it has."""
    number = 0
    while scene.append(shard, number + 1, b"row", producer="far/0") is Answer.OK:
        number += 1
    return number


def test_state_of_a_key_comes_into_a_full_inbox_from_another_store(scene: Scene) -> None:
    scene.set_up("mid/0")
    entries = fill(scene, "mid/0")
    assert entries == SMALL.inbox_entries_max
    assert scene.append("mid/0", 1, b"state", producer="mid/1") is Answer.OK
    assert scene.append("mid/0", 1, b"row", producer="far/1") is Answer.BUSY
    assert scene.measure("mid/0").inbox_entries == entries + 1


def test_state_of_a_key_comes_into_a_full_inbox_of_its_own_store(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1", "src/0")
    entries = fill(scene, "mid/0")
    scene.commit("src/0", out("mid/0", b"row"))
    scene.commit("mid/1", out("mid/0", b"state"))
    assert scene.measure("src/0").outbox_entries == 1
    assert scene.measure("mid/1").outbox_entries == 0
    assert scene.measure("mid/0").inbox_entries == entries + 1


def test_state_of_a_key_that_had_to_wait_for_its_shard_comes_along(scene: Scene) -> None:
    """It waits only while its shard is not there."""
    scene.set_up("mid/1", "src/0")
    scene.commit("src/0", out("mid/0", b"row"))
    scene.commit("mid/1", out("mid/0", b"state"))
    assert scene.store.call(Create("mid/0")) is Answer.OK
    scene.claim("mid/0")
    assert sorted(payloads(scene.fetch_one("mid/0"))) == [b"row", b"state"]
    assert scene.measure("mid/1").outbox_entries == 0
