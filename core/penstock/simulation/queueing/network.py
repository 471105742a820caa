"""The port between replay and the two ways of simulating: a topology's queues, moved on piece by piece.

A piece is a slot, or the part of one between two happenings. Neighbours: `slot_network` and `exact` implement
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.simulation.queueing.model import FloatArray


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative, [pieces, shards], at the end of each piece; rows and microseconds."""

    arrived: FloatArray
    completed: FloatArray
    waited_us: FloatArray
    served_us: FloatArray


class Network(Protocol):
    @property
    def now_us(self) -> float: ...

    @property
    def pieces_max(self) -> int:
        """How many pieces it can look ahead."""
        ...

    def served_us(self, operator: str) -> FloatArray:
        """[shards], work done so far."""
        ...

    def look(self, ends_us: FloatArray) -> None:
        """Work out what happens until the last of `ends_us`, one a piece, if nobody acts."""
        ...

    def counters(self, operator: str) -> Counters:
        """As of the last look."""
        ...

    def settle(self, pieces: int) -> None:
        """The first `pieces` of the last look have come true, the others are forgotten."""
        ...
