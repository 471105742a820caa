"""When rows came into sink files, seen from outside: a thread looks at their sizes every millisecond.

A task writes a shard's rows when their commit is done, whichever worker it is in, so each growth of a shard's
file is a commit of that shard. Asking the store instead would take its time. Neighbour: `commit_gaps`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

LOOK_S = 0.001


class FileGrowth:
    """`files` is shard -> its file, which need not be there yet. Used as a context."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = {shard: os.fspath(path) for shard, path in files.items()}
        self._seen: dict[str, list[tuple[float, int]]] = {shard: [] for shard in files}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="file-growth", daemon=True)

    def __enter__(self) -> FileGrowth:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def growths(self, shard: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(wall clock seconds, size in bytes from then on) of each growth seen so far."""
        seen = list(self._seen[shard])
        times = np.array([at_s for at_s, _ in seen], dtype=np.float64)
        return times, np.array([size for _, size in seen], dtype=np.int64)

    def last_s(self, shard: str) -> float:
        """When the shard's file grew last; 0 while it has not."""
        seen = self._seen[shard]
        return seen[-1][0] if seen else 0.0

    def _run(self) -> None:
        sizes = dict.fromkeys(self._files, 0)
        while not self._stop.is_set():
            for shard, path in self._files.items():
                with contextlib.suppress(FileNotFoundError):
                    size = os.stat(path).st_size
                    if size > sizes[shard]:
                        sizes[shard] = size
                        self._seen[shard].append((time.time(), size))
            time.sleep(LOOK_S)
