"""How far a source is behind what is there to be read, as the tasks tell that read it.

Pure. Neighbours: `penstock.metrics.rows` has what a task tells, `operators` shows it among an operator's
figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.metrics.rows import TaskRow


@dataclass(frozen=True, slots=True)
class Lag:
    """`records` are there and were not read, over all partitions; `behind_ms` is the time of what was read
    last before now, of the partition where that is longest, 0 where nothing is left."""

    records: int
    behind_ms: int


def lags_of(rows: Iterable[TaskRow], shards: Mapping[str, int]) -> dict[str, Lag]:
    """operator -> its lag, by rows that tell of now. `shards` is operator -> how many it has: where one is
    not told of, what is known of the others is no lag of all."""
    told: dict[str, dict[str, tuple[int, int]]] = {}
    for row in sorted(rows, key=lambda row: row.at_us):
        if row.lag:
            told.setdefault(row.operator, {}).update(row.lag)
    return {
        operator: Lag(
            sum(records for records, _ in lags.values()), max(behind_ms for _, behind_ms in lags.values())
        )
        for operator, lags in told.items()
        if len(lags) >= shards.get(operator, len(lags) + 1)
    }
