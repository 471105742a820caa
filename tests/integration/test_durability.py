"""The durability table of the design, a test for each cell: what is acknowledged survives, no call by half.

Every run has an fsync slowed on purpose; in all but one the append-only file is being rewritten.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from backends.store_fixtures import private_store
from penstock.store.port import Answer
from penstock.store.redis.store import RedisStore
from penstock_operator.local.store.private_store import PrivateStore
from processes.durability_load import (
    UID,
    Load,
    SyncedFiles,
    assert_kept,
    check_whole,
    copy_after_loss_of_power,
    next_commit,
    slow_fsync,
)

pytestmark = pytest.mark.integration

_DISK = (15, 300)
"""Each fsync's delay in milliseconds, and commits before the kill."""
_PROCESS = (300, 3000)
"""A write that waits for a slow fsync in the background would be seen: the load lasts seconds."""


def kill(store: PrivateStore) -> None:
    """SIGKILL, and wait until it is a fact."""
    pid = store.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@contextmanager
def killed_under_load(
    folder: Path, durability: str, *, rewrite: bool = True
) -> Iterator[tuple[Load, SyncedFiles, PrivateStore]]:
    """A store that was killed with SIGKILL while clients were committing and appending."""
    delay_ms, commits = _DISK if durability == "Disk" else _PROCESS
    with slow_fsync(folder / "bin", delay_ms) as files:
        store = PrivateStore(folder / "state", durability)
        store.start()
    try:
        load = Load(store.url)
        load.start()
        load.await_commits(commits // 2)
        if rewrite:
            with redis.Redis.from_url(store.url) as admin:
                admin.bgrewriteaof()
        load.await_commits(commits)
        kill(store)
        load.join()
        files.await_end()
        yield load, files, store
    finally:
        store.stop()


def test_process_loses_nothing_when_the_store_is_killed(tmp_path: Path) -> None:
    with killed_under_load(tmp_path, "Process") as (load, _, store):
        assert store.restart_if_dead()
        assert store.generation == 2
        assert_kept(load, check_whole(store.url))


def test_disk_loses_nothing_when_the_store_is_killed_or_the_power_fails(tmp_path: Path) -> None:
    with killed_under_load(tmp_path, "Disk") as (load, files, store):
        assert files.slowed > 30
        for torn in (0.0, 0.5):
            copy = tmp_path / f"power-{torn}"
            copy_after_loss_of_power(tmp_path / "state", copy, files, torn)
            with private_store(copy, "Disk") as after:
                assert_kept(load, check_whole(after.url))
        assert store.restart_if_dead()
        assert_kept(load, check_whole(store.url))


def test_process_does_not_promise_to_outlive_a_loss_of_power_but_stays_whole(tmp_path: Path) -> None:
    with killed_under_load(tmp_path, "Process", rewrite=False) as (load, files, _):
        copy_after_loss_of_power(tmp_path / "state", tmp_path / "power", files, 0.7)
        with private_store(tmp_path / "power") as after:
            commits, _ = check_whole(after.url)
            assert all(commits[shard] <= told + 1 for shard, told in load.commits.items())


def test_a_torn_tail_drops_the_last_call_whole(tmp_path: Path) -> None:
    with private_store(tmp_path / "state") as store:
        load = Load(store.url)
        load.start()
        load.await_commits(20)
        kill(store)
        load.join()
        assert store.restart_if_dead()
        commits, entries = check_whole(store.url)
        client = RedisStore(store.url, UID)
        commit = next_commit(client, "mid/0", entries["mid/0"])
        (aof,) = (tmp_path / "state").rglob("*.incr.aof")
        start = aof.stat().st_size
        assert client.call(commit) is Answer.OK
        end = aof.stat().st_size
        client.close()
        kill(store)
    assert end - start > 500
    for share in (0.0, 0.01, 0.2, 0.4, 0.6, 0.8, 0.95, 0.999, 1.0):
        copy = tmp_path / f"torn-{share}"
        shutil.copytree(tmp_path / "state", copy, ignore=shutil.ignore_patterns("*.sock", "lock"))
        (torn,) = copy.rglob("*.incr.aof")
        os.truncate(torn, start + int((end - start) * share))
        with private_store(copy) as store:
            found, _ = check_whole(store.url)
            assert found == {**commits, "mid/0": commits["mid/0"] + (share == 1.0)}
