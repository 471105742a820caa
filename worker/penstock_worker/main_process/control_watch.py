"""A thread that turns the worker's control stream into an event (the fast path of a schedule).

The main process waits for the event with a timeout of T_W (N-Storm's worker-store cycle), so that
a lost message, a store that was away, or a resident task that ended costs T_W at most.
"""

from __future__ import annotations

import threading

from penstock.errors import PenstockError
from penstock.store.port import NodeStore, WaitControl

_BLOCK_MS = 1_000
_AWAY_S = 0.1


class ControlWatch:
    """`store` is a connection of this thread's own."""

    def __init__(self, store: NodeStore, worker: str) -> None:
        self._store = store
        self._worker = worker
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """From any thread: let `wait` return."""
        self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Until woken, at most `seconds`. True when woken."""
        woken = self._woken.wait(seconds)
        self._woken.clear()
        return woken

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=_BLOCK_MS / 1000 + 1)
        self._store.close()

    def _run(self) -> None:
        seen = 0
        while not self._stopped.is_set():
            try:
                last = self._store.call(WaitControl(self._worker, seen, _BLOCK_MS))
            except PenstockError:
                # The store may come back with a stream that begins anew.
                seen = 0
                self._stopped.wait(_AWAY_S)
                continue
            if last != seen:
                seen = last
                self._woken.set()
