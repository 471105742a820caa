"""The processor of the bench of moves: a value of 1 KiB a key, so that a shard holds as much as it has keys.

`pools.npz` beside this says which keys each shard has, `hot` which shard gets most of the records: 4 of 7,
the others share the rest evenly. A record draws its key from its number. Named by `topologies/holding.yaml`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

STATE_SCHEMA = "total bigint, held string"
HERE = Path(__file__).parent
HOT_PARTS, PARTS = 4, 7
LOOK_S = 0.05
GOLDEN = 11_400_714_819_323_198_485
"""2 to the 64th by the golden ratio: multiples of it spread evenly (Knuth's multiplicative hash)."""


class Spread:
    """Record -> key. The hot shard is looked up anew every `LOOK_S`."""

    def __init__(self) -> None:
        self._pools: list[list[int]] = []
        self._hot = 0
        self._look_at_s = 0.0

    def key(self, number: int) -> int:
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look(now_s)
        part = number % PARTS
        shard = self._hot
        if part >= HOT_PARTS:
            shard = (self._hot + 1 + part - HOT_PARTS) % len(self._pools)
        pool = self._pools[shard]
        return pool[(number * GOLDEN % (1 << 64)) * len(pool) >> 64]

    def _look(self, now_s: float) -> None:
        self._look_at_s = now_s + LOOK_S
        self._hot = int((HERE / "hot").read_text())
        if not self._pools:
            with np.load(HERE / "pools.npz") as found:
                self._pools = [found[name].tolist() for name in sorted(found.files)]


_spread = Spread()


def spread(row: Row) -> list[tuple[int, int]]:
    """Give a record of the generator its key."""
    return [(_spread.key(row.number), row.number)]


class Hold(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """(key, number) rows in; one (key, oldest number, rows, rows of this key so far) out for each group."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", STATE_SCHEMA)

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._state.get()
        total, held = (0, "") if before is None else before
        numbers = [row.number for row in rows]
        total += len(numbers)
        self._state.update((total, held))
        yield Row(key=key[0], number=min(numbers), rows=len(numbers), total=total)

    def close(self) -> None:
        """Nothing is held open."""
