"""Mode Disk: files are synced apart from the hot path, and acknowledged only then.

A sync takes milliseconds of a disk that the store syncs its log to as well, and a task may write to a
file for each of its shards in a batch. What is written and not synced is still in the outbox, so a loss
of power costs writing it again. An acknowledgement stands for all before it, so while some files are
synced, one after the other and with pauses, later writes gather into the next round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from penstock.errors import PermanentError
from penstock.store.port import Acknowledge

PAUSE_S = 0.02
"""Between two files, for the store's own syncs."""


class SinkSync:
    """One thread of a task. `sync` brings to disk what is written of (sink, shard); PermanentError if not."""

    def __init__(self, sync: Callable[[str, str], None]) -> None:
        self._sync = sync
        self._news = threading.Condition()
        self._waiting: dict[tuple[str, str], Acknowledge] = {}
        self._working = False
        self._closed = False
        self._done: list[Acknowledge] = []
        self._error: PermanentError | None = None
        threading.Thread(target=self._run, name="sink-sync", daemon=True).start()

    def submit(self, written: Iterable[Acknowledge]) -> None:
        """Sync what stands behind these; only the last of each pair counts."""
        with self._news:
            for acknowledge in written:
                self._waiting[acknowledge.target, acknowledge.producer] = acknowledge
            self._news.notify()

    def take_synced(self) -> list[Acknowledge]:
        """What is on disk since the last call. Raises PermanentError when a sync failed."""
        with self._news:
            if self._error is not None:
                raise self._error
            done, self._done = self._done, []
            return done

    @property
    def is_busy(self) -> bool:
        """Something was submitted that `take_synced` has not told yet."""
        with self._news:
            return bool(self._waiting or self._working or self._done)

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                batch, self._waiting = self._waiting, {}
                self._working = True
            for (sink, shard), acknowledge in batch.items():
                try:
                    self._sync(sink, shard)
                except PermanentError as error:
                    with self._news:
                        self._error = error
                    return
                with self._news:
                    self._done.append(acknowledge)
                    if self._news.wait_for(lambda: self._closed, PAUSE_S):
                        return
            with self._news:
                self._working = False
