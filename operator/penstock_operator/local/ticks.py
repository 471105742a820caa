"""Time and signals of a run: SIGINT, SIGTERM and SIGHUP as a count, and a wait that they cut short.

The end of a child cuts the wait short too, so that a death is treated at once. The handlers only count and
write a byte into a pipe, so that no lock is ever taken in them. Neighbours: `local_run` waits by it,
`run_decisions` says what the first and the next signal mean.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import TracebackType
from typing import Self

from penstock.store.node_clock import SteadyClock

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SystemTicks:
    """A context in the main thread; the old handlers are back after it. Keeps the protocol `Ticks`."""

    def __init__(self) -> None:
        self._count = 0
        self.clock = SteadyClock()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._woken = select.poll()
        self._woken.register(self._read, select.POLLIN)
        self._before = {number: signal.getsignal(number) for number in (*_SIGNALS, signal.SIGCHLD)}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            signal.signal(number, self._interrupt)
        signal.signal(signal.SIGCHLD, self._wake)
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
        return self.clock.now_us()

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as a signal comes or a child ends."""
        if self._woken.poll(max(0.0, seconds) * 1000):
            os.read(self._read, 64)

    def _interrupt(self, *_: object) -> None:
        self._count += 1
        self._wake()

    def _wake(self, *_: object) -> None:
        try:
            os.write(self._write, b"!")
        except BlockingIOError:  # enough of them wait already
            return
