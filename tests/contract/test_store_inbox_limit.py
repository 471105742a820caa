"""Store contract: an owner says what its shard's inbox may hold.

Producers of the store that wait for it are held as they are for a full one.
"""

from __future__ import annotations

import math

import pytest

from backends.store_backends import Backend
from penstock.store.port import Answer, Bounds
from scenes.store_scenario import Scene, out

ENTRY = b"x" * 100


@pytest.fixture
def limited(backend: Backend) -> Scene:
    """mid/0 has ten entries of src/0, 100 bytes each, and may hold 500 bytes."""
    scene = Scene(backend.open_store(bounds=Bounds())).set_up("src/0", "src/1", "mid/0", "mid/1")
    scene.fetch("src@w1")
    for _ in range(10):
        read(scene, "mid/0")
    assert waiting(scene) == 10
    scene.commit("mid/0", in_hand=True, inbox_limit_bytes=500)
    return scene


def waiting(scene: Scene, shard: str = "mid/0") -> int:
    return scene.measure(shard).inbox_entries


def work(scene: Scene, entries: int, *, shard: str = "mid/0", limit_bytes: int | None = None) -> None:
    """Commit the first entries of what a fetch hands out."""
    fetched = next(one for one in scene.fetch("mid@w1").shards if one.shard == shard)
    scene.commit(shard, entries=fetched.entries[:entries], inbox_limit_bytes=limit_bytes, in_hand=True)


def read(scene: Scene, *targets: str, source: str = "src/0", entries: int = 1) -> None:
    """A source's next batch, which it has in hand; it reads on when it is handed out again."""
    outputs = [out(target, ENTRY) for target in targets for _ in range(entries)]
    scene.commit(source, *outputs, again=True, in_hand=True)


def is_handed_out(scene: Scene, source: str = "src/0") -> bool:
    return source in scene.fetch_names("src@w1")


def test_an_inbox_takes_no_more_than_its_limit(limited: Scene) -> None:
    work(limited, 6)
    read(limited, "mid/0", entries=3)
    assert waiting(limited) == 5
    assert [number for number, _ in limited.outbox("src/0", "mid/0")] == [12, 13]


def test_two_entries_are_taken_of_whatever_size(limited: Scene) -> None:
    work(limited, 10, limit_bytes=1)
    read(limited, "mid/0", entries=3)
    assert waiting(limited) == 2
    work(limited, 2)
    assert waiting(limited) == 1
    assert limited.outbox("src/0", "mid/0") == []


def test_a_source_is_held_that_has_put_out_as_much_as_the_inbox_it_waits_for_may_hold(limited: Scene) -> None:
    read(limited, "mid/0", entries=5)
    assert is_handed_out(limited)
    read(limited, "mid/0")
    assert not is_handed_out(limited)
    work(limited, 5)
    assert not is_handed_out(limited), "there is no room yet"
    work(limited, 1)
    assert waiting(limited) == 5
    assert is_handed_out(limited)


def test_the_narrowest_inbox_that_it_waits_for_counts(limited: Scene) -> None:
    for _ in range(4):
        read(limited, "mid/1", source="src/1")
    limited.commit("mid/1", in_hand=True, inbox_limit_bytes=200)
    read(limited, "mid/0", "mid/1", entries=2)
    assert not is_handed_out(limited)
    work(limited, 3, shard="mid/1")
    assert not is_handed_out(limited)
    work(limited, 1, shard="mid/1")
    assert waiting(limited, "mid/1") == 2
    assert is_handed_out(limited)


def test_a_source_of_which_nothing_waits_reads_on(limited: Scene) -> None:
    read(limited, "mid/0", entries=6)
    read(limited, "mid/1", entries=20, source="src/1")
    assert is_handed_out(limited, "src/1")
    assert not is_handed_out(limited, "src/0")


def test_what_is_on_its_way_to_other_stores_holds_nobody_once_the_inbox_has_taken_its_part(
    limited: Scene,
) -> None:
    read(limited, "mid/0", *["end/0"] * 20)
    assert not is_handed_out(limited)
    work(limited, 6)
    assert limited.outbox("src/0", "mid/0") == []
    assert is_handed_out(limited)


