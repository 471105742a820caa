"""SpaceSaving (Metwally et al., ICDT 2005) of things told by 64-bit ids, many at a time, in arrays.

SpaceSaving gives a new thing the counter of the least frequent one, with what that had counted as the error.
Here many new ones take over at once: they come in above the floor, the most that anything without a counter
may have been seen; where they are too many, the least frequent go, and the floor is the most that one of them
had. If k counters stay each time, the floor is at most records / (k + 1), as with the paper's own (record
0047 has the proof; it is that of merges in Agarwal et al., Mergeable Summaries, PODS 2012).

Neighbours: `pair_counter` counts pairs of keys with it, and the keys that came first in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.control.locality.pair_summary import Integers

Ids = NDArray[np.uint64]
Mask = NDArray[np.bool_]


class IdCounters:
    """`ids` ascend; the true count of `ids[i]` is at most `counts[i]`, and at least `errors[i]` less."""

    __slots__ = ("counts", "errors", "floor", "ids")

    def __init__(self) -> None:
        self.ids: Ids = np.zeros(0, np.uint64)
        self.counts: Integers = np.zeros(0, np.int64)
        self.errors: Integers = np.zeros(0, np.int64)
        self.floor = 0

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, ids: Ids) -> tuple[Integers, Mask]:
        """(where each of `ids` is or would be, whether it is there)."""
        return find(ids, self.ids)

    def add(self, at: Integers, weights: Integers) -> None:
        """Those at these places came so often more; no place twice."""
        self.counts[at] += weights

    def insert(self, at: Integers, ids: Ids, weights: Integers) -> Mask:
        """New ones, ascending, each before the one at `at`. Answers which of all were there before."""
        is_old = np.ones(len(self.ids) + len(ids), np.bool_)
        is_old[at + np.arange(len(at))] = False
        self.ids = joined(is_old, self.ids, ids)
        self.counts = joined(is_old, self.counts, weights + self.floor)
        self.errors = joined(is_old, self.errors, np.full(len(ids), self.floor))
        return is_old

    def most_frequent(self, kept: int) -> tuple[Mask, int]:
        """So many of the most frequent, fewer than there are; among equals those that come first here. And
        the most that one of the others has."""
        floor = int(np.partition(self.counts, -kept - 1)[-kept - 1])
        stays = self.counts > floor
        equals = np.flatnonzero(self.counts == floor)
        stays[equals[: kept - np.count_nonzero(stays)]] = True
        return stays, floor

    def keep(self, stays: Mask, floor: int) -> None:
        """What `most_frequent` answered."""
        self.floor = floor
        # One after the other: each is there twice for a moment.
        self.ids = self.ids[stays]
        self.counts = self.counts[stays]
        self.errors = self.errors[stays]

    def count(self, ids: Ids, counters_max: int, kept: int) -> None:
        """These came, some of them several times; where there are more than `counters_max` then, `kept`
        stay."""
        ids, weights = np.unique(ids, return_counts=True)
        at, is_known = self.find(ids)
        self.add(at[is_known], weights[is_known])
        self.insert(at[~is_known], ids[~is_known], weights[~is_known])
        if len(self) > counters_max:
            self.keep(*self.most_frequent(kept))


def find(ids: Ids, among: Ids) -> tuple[Integers, Mask]:
    """(where each of `ids` is, or would be, among ascending ones; whether it is there)."""
    at = np.searchsorted(among, ids)
    is_there = np.zeros(len(ids), np.bool_)
    inside = at < len(among)
    is_there[inside] = among[at[inside]] == ids[inside]
    return at, is_there


def joined(is_old: Mask, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """`old` and `new` in one array, where `is_old` says."""
    made = np.empty(len(is_old), old.dtype)
    made[is_old] = old
    made[~is_old] = new
    return made
