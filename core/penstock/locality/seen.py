"""What one look shows who decides on tables. Values only.

Neighbours: `penstock run` and the cluster's operator make looks, `counted` and `loop` read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalitySeen:
    """One moment. `rows` are the packed rows of counted pairs of all stores, by any name; `tasks` is
    executor -> tasks, of operators that count; `homes` is operator -> shard -> node of its home, of all
    stages; `counts` is shard -> what its record counts, of shards of which that is known. `capacity` is node
    -> what it can hold, in any unit; `state_bytes` operator -> what its state takes, where that is known.
    `held` says in words why nothing new may be begun."""

    at_us: int
    rows: Mapping[str, bytes]
    tasks: Mapping[str, Mapping[str, int]]
    """By operator."""
    homes: Mapping[str, Mapping[str, str]]
    counts: Mapping[str, Mapping[str, int]]
    capacity: Mapping[str, float]
    state_bytes: Mapping[str, float]
    held: str = ""

    def shards_of(self, operators: Sequence[str]) -> list[str]:
        """The names of all shards of these operators."""
        return [shard for operator in operators for shard in self.homes.get(operator, ())]
