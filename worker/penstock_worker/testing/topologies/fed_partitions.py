"""The reader of a source whose rows a test feeds.

A position is how many rows of its partition were read, so whoever goes on at one gets the same rows.
Neighbours: `one_node` asks for rows, `given_rows` makes them of what a test writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from penstock.store.codec import pack
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.values.rows import WireRow

NEVER_US = 1 << 62


class _FedRow(NamedTuple):
    values: tuple[object, ...]
    at_us: int
    size_bytes: int


class FedPartitions:
    """All partitions of one source. Keeps the port `SourceReader`."""

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[_FedRow]] = defaultdict(list)
        self._ended: set[str] = set()

    @property
    def paced(self) -> bool:
        return False

    def put(self, shard: str, rows: Sequence[WireRow], now_us: int) -> None:
        """Rows come, the last one now. Each has a time of its own: what comes of them then has an order."""
        first_us = now_us - len(rows)
        self._rows[shard] += [
            _FedRow(tuple(row), at_us, len(pack(row))) for at_us, row in enumerate(rows, start=first_us)
        ]

    def end(self, shard: str) -> None:
        """No rows come any more."""
        self._ended.add(shard)

    def has_ended(self, shard: str) -> bool:
        return shard in self._ended

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        """All of it is there."""

    def release(self, shard: str) -> None:
        """Rows are the test's, and not a task's."""

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        there, start = self._rows[shard], int(position or b"0")
        taken: list[_FedRow] = []
        size_bytes = 0
        for row in there[start : start + rows_max]:
            size_bytes += row.size_bytes
            if taken and size_bytes > bytes_max:
                break
            taken.append(row)
        end = start + len(taken)
        is_over = end == len(there) and shard in self._ended
        return SourceBatch(
            [row.values for row in taken],
            [row.at_us for row in taken],
            b"%d" % end if taken else position,
            finished=is_over,
            next_due_us=None if taken or is_over else NEVER_US,
        )

    def grew(self, shard: str, position: bytes) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""
