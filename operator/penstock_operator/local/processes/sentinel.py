"""Outlives `penstock run` for a moment: when that was killed, ends all processes it had started.

A process of its own with a pipe from the command as its standard input: the pipe's end comes with the
command's end, whatever ended it. It sits in a session of its own, so that what hits the
terminal's process group does not hit it, and inherits the state directory's lock, so that the next run
waits until nothing of this one is left. Neighbour: `marked_processes` finds what to end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from penstock_operator.local.processes.marked_processes import MARK, kill_marked

_QUIET_LOOKS = 3
_PAUSE_S = 0.1
_LOOKS_MAX = 300
_DISMISSED = b"q"
_DISMISSED_S = 2.0
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from penstock_operator.local.processes.sentinel import watch; watch(sys.argv[2])"
)


class Sentinel:
    """Watches over one run's processes, those marked "token/..."."""

    def __init__(self, token: str, inherited: Sequence[int] = ()) -> None:
        """`inherited`: file descriptors it keeps open until its work is done (locks)."""
        self._token = token
        self._inherited = tuple(inherited)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        folder = str(Path(__file__).resolve().parents[3])
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, folder, self._token],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=self._inherited,
            env={name: value for name, value in os.environ.items() if name != MARK},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def keep(self) -> None:
        """Start another one in the place of one that was killed."""
        if self._process.poll() is not None:
            self._end()
            self._process = self._start()

    def dismiss(self) -> None:
        """The run ended in order; nothing is left to watch."""
        try:
            self._process.communicate(_DISMISSED, timeout=_DISMISSED_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._end()

    def _end(self) -> None:
        """Collect one that has ended, or was told to."""
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def watch(token: str) -> None:
    """The sentinel's process: wait for the end of its input, then end what is marked."""
    while word := os.read(0, 16):
        if _DISMISSED in word:
            return
    quiet = 0
    for _ in range(_LOOKS_MAX):
        quiet = 0 if kill_marked(f"{token}/") else quiet + 1
        if quiet == _QUIET_LOOKS:
            return
        time.sleep(_PAUSE_S)
