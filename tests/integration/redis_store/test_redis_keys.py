"""What is only true of the node store in Redis: its keys, and what is logged and kept of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from backends.store_fixtures import RedisBackend
from penstock.store.keys import STORE, TOPOLOGIES, Keys
from penstock.store.port import (
    Bounds,
    Fetch,
    PutMetrics,
    ReadMetrics,
    Retract,
    SetTasks,
    StateWrite,
    StoreUnreachable,
    TimerWrite,
    Wake,
)
from penstock.store.redis.store import RedisStore
from penstock_operator.local.store.private_store import PrivateStore
from scenes.store_scenario import SHARDS, Scene, incarnation, out

pytestmark = pytest.mark.integration


def fill(scene: Scene) -> None:
    """Something of everything that a store may hold."""
    scene.set_up("src/0", "mid/0", "end/0")
    scene.fill("mid/0", 40, 40)
    writes = [StateWrite(b"", b"f", b"1"), StateWrite(b"a:b", b"f", b"1")]
    timers = [TimerWrite(b"t", 5)]
    sink = out("files", external=True)
    scene.commit(
        "src/0", out("mid/0", b"x" * 40), out("far/0"), sink, state=writes, timers=timers, again=True
    )
    scene.store.call(SetTasks("w1", incarnation("w1"), "mid@w1", (("mid/0", "mid@w1"),)))
    scene.store.call(PutMetrics((("row", b"1"),)))


def test_every_key_is_one_that_keys_names(scene: Scene, admin: redis.Redis) -> None:
    fill(scene)
    keys = Keys("t1")
    named = {
        *[make(shard) for shard in SHARDS for make in (keys.shard, keys.inbox, keys.value, keys.timers)],
        *[make(shard) for shard in SHARDS for make in (keys.collections, keys.pending, keys.waiters)],
        *[make(operator) for operator in ("src", "mid", "end") for make in (keys.schedule, keys.shard_map)],
        *[keys.executor_map(operator) for operator in ("src", "mid", "end")],
        *[make(worker) for worker in ("w1", "w2") for make in (keys.control, keys.assigned)],
        *[keys.outbox("src/0", target) for target in ("mid/0", "far/0", "files")],
        keys.collection("src/0", b"a:b"),
        keys.waiters("far/0"),
        keys.ready("src@w1"),
        keys.ready("mid@w1"),
        keys.due("src@w1"),
        keys.tasks("mid@w1"),
        *[keys.outgoing, keys.enrolled, keys.workers, keys.metrics],
    }
    found = set(admin.keys("*"))
    assert found - named == {STORE, TOPOLOGIES}
    unused = {re.sub(rb":.*", b"", key.removeprefix(keys.prefix)) for key in named} - {
        re.sub(rb":.*", b"", key.removeprefix(keys.prefix)) for key in found
    }
    assert unused == set()


def test_a_uid_that_would_blur_keys_is_refused() -> None:
    for uid in ("", "a:b", "a*", "x" * 65):
        with pytest.raises(ValueError, match="topology uid"):
            Keys(uid)


def test_nothing_is_left_of_a_retracted_topology_but_word_of_it(scene: Scene, admin: redis.Redis) -> None:
    fill(scene)
    admin.mset({f"other:{n}": "x" for n in range(10_000)})
    calls = 0
    while scene.store.call(Retract()):
        calls += 1
        assert calls < 100
    assert calls > 1
    assert set(admin.keys("penstock:*")) == {STORE}
    admin.sadd(TOPOLOGIES, "t1")
    assert scene.store.call(Retract()) == 0
    assert set(admin.keys("penstock:*")) == {STORE}, "who names it again changes nothing"


def test_a_ready_list_of_an_old_snapshot_hands_a_shard_out_once(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 1)
    (ready,) = [
        key for key in admin.keys(Keys("t1").prefix + b"ready:*") if b"mid/0" in admin.lrange(key, 0, -1)
    ]
    admin.rpush(ready, "mid/0", "mid/0")
    scene.claim("mid/0")
    assert admin.lrange(ready, 0, -1) == [b"mid/0"]


def test_what_comes_onto_and_off_ready_lists_is_not_logged(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up("src/0", "mid/0")
    admin.config_set("appendonly", "yes")
    before = admin.info("persistence")["aof_current_size"]
    scene.store.call(Fetch(scene.owner("mid/0").ready, 1 << 20, 8))
    scene.store.call(Wake(scene.owner("mid/0").ready))
    scene.store.call(Fetch(scene.owner("mid/0").ready, 1 << 20, 8))
    assert admin.info("persistence")["aof_current_size"] == before


@pytest.mark.parametrize(("size", "left_max"), [(1, 15), (5000, 0)])
def test_only_some_small_entries_that_are_worked_off_stay_in_the_inbox(
    backend: RedisBackend, size: int, left_max: int
) -> None:
    scene = Scene(backend.open_store(bounds=Bounds()))
    scene.open()
    scene.set_up("src/0", "mid/0")
    left = set()
    for _ in range(100):
        scene.commit("src/0", out("mid/0", b"x" * size), again=True)
        scene.commit("mid/0", entries=scene.fetch_one("mid/0"), in_hand=True)
        left.add(backend.admin().xlen(Keys("t1").inbox("mid/0")))
    assert max(left) == left_max
    assert min(left) == 0


def test_a_store_that_was_away_for_hundreds_of_tries_is_found_again(tmp_path: Path) -> None:
    server = PrivateStore(tmp_path, "Process")
    server.start()
    store = RedisStore(server.url, "t1")
    try:
        assert store.call(ReadMetrics()) == {}
        server.stop()
        for _ in range(300):
            with pytest.raises(StoreUnreachable):
                store.call(ReadMetrics())
        server = PrivateStore(tmp_path, "Process")
        server.start()
        assert store.call(ReadMetrics()) == {}
    finally:
        store.close()
        server.stop()


def test_an_emptied_pair_leaves_nothing_behind(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 1, 1, 1, 1)
    scene.commit("src/0", out("mid/0"), out("far/0"), out("files", external=True), again=True)
    scene.commit("mid/0", entries=scene.fetch_one("mid/0"))
    scene.acknowledge("src/0", "far/0", 1)
    scene.acknowledge("src/0", "files", 1)
    kinds = {key.split(b":")[2] for key in admin.keys("penstock:t1:*")}
    assert kinds.isdisjoint({b"outbox", b"pending", b"waiters", b"outgoing"})


def test_metric_rows_do_not_reach_the_append_only_file(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up()
    before = admin.info("persistence")["aof_current_size"]
    scene.store.call(PutMetrics((("row", b"x" * 1000),)))
    assert admin.info("persistence")["aof_current_size"] == before
    assert scene.store.call(ReadMetrics()) == {"row": b"x" * 1000}


@pytest.mark.parametrize("key", [Keys("t1").workers, Keys("t1").control("w1")])
def test_a_retraction_begins_and_ends_whatever_workers_wrote_in_the_place_of_their_keys(
    scene: Scene, admin: redis.Redis, key: bytes
) -> None:
    fill(scene)
    admin.delete(key)
    admin.sadd(key, "x")
    while scene.store.call(Retract()):
        pass
    assert set(admin.keys("penstock:*")) == {STORE}
