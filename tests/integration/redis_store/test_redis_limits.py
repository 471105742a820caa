"""What is only true of the node store in Redis: its limits of memory and of the time that a call takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from backends.store_fixtures import RedisBackend
from penstock.store.port import (
    Answer,
    Bounds,
    Fetch,
    StateWrite,
    WaitReady,
)
from penstock.store.redis.library import PROTOCOL_VERSION
from scenes.store_scenario import Scene, out

pytestmark = pytest.mark.integration


_SERVER_TIME_US_MAX = 20_000
"""Of one call. The design asks for 5 ms; a busy machine is given four times that."""


@pytest.fixture
def full(admin: redis.Redis) -> Iterator[None]:
    """To be called when a store is to be at its memory limit."""
    limit = admin.config_get("maxmemory")["maxmemory"]
    yield
    admin.config_set("maxmemory", limit)


@pytest.mark.usefixtures("full")
def test_a_store_at_its_memory_limit_refuses_appends_and_drains_itself(
    scene: Scene, admin: redis.Redis
) -> None:
    scene.set_up("src/0", "mid/0")
    scene.append("mid/0", 1, b"a")
    scene.commit("src/0", out("far/0"), again=True)
    admin.config_set("maxmemory", 1)
    assert scene.append("mid/0", 2) is Answer.FULL
    assert scene.store.call(WaitReady("mid@w1", 10))
    (fetched,) = scene.store.call(Fetch("mid@w1", 100, 10, pressed=True)).shards
    scene.commit("mid/0", entries=fetched.entries, state=[StateWrite(b"", b"f", b"1")])
    assert scene.acknowledge("src/0", "far/0", 1) is Answer.OK
    assert not scene.store.call(WaitReady("mid@w1", 10))
    scene.claim("mid/0")


def test_every_function_that_writes_may_run_at_the_memory_limit_but_three(
    admin: redis.Redis,
) -> None:
    (library,) = admin.function_list(f"penstock_{PROTOCOL_VERSION}")
    functions = {fields[1].decode(): set(fields[5]) for fields in library[5]}
    writers = {name for name, flags in functions.items() if b"no-writes" not in flags}
    refused = {name for name in writers if b"allow-oom" not in functions[name]}
    assert refused == {f"penstock_{name}_{PROTOCOL_VERSION}" for name in ("append", "fetch", "install")}


def test_calls_at_the_caps_of_the_bounds_do_not_keep_the_server_long(
    backend: RedisBackend, admin: redis.Redis
) -> None:
    admin.config_set("slowlog-log-slower-than", _SERVER_TIME_US_MAX)
    # A busy machine may stop the server in the middle of a call: the same calls are slow each time,
    # or they are not.
    slow = [calls_at_the_caps(backend, admin, f"t{attempt}") for attempt in range(3)]
    assert [] in slow, slow


def calls_at_the_caps(backend: RedisBackend, admin: redis.Redis, topology: str) -> list[tuple[int, bytes]]:
    """The largest calls that `Bounds` allow; those that were slow, with their microseconds."""
    bounds = Bounds()
    scene = Scene(backend.open_store(topology=topology, bounds=bounds)).set_up("src/0", "mid/0")
    many = bounds.outputs_per_commit_max
    admin.slowlog_reset()
    for number in range(1, 9):
        scene.commit("src/0", *[out(f"mid/{n % 2}", b"x" * 200) for n in range(many)], again=True)
        scene.commit("src/0", *[out("files", b"x" * 200, external=True)] * many, again=True)
        scene.acknowledge("src/0", "files", number * many)
    large = bounds.entry_bytes_max
    scene.commit("src/0", *[out("far/0", b"x" * large)] * (bounds.commit_bytes_max // large), again=True)
    scene.acknowledge("src/0", "far/0", bounds.commit_bytes_max // large)
    while entries := scene.fetch("mid@w1", bytes_max=1 << 20).shards:
        for one in entries:
            scene.commit(one.shard, entries=one.entries)
    return [(entry["duration"], entry["command"][:40]) for entry in admin.slowlog_get()]
