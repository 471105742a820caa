"""What wakes the main process: its worker's control stream (the fast path of a schedule), or a task's end.

The main process waits with a timeout of T_W (N-Storm's worker-store cycle), so that a lost message, a store
that was away, or a resident task that ended costs T_W at most. `ControlStream` reads, `ControlWatch` has a
thread for it.
"""

from __future__ import annotations

import threading

from penstock.errors import PenstockError
from penstock.store.port import NodeStore, WaitControl

_BLOCK_MS = 1_000
_AWAY_S = 0.1


class ControlStream:
    """`store` is a connection of its own: it blocks."""

    def __init__(self, store: NodeStore, worker: str) -> None:
        self._store = store
        self._worker = worker
        self._seen = 0

    def has_news(self) -> bool:
        """Block for a while; whether something new has come. Raises what the store raises."""
        before = self._seen
        # A store that was away may come back with a stream that begins anew.
        self._seen = 0
        self._seen = self._store.call(WaitControl(self._worker, before, _BLOCK_MS))
        return self._seen != before

    def close(self) -> None:
        self._store.close()


class ControlWatch:
    """A thread that turns the stream into an event."""

    def __init__(self, stream: ControlStream) -> None:
        self._stream = stream
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
        self._stream.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._stream.has_news():
                    self._woken.set()
            except PenstockError:
                self._stopped.wait(_AWAY_S)
