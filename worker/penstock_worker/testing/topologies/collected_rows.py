"""What comes out, kept for the test in the place of a sink.

Each shard's rows keep their order, as for real. Those of several shards have none between them; here they
stand by the time of the rows they came of, so that a test reads them as it has fed. Neighbours:
`observed_plan` says what is collected, `shown_rows` how a test gets it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from penstock.store.codec import decode_batch
from penstock_worker.values.rows import WireRow


class CollectedRows:
    """The rows of one sink, for all shards that feed it. Keeps the port `SinkWriter`."""

    def __init__(self) -> None:
        self.rows: list[WireRow] = []
        """Of all moments that are over."""
        self._entries: dict[str, list[list[tuple[int, WireRow]]]] = {}
        """By shard, rows with their source timestamps: a position counts entries."""
        self._gathered: dict[str, int] = {}
        """So many of them are in `rows`."""

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        there, start = self._entries.setdefault(shard, []), int(position or b"0")
        end = start + len(entries)
        there[start:end] = [_timed_rows(payload) for _, payload in entries]
        return b"%d" % end

    def end_moment(self) -> None:
        """All that was to come of what the test did has come."""
        new = []
        for shard, entries in self._entries.items():
            begin = self._gathered.get(shard, 0)
            new.append([row for entry in entries[begin:] for row in entry])
            self._gathered[shard] = len(entries)
        # Each list is taken from its front alone, whatever its times: so a shard's order stays.
        self.rows += [row for _, row in heapq.merge(*new, key=lambda timed: timed[0])]

    def check(self, shard: str, position: bytes) -> None:
        """Nobody else writes here."""

    def sync(self, shard: str) -> None:
        """There is no disk."""

    def close(self) -> None:
        """It is the test's."""


def _timed_rows(payload: bytes) -> list[tuple[int, Any]]:
    batch = decode_batch(payload)
    return [
        (batch.base_us + delta_us, row) for delta_us, row in zip(batch.deltas_us, batch.rows, strict=True)
    ]
