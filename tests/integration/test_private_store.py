"""The private store of a run: how it starts, what it outlives, who may use it, what it says when it fails."""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis

import penstock_operator
from backends.store_fixtures import private_store
from penstock.store.port import Create, StoreDiskFull, StoreUnreachable
from penstock.store.redis.store import RedisStore
from penstock_operator.local.store.private_store import PrivateStore, PrivateStoreError, find_server

pytestmark = pytest.mark.integration


def stand_in(folder: Path, script: str, name: str = "redis-server") -> Path:
    """A folder for PATH whose redis-server is a shell script."""
    folder.mkdir()
    server = folder / name
    server.write_text(f"#!/bin/sh\n{script}\n")
    server.chmod(0o755)
    return folder


def damage(file: Path) -> None:
    """Overwrite some of a file, well before its end."""
    content = bytearray(file.read_bytes())
    content[-3000:-2000] = b"*" * 1000
    file.write_bytes(content)


# --- starts and restarts


def test_each_start_raises_the_generation(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        with private_store(tmp_path) as store:
            assert store.generation == expected


def test_what_was_written_is_there_after_a_stop(tmp_path: Path) -> None:
    for answer in ("OK", "EXISTS"):
        with private_store(tmp_path) as store:
            assert RedisStore(store.url, "t").call(Create("mid/0")) == answer


def test_a_dead_store_is_started_again_under_the_same_url(tmp_path: Path) -> None:
    with private_store(tmp_path) as store:
        url, pid = store.url, store.pid
        client = RedisStore(url, "t")
        client.call(Create("mid/0"))
        assert not store.restart_if_dead()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(StoreUnreachable):
            client.call(Create("mid/0"))
        assert store.restart_if_dead()
        assert (store.url, store.generation) == (url, 2)
        assert client.call(Create("mid/0")) == "EXISTS"


def test_the_public_socket_is_there_only_while_the_store_is_open(tmp_path: Path) -> None:
    store = PrivateStore(tmp_path, "Process")
    public = tmp_path / "store" / "store.sock"
    store.start()
    assert public.exists()
    assert not (tmp_path / "store" / "opening.sock").exists()
    store.stop()
    store.stop()
    assert not public.exists()


def test_a_store_of_another_id_is_refused(tmp_path: Path) -> None:
    with private_store(tmp_path):
        pass
    with pytest.raises(PrivateStoreError, match="local"):
        PrivateStore(tmp_path, "Process", "another").start()


@pytest.mark.parametrize(("durability", "fsync"), [("Process", "no"), ("Disk", "always")])
def test_a_modes_settings_are_those_of_the_durability_table(
    tmp_path: Path, durability: str, fsync: str
) -> None:
    with private_store(tmp_path, durability) as store, redis.Redis.from_url(store.url) as admin:
        settings = admin.config_get("*")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == fsync
    assert settings["save"] == ""
    assert settings["maxmemory-policy"] == "noeviction"
    assert int(settings["maxmemory"]) > 0
    assert settings["port"] == "0"


def test_nobody_else_may_look_into_the_store(tmp_path: Path) -> None:
    with private_store(tmp_path):
        assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name", ["with space", "quote'and\"both", "x" * 120], ids=["space", "quotes", "long"]
)
def test_any_directory_will_do(tmp_path: Path, name: str) -> None:
    state = tmp_path / name
    for generation in (1, 2):
        with private_store(state) as store:
            assert store.generation == generation
            RedisStore(store.url, "t").call(Create("mid/0"))
    assert (state / "store" / "redis.log").exists()


# --- its process


def test_the_store_is_killed_with_the_process_that_started_it(tmp_path: Path) -> None:
    root = str(Path(penstock_operator.__file__).parent.parent)
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from penstock_operator.local.store.private_store import PrivateStore\n"
        "store = PrivateStore(Path(sys.argv[1]), 'Process')\n"
        "starter = threading.Thread(target=store.start); starter.start(); starter.join()\n"
        "print(store.pid, flush=True); sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])},
    )
    with parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        watch = os.pidfd_open(server)
        assert os.getsid(server) == server
        parent.kill()
    assert select.select([watch], [], [], 10)[0] == [watch]
    os.close(watch)
    with private_store(tmp_path) as store:
        assert store.generation == 2


