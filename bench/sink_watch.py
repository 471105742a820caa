"""Sees rows arrive in files that are being written, from outside: a thread that looks every few milliseconds.

Files are JSON lines with the columns number and process; each whole line is a row, seen at the moment of
the look. Neighbour: `step_figures` works out what the rows tell.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
from bench.step_figures import Rows

LOOK_S = 0.005
LIST_S = 0.1
"""So often new files are looked for."""


class _Row(msgspec.Struct):
    number: int
    process: int


class SinkWatch:
    """A context. `folder` need not be there yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, tuple[int, int]] = {}
        self._seen: list[tuple[int, int, int]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink-watch", daemon=True)
        self._decoder = msgspec.json.Decoder(_Row)
        self._list_s = 0.0

    def __enter__(self) -> SinkWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """Close the files; a context does so itself."""
        for descriptor, _ in self._files.values():
            os.close(descriptor)

    def rows(self) -> Rows:
        """All rows so far."""
        seen = list(self._seen)
        table = np.array(seen, dtype=np.int64).reshape(len(seen), 3)
        return Rows(table[:, 1], table[:, 2], table[:, 0])

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_S):
            self._look()
        self._look()

    def _look(self) -> None:
        if time.monotonic() >= self._list_s:
            self._list_s = time.monotonic() + LIST_S
            for path in self._folder.glob("*.jsonl"):
                if path not in self._files:
                    self._files[path] = (os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0)
        for path, (descriptor, offset) in self._files.items():
            size = os.fstat(descriptor).st_size
            if size > offset:
                self._files[path] = (descriptor, offset + self._read(descriptor, offset, size))

    def _read(self, descriptor: int, offset: int, size: int) -> int:
        """Take the whole lines behind `offset`; answers how many bytes they have."""
        data = os.pread(descriptor, size - offset, offset)
        at_us = time.time_ns() // 1000
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            row = self._decoder.decode(line)
            self._seen.append((at_us, row.number, row.process))
        return len(whole)
