"""A process beside the command that answers about a topology's state: the port `asking.line` on this machine.

Neighbours: the worker's `state.answering` is what runs, `local.asked_run` opens it.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO

from penstock_operator.asking.line import ANSWERING, LineBroken

_READ_BYTES = 1 << 16
_END_S = 5.0


class AnsweringProcess:
    """Runs until it is closed."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the process
        self._process = subprocess.Popen(
            [sys.executable, *ANSWERING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        self._input, self._output = _pipe(self._process.stdin), _pipe(self._process.stdout)
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._output, selectors.EVENT_READ)

    def send(self, data: bytes) -> None:
        try:
            self._input.write(data)
            self._input.flush()
        except OSError as error:
            raise self._broken() from error

    def receive(self, within_s: float) -> bytes:
        if not self._ready.select(within_s):
            raise LineBroken(f"what reads the state has not answered within {within_s:g} s")
        data = os.read(self._output.fileno(), _READ_BYTES)
        if not data:
            raise self._broken()
        return data

    def close(self) -> None:
        # It may have ended, with something left to be sent.
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._ready.close()
        self._output.close()
        self._said.close()

    def _broken(self) -> LineBroken:
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip() or "it said nothing"
        return LineBroken(f"what reads the state has ended: {said.splitlines()[-1]}")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("a process that was started with pipes has none")
    return stream
