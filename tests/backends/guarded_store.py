"""A redis-server with the users that a node store has in a cluster: nobody enters without a password."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis

from penstock.store.redis.users import USERS, hash_of, users_file
from penstock_operator.local.store.private_store import find_server

_START_S = 20.0


@dataclass(frozen=True, slots=True)
class GuardedStore:
    """A redis-server with these users; each one's password is in FOLDER/NAME-password."""

    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    def password(self, user: str) -> str:
        return f"secret of the {user}"

    def url(self, user: str) -> str:
        return f"unix://{user}@{quote(str(self.socket))}"

    def plain(self, user: str) -> Any:
        return redis.Redis(unix_socket_path=str(self.socket), username=user, password=self.password(user))


def made_store(folder: Path) -> GuardedStore:
    """A folder with these users and their passwords."""
    store = GuardedStore(folder)
    for user in USERS:
        (store.folder / f"{user}-password").write_text(store.password(user), encoding="utf-8")
    known = {user: [hash_of(store.password(user))] for user in USERS}
    (store.folder / "users.acl").write_text(users_file(known), encoding="utf-8")
    return store


@contextmanager
def running(store: GuardedStore, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server in the store's folder, until the block ends."""
    settings = {
        "port": "0",
        "unixsocket": str(store.socket),
        "dir": str(store.folder),
        "aclfile": str(store.folder / "users.acl"),
        "save": "",
    }
    arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
    with (store.folder / "log").open("wb") as log:
        process = subprocess.Popen([find_server(), *arguments, *more], stdout=log, stderr=subprocess.STDOUT)
    try:
        _await_socket(process, store)
        yield process
    finally:
        process.terminate()
        process.wait()


def _await_socket(process: subprocess.Popen[bytes], store: GuardedStore) -> None:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, (store.folder / "log").read_text(encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(store.socket)) == 0:
                return
        time.sleep(0.01)
    raise AssertionError("redis-server did not answer in time")