def test_a_second_run_in_the_same_directory_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with private_store(tmp_path) as store:
        with pytest.raises(
            PrivateStoreError, match=rf"^Process {os.getpid()} runs a topology in .*--state-dir\.$"
        ):
            PrivateStore(tmp_path, "Process").start()
        assert store.pid is not None
    with private_store(tmp_path):
        pass


def test_a_thread_that_ends_does_not_take_the_store_with_it(tmp_path: Path) -> None:
    store = PrivateStore(tmp_path, "Process")
    thread = threading.Thread(target=store.start)
    thread.start()
    thread.join()
    try:
        assert RedisStore(store.url, "t").call(Create("mid/0")) == "OK"
        assert store.pid is not None
    finally:
        store.stop()


# --- what cannot be


def test_without_a_server_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrivateStoreError, match=r"found no redis-server.*apt-get install redis-server"):
        PrivateStore(tmp_path / "state", "Process").start()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Redis server v=6.2.7 sha=00000000:0 malloc=jemalloc", "redis-server"),
        ("Valkey server v=7.1.9 sha=00000000:0 malloc=jemalloc", "valkey-server"),
    ],
)
def test_a_server_that_is_too_old_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, name: str
) -> None:
    monkeypatch.setenv("PATH", str(stand_in(tmp_path / "bin", f"echo '{line}'", name)))
    with pytest.raises(PrivateStoreError, match=r"is (redis 6\.2\.7|valkey 7\.1\.9).*install Redis 7\.0"):
        find_server()


def test_a_new_valkey_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stand_in(tmp_path / "bin", "echo 'Valkey server v=8.0.1 sha=0'", "valkey-server")
    monkeypatch.setenv("PATH", str(folder))
    assert find_server() == str(folder / "valkey-server")


def test_a_damaged_append_only_file_is_told(tmp_path: Path) -> None:
    with private_store(tmp_path) as store:
        client = RedisStore(store.url, "t")
        for number in range(200):
            client.call(Create(f"mid/{number}"))
    (aof,) = tmp_path.rglob("*.incr.aof")
    damage(aof)
    with pytest.raises(PrivateStoreError, match=r"append-only file in .* is damaged.*--fresh\.$"):
        PrivateStore(tmp_path, "Process").start()


def test_a_state_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a directory should be")
    with pytest.raises(PrivateStoreError, match=r"cannot be written \(.*\): .*--state-dir\.$"):
        PrivateStore(tmp_path / "state", "Process").start()


def full_disk(folder: Path, file: str) -> Path:
    """A redis-server that finds no space whenever it writes to this file below its directory."""
    real = find_server()
    return stand_in(
        folder,
        f'case "$1" in --version) exec {real} --version;; esac\n'
        f'exec strace -D -f -qq -o /dev/null -P "$PWD/{file}" '
        f'-e trace=write -e inject=write:error=ENOSPC {real} "$@"',
    )


def create_until_refused(client: RedisStore) -> None:
    for number in range(1, 1000):
        client.call(Create(f"mid/{number}"))


def test_a_disk_that_is_full_at_the_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = full_disk(tmp_path / "bin", "appendonlydir/appendonly.aof.1.incr.aof")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(PrivateStoreError, match=r"The disk of .* is full: free some space"):
        PrivateStore(tmp_path / "state", "Disk").start()


@pytest.mark.parametrize(
    ("free_bytes", "told"), [(0, "The disk of .* is full"), (1 << 30, "ended at its start")]
)
def test_a_disk_without_room_for_the_servers_log_is_told(
    free_bytes: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_server()
    silent = stand_in(tmp_path / "bin", f'case "$1" in --version) exec {real} --version;; esac\nexit 1')
    monkeypatch.setenv("PATH", f"{silent}{os.pathsep}{os.environ['PATH']}")
    usage = shutil.disk_usage(tmp_path)._replace(free=free_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(PrivateStoreError, match=told):
        PrivateStore(tmp_path / "state", "Disk").start()


def test_a_disk_that_fills_up_is_told_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append-only file that a rewrite begins is the first that finds no space."""
    folder = full_disk(tmp_path / "bin", "appendonlydir/appendonly.aof.2.incr.aof")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with private_store(tmp_path / "state") as store:
        client = RedisStore(store.url, "t")
        client.call(Create("mid/0"))
        with redis.Redis.from_url(store.url) as admin:
            admin.bgrewriteaof()
        with pytest.raises(StoreDiskFull, match=r"disk.*free space.*No space left on device"):
            create_until_refused(client)
