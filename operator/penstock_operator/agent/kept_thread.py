"""A thread that does its work until it is told to end, whatever happens in it.

An error that its work does not expect is a bug: it would end the thread, and what the thread does would stop
for good without anybody noticing. So it is told in full, counted, and the work begun anew after a pause that
grows. `ThreadFaults` is what the agent shows of that. Neighbours: `delivery`, `moving`, `store_keeper` and
`node_agent` have such threads; each makes its work anew from what the stores and the Schedules say.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

_LOG = logging.getLogger(__name__)

_PAUSE_S_MIN = 0.1
_PAUSE_S_MAX = 10.0
_CALM_S = 60.0
"""After so long without a fault the next one is like the first."""


class ThreadFaults:
    """How often which kind of thread was ended by a bug, and what the last one was. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._last = ""

    def note(self, kind: str, error: Exception) -> None:
        with self._lock:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._last = f"{kind}: {type(error).__name__}: {error}"

    @property
    def counts(self) -> Mapping[str, int]:
        """By kind of thread."""
        with self._lock:
            return dict(self._counts)

    @property
    def last(self) -> str:
        """ "" while there was none."""
        with self._lock:
            return self._last


class Kept(Protocol):
    """What an owner of threads does with one."""

    def start(self) -> None: ...

    def join(self, timeout_s: float) -> None: ...


class MakeThread(Protocol):
    """As `KeptThread` is made. Who gives turns itself, without threads, makes none."""

    def __call__(
        self,
        kind: str,
        work: Callable[[], object],
        faults: ThreadFaults,
        ending: threading.Event,
        *,
        name: str = "",
    ) -> Kept: ...


class KeptThread:
    """Runs `work`, which returns when it is time to end, and again when it raises.

    `kind` is what the fault is counted under; `ending` is set when nothing is to be begun anew.
    """

    def __init__(
        self,
        kind: str,
        work: Callable[[], object],
        faults: ThreadFaults,
        ending: threading.Event,
        *,
        name: str = "",
        clock_s: Callable[[], float] = time.monotonic,
        rest: Callable[[float], object] | None = None,
    ) -> None:
        self._kind = kind
        self._work = work
        self._faults = faults
        self._ending = ending
        self._clock_s = clock_s
        self._rest = rest or ending.wait
        self._thread = threading.Thread(target=self._run, name=name or kind, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(max(0.0, timeout_s))

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        pause_s = _PAUSE_S_MIN
        while True:
            began_s = self._clock_s()
            try:
                self._work()
                return
            except Exception as error:  # noqa: BLE001 - a thread's end: whatever comes here is told, not hidden
                self._faults.note(self._kind, error)
                if self._clock_s() - began_s > _CALM_S:
                    pause_s = _PAUSE_S_MIN
                _LOG.exception("thread %s met a bug; it begins anew in %.1f s", self._thread.name, pause_s)
            self._rest(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            if self._ending.is_set():
                return
