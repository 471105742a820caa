"""Time and signals of a run: SIGINT, SIGTERM and SIGHUP as a count, and a wait that they cut short.

The handler only counts and writes a byte into a pipe, so that no lock is ever taken in it.
Neighbours: `local_run` waits by it, `run_decisions` says what the first and the next signal mean.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SystemTicks:
    """A context in the main thread; the old handlers are back after it. Keeps the protocol `Ticks`."""

    def __init__(self) -> None:
        self._count = 0
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    @property
    def interrupts(self) -> int:
        """Signals so far."""
        return self._count

    def now_s(self) -> float:
        return time.monotonic()

    def now_us(self) -> int:
        return int(time.time() * 1e6)

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as a signal comes."""
        ready, _, _ = select.select([self._read], [], [], max(0.0, seconds))
        if ready:
            os.read(self._read, 64)

    def _handle(self, *_: object) -> None:
        self._count += 1
        try:
            os.write(self._write, b"!")
        except BlockingIOError:  # enough of them wait already
            return
