"""Which batches are counted: a share of them, drawn by lot, so that counting costs no more than its share.

By lot, since batches of shards come in turn: every fourth one would be of the same shards. Neighbours: a task
asks before it gathers a batch's keys for its `pair_counter`; what the share is makes no difference to the
shares of pairs that tables are made from.
"""

from __future__ import annotations

import math
from random import Random


class BatchSampling:
    """`share` of all batches, above 0 and at most 1; ValueError for another one."""

    __slots__ = ("_before_next", "_log_rest", "_rng")

    def __init__(self, share: float, rng: Random) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"the share of batches that are counted is {share}")
        self._rng = rng
        self._log_rest = math.log1p(-share) if share < 1 else -math.inf
        self._before_next = self._drawn()

    def is_due(self) -> bool:
        """Asked once for each batch."""
        if self._before_next:
            self._before_next -= 1
            return False
        self._before_next = self._drawn()
        return True

    def _drawn(self) -> int:
        """Batches that are passed over before the next one: a geometric number."""
        return int(math.log(1.0 - self._rng.random()) / self._log_rest)
