"""Sees sink files grow, from outside: a thread that looks every 20 ms, and when each file grew.

Neighbour: `gaps` makes pauses of it.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

LOOK_S = 0.02
_LIST_S = 0.2
"""So often new files are looked for."""


class SinkWatch:
    """A context. `folder` holds a folder a sink, and need not be there yet. Times are monotonic seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[Path, int] = {}
        self._grew_s: dict[Path, list[float]] = {}
        self._late: list[tuple[float, float]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink-watch", daemon=True)
        self._list_s = 0.0

    def __enter__(self) -> SinkWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def grew_s(self) -> dict[Path, list[float]]:
        """File -> the moments at which it was seen to have grown."""
        return {path: list(moments) for path, moments in list(self._grew_s.items())}

    def span_s(self) -> dict[Path, tuple[float, float]]:
        """File -> the first and the last of these moments."""
        return {path: (moments[0], moments[-1]) for path, moments in list(self._grew_s.items())}

    def late_s(self, begin_s: float, end_s: float) -> float:
        """The longest time between two looks within a span: what this process itself was held up by."""
        return max(
            (after - before for before, after in self._late if before < end_s and after > begin_s),
            default=0.0,
        )

    def _run(self) -> None:
        before_s = time.monotonic()
        while not self._stopped.wait(LOOK_S):
            now_s = time.monotonic()
            if now_s - before_s > 4 * LOOK_S:
                self._late.append((before_s, now_s))
            before_s = now_s
            self._look(now_s)

    def _look(self, now_s: float) -> None:
        if now_s >= self._list_s:
            self._list_s = now_s + _LIST_S
            for path in self._folder.glob("*/*.jsonl"):
                self._sizes.setdefault(path, 0)
        for path, before in self._sizes.items():
            try:
                size = os.stat(path).st_size
            except FileNotFoundError:
                continue
            if size != before:
                self._sizes[path] = size
                self._grew_s.setdefault(path, []).append(now_s)
