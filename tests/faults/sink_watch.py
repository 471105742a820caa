"""Sees rows arrive in sink files, from outside: a thread that looks every 20 ms.

What it tells apart are streams: the rows of one source's partition in one sink file, that is in one shard of
the stage before the sink. Neighbour: `gaps` makes pauses of it.
"""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.02
_LIST_S = 0.2
"""So often new files are looked for."""
_PARTITION = re.compile(rb'"line":"(s\d+\.\d+)\.')


@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """`sink`-`stage`-`part`.jsonl, and the partition "SOURCE.NUMBER" that rows come from."""

    sink: str
    stage: str
    part: str
    partition: str

    def words(self) -> str:
        return f"{self.sink} of {self.stage}/{self.part}, rows of {self.partition},"


class SinkWatch:
    """A context. `folder` holds a folder a sink, and need not be there yet. Times are monotonic seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, tuple[int, int]] = {}
        """Descriptor, and up to where it was read."""
        self._grew_s: dict[Stream, list[float]] = {}
        self._late: list[tuple[float, float]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink-watch", daemon=True)
        self._list_s = 0.0

    def __enter__(self) -> SinkWatch:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopped.set()
        self._thread.join()
        for descriptor, _ in self._files.values():
            os.close(descriptor)

    def grew_s(self) -> dict[Stream, list[float]]:
        """Stream -> the moments at which rows of it were seen to have come."""
        return {stream: list(moments) for stream, moments in list(self._grew_s.items())}

    def span_s(self) -> dict[Stream, tuple[float, float]]:
        """Stream -> the first and the last of these moments."""
        return {stream: (moments[0], moments[-1]) for stream, moments in list(self._grew_s.items())}

    def late_s(self, begin_s: float, end_s: float) -> float:
        """The longest time between two looks within a span: what this process itself was held up by."""
        spans = [(before, after) for before, after in self._late if before < end_s and after > begin_s]
        return max((after - before for before, after in spans), default=0.0)

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
                if path not in self._files:
                    self._files[path] = (os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0)
        for path, (descriptor, offset) in self._files.items():
            size = os.fstat(descriptor).st_size
            if size > offset:
                self._files[path] = (descriptor, offset + self._read(path, descriptor, offset, size, now_s))

    def _read(self, path: Path, descriptor: int, offset: int, size: int, now_s: float) -> int:
        """Take the whole lines behind `offset`; answers how many bytes they have."""
        data = os.pread(descriptor, size - offset, offset)
        whole = data[: data.rfind(b"\n") + 1]
        sink, stage, part = path.stem.replace("%2D", "+").split("-")
        for partition in set(_PARTITION.findall(whole)):
            stream = Stream(sink, stage, part, partition.decode())
            self._grew_s.setdefault(stream, []).append(now_s)
        return len(whole)
