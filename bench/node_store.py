"""The redis-server of a node, as a process of this machine on loopback.

Neighbours: `two_nodes` and `tests/scenes/agent_scene.py` start agents and workers beside it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "no",
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": "256mb",
    "save": "",
    "maxmemory-policy": "noeviction",
}
"""Those of `penstock run`'s private store, with TCP for agents of other nodes."""
STOP_S = 20.0


class NodeStore:
    """One server. It can be started again, with what is in its folder."""

    def __init__(self, folder: Path, node: str, port: int) -> None:
        self.node = node
        self.port = port
        self.folder = folder / f"redis-{node}"
        self.folder.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.address}"

    def start(self) -> None:
        settings = {**SETTINGS, "port": str(self.port), "dir": str(self.folder)}
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(["redis-server", *arguments], stdout=log, stderr=log)

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