def test_one_that_is_lifted_while_a_source_waits_holds_it_no_more(limited: Scene) -> None:
    read(limited, "mid/0", *["end/0"] * 20)
    assert not is_handed_out(limited)
    work(limited, 1, limit_bytes=0)
    assert limited.outbox("src/0", "mid/0") == []
    assert is_handed_out(limited), "what is on its way to other stores has its bound"


def test_one_that_ends_with_a_claim_holds_no_source_any_more(limited: Scene) -> None:
    read(limited, "mid/0", *["end/0"] * 20)
    limited.claim("mid/0")
    work(limited, 1)
    assert limited.outbox("src/0", "mid/0") == []
    assert is_handed_out(limited)


def test_what_other_stores_have_taken_ends_it_for_none_that_waits_here(limited: Scene) -> None:
    read(limited, "mid/0", "end/0", *["end/1"] * 20)
    limited.acknowledge("src/0", "end/0", 1)
    assert not is_handed_out(limited)


def test_who_waits_for_nothing_any_more_has_its_own_bound_again(limited: Scene) -> None:
    read(limited, "mid/0", entries=3)
    work(limited, 10)
    read(limited, "mid/1", *["end/0"] * 20)
    assert is_handed_out(limited)


def test_counters_tell_what_an_outbox_may_hold(limited: Scene) -> None:
    assert limited.measure("src/0").outbox_limit_bytes == math.inf
    read(limited, "mid/0")
    assert limited.measure("src/0").outbox_limit_bytes == 500
    work(limited, 6)
    assert limited.measure("src/0").outbox_limit_bytes == math.inf


def test_what_other_stores_bring_waits_too(limited: Scene) -> None:
    assert limited.append("mid/0", 1, ENTRY) is Answer.BUSY
    work(limited, 6)
    assert limited.append("mid/0", 1, ENTRY) is Answer.OK


@pytest.mark.parametrize("limit_bytes", [1, 150, 250, 500])
@pytest.mark.parametrize(("here_bytes", "brought_bytes"), [(100, 100), (200, 50), (50, 200)])
def test_neither_this_store_nor_another_starves_at_a_small_inbox(
    limited: Scene, limit_bytes: int, here_bytes: int, brought_bytes: int
) -> None:
    work(limited, 10, limit_bytes=limit_bytes)
    limited.commit("src/0", *[out("mid/0", b"x" * here_bytes)] * 100, again=True, in_hand=True)
    brought, turns = 0, 60
    for _ in range(turns):
        if limited.append("mid/0", brought + 1, b"x" * brought_bytes) is Answer.OK:
            brought += 1
        work(limited, 10)
    assert brought > turns / 6
    assert len(limited.outbox("src/0", "mid/0")) < 100 - turns / 4


def test_a_commit_that_says_nothing_leaves_it_and_one_that_says_none_lifts_it(limited: Scene) -> None:
    work(limited, 6)
    read(limited, "mid/0", entries=2)
    assert waiting(limited) == 5
    work(limited, 0, limit_bytes=0)
    read(limited, "mid/0", entries=20)
    assert waiting(limited) == 26
    assert is_handed_out(limited)


def test_a_limit_above_the_bound_leaves_the_bound(backend: Backend) -> None:
    scene = Scene(backend.open_store(bounds=Bounds(inbox_bytes_max=300))).set_up("src/0", "mid/0")
    scene.fetch("src@w1")
    scene.commit("mid/0", in_hand=True, inbox_limit_bytes=10_000)
    read(scene, "mid/0", entries=5)
    assert waiting(scene) == 3


def test_its_next_owner_begins_without(limited: Scene) -> None:
    read(limited, "mid/0", entries=6)
    assert not is_handed_out(limited)
    limited.claim("mid/0")
    work(limited, 1)
    assert waiting(limited) == 15
    assert is_handed_out(limited)


def test_the_state_of_a_key_that_changes_its_shard_waits_for_no_room(limited: Scene) -> None:
    limited.commit("mid/1", out("mid/0", ENTRY))
    assert waiting(limited) == 11
