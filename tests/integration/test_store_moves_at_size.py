"""Moves on real servers: no call keeps one long, whatever a shard is made of; a server that restarts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest

from backends.store_backends import StoreMeanwhile
from backends.store_fixtures import RedisBackend
from penstock.store.keys import Keys
from penstock.store.moving.mover import move_once
from penstock.store.moving.progress import MoveStep
from penstock.store.port import Answer, Bounds, StateSnapshot, StateWrite, StoreUnreachable, TimerWrite
from penstock.store.port.moves import Chunk, Export, Installed, Thaw
from penstock.store.redis.library import PROTOCOL_VERSION
from scenes.move_scene import MoveScene
from scenes.store_scenario import out

_SERVER_TIME_US_MAX = 20_000
"""Four times what a call may take on a quiet machine. The median counts: others use the machine too."""

X = "mid/0"


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path)
    yield backend
    backend.stop()


@pytest.fixture
def moving(backend: RedisBackend) -> MoveScene:
    return MoveScene(backend, bounds=Bounds())


def many_small_fields(moving: MoveScene) -> None:
    for start in range(0, 60_000, 2_000):
        writes = [StateWrite(b"", b"key %d" % n, b"v" * 50) for n in range(start, start + 2_000)]
        moving.a.commit(X, state=writes)


def large_values(moving: MoveScene) -> None:
    for start in range(0, 48, 6):
        writes = [StateWrite(b"c", b"%d" % n, b"v" * (256 << 10)) for n in range(start, start + 6)]
        moving.a.commit(X, state=writes)


def many_collections(moving: MoveScene) -> None:
    for start in range(0, 20_000, 1_000):
        names = [b"list %d" % n for n in range(start, start + 1_000)]
        writes = [StateWrite(name, b"%d" % n, b"v" * 20) for name in names for n in range(3)]
        moving.a.commit(X, state=writes)


def many_timers(moving: MoveScene) -> None:
    for start in range(0, 20_000, 2_000):
        moving.a.commit(X, timers=[TimerWrite(b"timer %d" % n, n) for n in range(start, start + 2_000)])


def full_queues(moving: MoveScene) -> None:
    moving.a.fill(X, *[200] * 4_000)
    for start in range(0, 4_000, 500):
        moving.a.commit(X, *[out(f"far/{n % 1_000}", b"x" * 200) for n in range(start, start + 500)])


def many_upstream_shards(moving: MoveScene) -> None:
    for n in range(3_000):
        moving.a.append(X, 1, b"x", producer=f"up/{n}")


@pytest.mark.parametrize(
    "fill",
    [many_small_fields, large_values, many_collections, many_timers, full_queues, many_upstream_shards],
)
def test_no_call_of_a_move_keeps_a_server_long(
    moving: MoveScene, backend: RedisBackend, fill: Callable[[MoveScene], None]
) -> None:
    fill(moving)
    before, counters = moving.a.store.call(StateSnapshot(X)), moving.a.measure(X)
    servers = [backend.admin(node) for node in ("n1", "n2")]
    for server in servers:
        server.config_set("slowlog-max-len", 100_000)
        server.config_set("slowlog-log-slower-than", 0)
        server.slowlog_reset()
    moving.move(X)
    taken_us: dict[bytes, list[int]] = defaultdict(list)
    for server in servers:
        for entry in server.slowlog_get(100_000):
            command = entry["command"].split()
            if command[0] in {b"FCALL", b"FCALL_RO"}:
                taken_us[command[1]].append(entry["duration"])
    for name in ("export", "install", "freeze", "read_move", "drop"):
        durations_us = taken_us[f"penstock_{name}_{PROTOCOL_VERSION}".encode()]
        assert median(durations_us) < _SERVER_TIME_US_MAX, name
    assert moving.b.store.call(StateSnapshot(X)) == before
    after = moving.b.measure(X)
    assert (after.inbox_bytes, after.outbox_bytes) == (counters.inbox_bytes, counters.outbox_bytes)
    left = {key for key in servers[0].keys("penstock:t1:*") if b"mid/0" in key}
    assert left == {Keys("t1").shard(X), Keys("t1").move(X)}


def test_what_is_copied_after_the_freeze_does_not_grow_with_the_state(
    moving: MoveScene, backend: RedisBackend
) -> None:
    """32 MiB, of which some keys are written between any two chunks: the rest is a chunk or two."""
    value = b"v" * 1024
    for start in range(0, 32 << 10, 1 << 10):
        writes = [StateWrite(b"", b"key %d" % n, value) for n in range(start, start + (1 << 10))]
        moving.a.commit(X, state=writes)
    moving.send_home(X, "s2")
    written = 0

    def write_some() -> None:
        nonlocal written
        writes = tuple(
            StateWrite(b"", b"key %d" % (n * 7919 % (32 << 10)), b"%d" % n)
            for n in range(written, written + 5)
        )
        if moving.a.store.call(moving.a.next_commit(X, state=writes)) is Answer.OK:
            moving.a.numbers[X] += 1
            written += 5

    source = StoreMeanwhile(moving.a.store, Export, write_some)
    copied_bytes = paused_bytes = paused_chunks = 0
    for _ in range(1_000):
        progress = move_once(source, moving.store_of, X, target_id="s2", version=moving.version)
        assert progress.obstacle is None
        copied_bytes += progress.copied_bytes
        paused_bytes += progress.paused_bytes
        paused_chunks += progress.paused_chunks
        if progress.is_over:
            break
    assert progress.step is MoveStep.DONE
    assert written > 1_000
    assert copied_bytes > 31 << 20
    assert paused_chunks <= 2
    assert paused_bytes <= Bounds().chunk_bytes_max
    after = moving.b.store.call(StateSnapshot(X))
    assert len(after) == 32 << 10
    newest = {n * 7919 % (32 << 10): n for n in range(written)}
    assert {int(name.split()[1]): int(v) for (_, name), v in after.items() if v != value} == newest


def test_a_copy_is_not_resumed_in_another_run_of_the_server(moving: MoveScene, backend: RedisBackend) -> None:
    """A cursor would be taken for another place there."""
    many_small_fields(moving)
    move = moving.freeze(X)
    first = next(moving.chunks(X, move))
    assert isinstance(moving.install(X, move, first, 1), Installed)
    backend.restart("n1", "s1")
    with suppress(StoreUnreachable):
        moving.state(X, "s1")
    assert moving.a.store.call(Export(X, move, b"")) is Answer.STALE
    assert moving.a.store.call(Thaw(X, move)) is Answer.OK
    anew = moving.precopy(X)
    assert anew != move
    assert isinstance(moving.try_freeze(X, anew), Chunk)
    assert moving.a.store.call(Export(X, anew, first.resume)) is Answer.STALE
    moving.move(X)
    expected = {(b"", b"key %d" % n): b"v" * 50 for n in range(60_000)}
    assert moving.b.store.call(StateSnapshot(X)) == expected
