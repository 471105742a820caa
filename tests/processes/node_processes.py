"""What a node of a test runs, as processes that can be killed and started again: a redis-server, an agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

from bench.node_store import NodeStore

import penstock
import penstock_operator
from processes.free_ports import free_port

_END_S = 60.0


def python_path() -> str:
    """Where a process that a test starts finds the product and the tests' modules."""
    folders = {Path(module.__file__ or "").parent.parent for module in (penstock, penstock_operator)}
    return os.pathsep.join([*map(str, folders), *sys.path])


class Server(NodeStore):
    """A node's redis-server that can be killed, and lose what it holds."""

    def kill(self, number: int = signal.SIGKILL, *, wait: bool = True) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            if wait:
                self.process.wait(10)

    def lose_everything(self) -> None:
        """What is on disk goes; while the server is down."""
        for file in sorted(self.folder.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()


class AgentProcess:
    """`python -m penstock_operator.agent` for one node; or another `module` that runs one."""

    def __init__(
        self,
        folder: Path,
        server: Server,
        kubeconfig: Path,
        module: str = "penstock_operator.agent",
        **environment: str,
    ) -> None:
        self.port = free_port()
        self._module = module
        self._log = folder / f"agent-{server.node}.log"
        self._environment = {
            "PENSTOCK_NAMESPACE": "default",
            "PENSTOCK_NODE": server.node,
            "PENSTOCK_STORE_URL": server.url,
            "PENSTOCK_AGENT_PORT": str(self.port),
            "PENSTOCK_KUBECONFIG": str(kubeconfig),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                env={**os.environ, "PYTHONPATH": python_path(), **self._environment},
                stdout=log,
                stderr=log,
            )

    def kill(self, number: int = signal.SIGKILL, *, wait: bool = True) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        if wait:
            self._process.wait(10)

    def stop(self) -> tuple[int, float]:
        """Ask it to end; its exit code, and how many seconds it took."""
        if self._process is None or self._process.poll() is not None:
            return 0, 0.0
        began_s = time.monotonic()
        self._process.terminate()
        code = self._process.wait(10)
        return code, time.monotonic() - began_s

    def wait(self) -> int:
        """Its exit code, once it ends by itself."""
        assert self._process is not None
        return self._process.wait(_END_S)

    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> str:
        """What its endpoint answers. OSError when it does not."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
            return str(answer.read().decode())
