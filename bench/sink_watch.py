"""Sees rows arrive in files that are being written, from outside: a thread that looks every few milliseconds.

Files are JSON lines; each whole line is a row, seen at the moment of the look. Neighbours: `step_figures` and
`window_delays` work out what the rows tell.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Generic, Self, TypeVar

import msgspec
import numpy as np
from bench.step_figures import Rows

LOOK_S = 0.005
LIST_S = 0.1
"""So often new files are looked for."""


Row = TypeVar("Row", bound=msgspec.Struct)


class LineWatch(Generic[Row]):
    """A context. `folder` need not be there yet; `row` has the columns that are of interest."""

    def __init__(self, folder: Path, row: type[Row]) -> None:
        self._folder = folder
        self._files: dict[Path, tuple[int, int]] = {}
        self.seen: list[tuple[int, Row]] = []
        """When each row was seen, in microseconds since 1970."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink-watch", daemon=True)
        self._decoder = msgspec.json.Decoder(row)
        self._list_s = 0.0

    def __enter__(self) -> Self:
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
            self.seen.append((at_us, self._decoder.decode(line)))
        return len(whole)


class _Worked(msgspec.Struct):
    number: int
    process: int


class SinkWatch(LineWatch[_Worked]):
    """Of rows that say by which process a record was worked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, _Worked)

    def rows(self) -> Rows:
        """All rows so far."""
        seen = [(row.number, row.process, at_us) for at_us, row in list(self.seen)]
        table = np.array(seen, dtype=np.int64).reshape(len(seen), 3)
        return Rows(table[:, 0], table[:, 1], table[:, 2])
