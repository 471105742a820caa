"""The redis-server of a node, as a process of this machine: on loopback, or on a host of its own.

Neighbours: `locality.hosts` has such hosts; `two_nodes` and `tests/scenes/agent_scene.py` start agents and
workers beside it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

LOOPBACK = "127.0.0.1"
SOCKET = "socket"
SETTINGS = {
    "bind": LOOPBACK,
    "appendonly": "yes",
    "appendfsync": "no",
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": "256mb",
    "save": "",
    "maxmemory-policy": "noeviction",
}
"""Those of `penstock run`'s private store, with TCP for agents of other nodes."""
STOP_S = 20.0


class Place(Protocol):
    """Where the processes of a node run."""

    @property
    def address(self) -> str:
        """Where other nodes reach them."""

    def command(self, command: Sequence[str]) -> list[str]:
        """`command` as it is run there."""


class Loopback:
    """This machine as it is."""

    address = LOOPBACK

    def command(self, command: Sequence[str]) -> list[str]:
        return list(command)


class NodeStore:
    """One server. It can be started again, with what is in its folder. On a `place` of its own it has a
    socket in the file system besides."""

    def __init__(self, folder: Path, node: str, port: int, place: Place | None = None) -> None:
        self.node = node
        self.port = port
        self.folder = folder / f"redis-{node}"
        self.folder.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self._place = place or Loopback()
        self._is_apart = place is not None

    @property
    def address(self) -> str:
        """For other nodes."""
        return f"{self._place.address}:{self.port}"

    @property
    def url(self) -> str:
        """Over TCP, at its own place."""
        return f"redis://{LOOPBACK}:{self.port}"

    @property
    def local_url(self) -> str:
        """From its own place and from this process, whatever network they are in: nothing of it is on a
        wire."""
        return f"unix://{self.folder / SOCKET}" if self._is_apart else self.url

    def start(self) -> None:
        settings = {**SETTINGS, "port": str(self.port), "dir": str(self.folder)}
        if self._is_apart:
            # Only hosts that a bench has made are in its network.
            settings |= {"bind": f"{LOOPBACK} {self._place.address}", "protected-mode": "no"}
            settings["unixsocket"] = str(self.folder / SOCKET)
        arguments = [part for name, value in settings.items() for part in (f"--{name}", *value.split(" "))]
        command = self._place.command(["redis-server", *arguments])
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        """Have it write everything out and end."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
