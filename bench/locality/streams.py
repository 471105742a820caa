"""What a host's source reads: (first, second, padding), with keys drawn ahead from a seed.

A stream is a file in the run's folder; sources look every `LOOK_S` whether another one is there, so that the
same system runs one after the other. A row follows from the number that it has in its partition, as a reader
has to promise. Neighbours: `synthetic` and `tags` draw the keys, `worker` reads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock_worker.sources.reader import SourceBatch

FILE = "stream.msgpack"
PAUSE = "pause"
LOOK_S = 0.05
_WAIT_US = 5_000
_BURST_S = 0.05
"""A source that was held back makes up for so much at once, and not for more."""
_LETTERS = "0123456789abcdef" * 64


class Stream(msgspec.Struct, frozen=True):
    """`pairs` are the keys of a partition's rows, in order, over and over; `rate_per_s` is what each
    partition makes at most."""

    pairs: Mapping[str, Sequence[tuple[Any, Any]]]
    padding_bytes: int
    rate_per_s: float


_decode = msgspec.msgpack.Decoder(Stream).decode


def set_stream(folder: Path, stream: Stream) -> None:
    """Whole or not at all."""
    (folder / f"{FILE}.new").write_bytes(msgspec.msgpack.encode(stream))
    (folder / f"{FILE}.new").rename(folder / FILE)


def padding(size_bytes: int) -> str:
    return (_LETTERS * (size_bytes // len(_LETTERS) + 1))[:size_bytes]


class StreamReader:
    """Keeps the port `SourceReader`."""

    paced = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._look_at_s = 0.0
        self._stamp = 0
        self._stream: Stream | None = None
        self._padding = ""
        self._pauses = False
        self._last_us: dict[str, int] = {}
        self._allowed: dict[str, float] = {}

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        self._last_us[shard] = now_us
        self._allowed[shard] = 0.0

    def release(self, shard: str) -> None:
        self._last_us.pop(shard, None)

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        stream = self._looked()
        if stream is None:
            self._last_us[shard] = now_us
            return SourceBatch([], [], position, False, now_us + int(LOOK_S * 1e6))
        burst = max(1.0, stream.rate_per_s * _BURST_S)
        allowed = self._allowed[shard] + (now_us - self._last_us[shard]) * stream.rate_per_s / 1e6
        allowed = min(burst, allowed)
        self._last_us[shard] = now_us
        by_bytes = 1 + bytes_max // (stream.padding_bytes + 32)
        count = min(int(allowed), rows_max, by_bytes)
        self._allowed[shard] = allowed - count
        if not count:
            due_us = now_us + max(_WAIT_US, int((1 - allowed) / stream.rate_per_s * 1e6))
            return SourceBatch([], [], position, False, due_us)
        pairs, padded = stream.pairs[shard], self._padding
        start = int(position or b"0")
        rows = [(*pairs[number % len(pairs)], padded) for number in range(start, start + count)]
        return SourceBatch(rows, [now_us] * count, b"%d" % (start + count), False, now_us + _WAIT_US)

    def grew(self, shard: str, position: bytes) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""

    def _looked(self) -> Stream | None:
        """The stream as it is now; None while there is none, or sources pause."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_S
            self._pauses = (self._folder / PAUSE).exists()
            file = self._folder / FILE
            stamp = file.stat().st_ino if file.exists() else 0
            if stamp != self._stamp:
                self._stamp, self._stream = stamp, _decode(file.read_bytes())
                self._padding = padding(self._stream.padding_bytes)
        return None if self._pauses else self._stream
