"""The port to a process that answers: bytes to it, and bytes of it.

Two adapters keep it: `local.processes.answering_process` (a process beside the command) and
`cluster.asked.pod_line` (one in a worker's pod, by the Kubernetes API). Neighbour: `asked_shards` talks.
"""

from __future__ import annotations

from typing import Protocol

from penstock.errors import RetryError

ANSWERING = ("-m", "penstock_worker.state.answering")
"""What Python is called with."""


class LineBroken(RetryError):
    """The process, or the way to it, is gone; or it says nothing any more."""


class Line(Protocol):
    """One process, from when it was started. Both calls raise LineBroken."""

    def send(self, data: bytes) -> None: ...

    def receive(self, within_s: float) -> bytes:
        """What comes next, as much as there is; waits for it so long."""

    def close(self) -> None:
        """End it. May be called again."""
