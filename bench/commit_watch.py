"""`first_commits` in the agent's container of one store, asked from outside."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.harness.cluster import Cluster


class CommitWatch:
    """Asks for one commit at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def beside(cls, cluster: Cluster, pod: str, uid: str) -> Iterator[CommitWatch]:
        script = Path(__file__).with_name("first_commits.py").read_text(encoding="utf-8")
        command = ["kubectl", f"--namespace={cluster.namespace}", "exec", "--stdin", pod, "--container=agent"]
        process = subprocess.Popen(
            [*command, "--", "python", "-c", script, uid],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(cluster.environment.variables),
        )
        try:
            watch = cls(process)
            assert watch._line() == "ready"
            yield watch
        finally:
            process.kill()
            process.wait()

    def ask(self, shards: list[str], worker: str, **schedule: str | int) -> None:
        """Look from now on; `schedule` is the executor and version by which the worker gets the shards."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"shards": shards, "worker": worker, **schedule}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, float]:
        """When each part was seen, "committed" the last, in seconds since 1970."""
        found: dict[str, float] | None = json.loads(self._line())
        if found is None:
            raise RuntimeError("the worker committed nothing in time")
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
