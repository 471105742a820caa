"""How long no row comes out of a run: the sink files of a running topology, looked at all the time.

Neighbours: `test_process_tree` kills while this looks on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

LOOK_S = 0.02


class GapMeter:
    """Sizes of the files below a folder; `grew_s` are the moments at which they had grown."""

    def __init__(self, folder: Path, pattern: str = "*.jsonl") -> None:
        self._folder = folder
        self._pattern = pattern
        self._ended = threading.Event()
        self.grew_s: list[float] = []

    def _bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.rglob(self._pattern))

    def _look(self) -> None:
        before = self._bytes()
        while not self._ended.wait(LOOK_S):
            now = self._bytes()
            if now != before:
                self.grew_s.append(time.monotonic())
            before = now

    @contextmanager
    def looking(self) -> Iterator[GapMeter]:
        thread = threading.Thread(target=self._look, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def rows_since(self, at_s: float) -> bool:
        return bool(self.grew_s) and self.grew_s[-1] > at_s

    def gap_s(self, around_s: float, until_s: float) -> float:
        """The longest time without a row from shortly before `around_s` to `until_s`."""
        before = [at for at in self.grew_s if at <= around_s][-1:] or [around_s]
        moments = [*before, *(at for at in self.grew_s if around_s < at <= until_s), until_s]
        return max(after - earlier for earlier, after in pairwise(moments))
