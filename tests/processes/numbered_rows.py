"""A source for tests whose rows say which they are: (name of the partition, number), one at a time.

Keeps the port `SourceReader`.
"""

from __future__ import annotations

from penstock_worker.sources.reader import SourceBatch

Row = tuple[str, int]


class NumberedRows:
    """`records` rows of each partition, numbered from 0 on, one every `gap_us`."""

    paced = True

    def __init__(self, records: int, gap_us: int) -> None:
        self._records = records
        self._gap_us = gap_us
        self._due_us: dict[str, int] = {}

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        self._due_us[shard] = now_us

    def release(self, shard: str) -> None:
        self._due_us.pop(shard, None)

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        number = int(position or b"0")
        due_us = self._due_us[shard]
        if now_us < due_us:
            return SourceBatch([], [], position, False, due_us)
        due_us = self._due_us[shard] = now_us + self._gap_us
        # Whoever opens it once more finds that it grew by a row.
        finished = number + 1 >= self._records
        row: Row = (f"{shard}:{number}", number)
        return SourceBatch([row], [now_us], b"%d" % (number + 1), finished, None if finished else due_us)

    def grew(self, shard: str, position: bytes) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""
