"""A thread of a task that takes the turns of one batched sink, with a connection to the store of its own."""

from __future__ import annotations

import threading

from penstock_worker.sinks.batches.turns import BatchTurns

CLOSE_S = 1.5
"""A batch that is under way may end; a task that retires has two seconds."""


class BatchThread:
    def __init__(self, turns: BatchTurns, name: str) -> None:
        self._turns = turns
        self._news = threading.Event()
        self._is_waiting = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something was handed over. A thread that gathers, or writes, sees it in time by itself."""
        if self._is_waiting.is_set():
            self._news.set()

    def close(self) -> None:
        self._closing.set()
        self._news.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._closing.is_set():
            wait_us = self._turns.turn()
            if wait_us is None:
                self._is_waiting.set()
                wait_us = self._turns.turn()
            if wait_us is None:
                if not self._closing.is_set():
                    self._news.wait()
            elif wait_us > 0:
                self._closing.wait(wait_us / 1_000_000)
            self._is_waiting.clear()
            self._news.clear()
        self._turns.close()
