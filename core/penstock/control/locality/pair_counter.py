"""Counts pairs of keys in bounded memory: SpaceSaving (Metwally et al., ICDT 2005), many records at a time.

SpaceSaving gives a new pair the counter of the least frequent one, with what that had counted as the error.
Here many new ones take over at once: they come in above the floor, the most that any pair without a counter
may have been seen; where they are too many, the least frequent go, and the floor is the most that one of them
had. If k counters stay each time, the floor is at most records / (k + 1), as with the paper's own (record
0047 has the proof; it is that of merges in Agarwal et al., Mergeable Summaries, PODS 2012).

Counters are arrays of numbers. A pair is told by 64 bits of Python's hashes of its keys; the keys themselves
are held of some of the records that wait, and written down of a pair that is met again: most of a long tail
never are. Neighbours: a task has one for each edge; `pair_summary` is what comes out.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from sys import getsizeof
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.control.locality.pair_summary import Integers, Key, PairSummary

Ids = NDArray[np.uint64]

LIMIT_BYTES = 1 << 20
"""Of a task's memory, for one edge; what the paper gives an instance."""
LIMIT_BYTES_MIN = 1 << 16
PAIR_BYTES_MAX = 512
"""Of a packed pair; a longer one stays without a name, as the router remembers no longer keys either."""

_WAITING_SHARE = 1 / 320
"""Records that wait until they are counted together, by byte of the limit; they take a quarter of it."""
_HELD_SHARE, _KEPT_SHARE = 0.15, 0.45
"""Of the limit: keys of records that wait, and counters with their names. As much as is held may be written
down before the least frequent go."""
_AFTER_PRUNING = 0.75
_LOOK_SHARE = 1 / 8192
"""Records that are looked at at once, by byte of the limit."""
_PLACES_BYTES = 16
"""In two lists."""
_COUNTER_BYTES = 72
"""A pair's numbers, and as much again while they are put in order."""
_NAME_BYTES = 33
"""Of bytes, beside what they hold."""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[tuple[Any, ...], tuple[Any, ...]]).decode


class PairCounter:
    """Pairs of one edge as one task meets them. Not thread safe.

    `limit_bytes` bounds what it holds at any moment of `count`. ValueError below 64 KiB.
    """

    __slots__ = (
        "_counts", "_errors", "_floor", "_held_bytes", "_held_bytes_max", "_ids", "_kept_bytes_max", "_look",
        "_name_bytes", "_names", "_received", "_received_ids", "_records", "_sent", "_sent_ids",
        "_waiting_max",
    )  # fmt: skip

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        if limit_bytes < LIMIT_BYTES_MIN:
            raise ValueError(
                f"pairs are counted in {LIMIT_BYTES_MIN} bytes at least, {limit_bytes} are given"
            )
        self._look = int(limit_bytes * _LOOK_SHARE)
        self._waiting_max = int(limit_bytes * _WAITING_SHARE)
        self._held_bytes_max = int(limit_bytes * _HELD_SHARE)
        self._kept_bytes_max = int(limit_bytes * _KEPT_SHARE)
        self.reset()

    def reset(self) -> None:
        """Begin anew, as at each change of a table: what is counted is what came since (section 3.2)."""
        self._records = 0
        self._floor = 0
        self._await()
        # Of each pair that has a counter, by ascending id; a name is its packed keys, of 0 bytes if None.
        self._ids: Ids = np.zeros(0, np.uint64)
        self._counts: Integers = np.zeros(0, np.int64)
        self._errors: Integers = np.zeros(0, np.int64)
        self._names: NDArray[np.object_] = np.zeros(0, np.object_)
        self._name_bytes: NDArray[np.int32] = np.zeros(0, np.int32)

    def _await(self) -> None:
        """No record waits."""
        self._received_ids, self._sent_ids = array("q"), array("q")
        # Keys of the first of these, as many as may be held.
        self._received: list[Key] = []
        self._sent: list[Key] = []
        self._held_bytes = 0

    def count(self, received: Sequence[Key], sent: Sequence[Key]) -> None:
        """A batch: for each record that was sent, the key that it came of and its own. ValueError if they are
        not equally many; TypeError for keys that are no wire values, perhaps only later."""
        if len(received) != len(sent):
            raise ValueError(f"{len(received)} keys received, {len(sent)} sent")
        if len(sent) <= self._look:
            self._take(received, sent)
            return
        for start in range(0, len(sent), self._look):
            end = start + self._look
            self._take(received[start:end], sent[start:end])

    def _take(self, received: Sequence[Key], sent: Sequence[Key]) -> None:
        if self._held_bytes <= self._held_bytes_max:
            self._held_bytes += _PLACES_BYTES * len(sent) + _held_bytes(received) + _held_bytes(sent)
            if self._held_bytes <= self._held_bytes_max:
                self._received += received
                self._sent += sent
        self._records += len(sent)
        self._received_ids.extend(map(hash, received))
        self._sent_ids.extend(map(hash, sent))
        if len(self._sent_ids) > self._waiting_max:
            self._fold()

    def summary(self) -> PairSummary:
        """What was counted since the start or `reset`; goes on counting. Takes memory beyond the limit for
        as long as it is held."""
        self._fold()
        is_named = self._name_bytes > 0
        nameless = self._counts[~is_named]
        return PairSummary(
            records=self._records,
            floor=max(self._floor, int(nameless.max(initial=0))),
            pairs=tuple(map(_unpack, self._names[is_named])),
            counts=self._counts[is_named],
            errors=self._errors[is_named],
        )

    def _fold(self) -> None:
        """Take what waits into the counters, and forget what does not fit."""
        if not self._sent_ids:
            return
        received, sent = self._received, self._sent
        ids = _mixed(self._received_ids, self._sent_ids)
        self._await()
        order = np.argsort(ids)
        ids = ids[order]
        starts = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), ids[1:] != ids[:-1])))
        # The first record of each pair: the likeliest to have its keys held.
        example = np.minimum.reduceat(order, starts)
        weights = np.diff(starts, append=len(ids))
        ids = ids[starts]
        del order, starts
        at = np.searchsorted(self._ids, ids)
        is_known = np.zeros(len(ids), np.bool_)
        inside = at < len(self._ids)
        is_known[inside] = self._ids[at[inside]] == ids[inside]
        known = at[is_known]
        self._counts[known] += weights[is_known]
        can_name = example < len(sent)
        to_name = is_known & can_name
        to_name[is_known] &= self._name_bytes[known] == 0
        for place, record in zip(at[to_name].tolist(), example[to_name].tolist(), strict=True):
            self._names[place], self._name_bytes[place] = _name(received[record], sent[record])
        is_new = ~is_known
        weights, example = weights[is_new], example[is_new]
        names = np.full(len(weights), None, np.object_)
        name_bytes = np.zeros(len(weights), np.int32)
        for place in np.flatnonzero((weights > 1) & can_name[is_new]).tolist():
            record = example[place]
            names[place], name_bytes[place] = _name(received[record], sent[record])
        del received, sent
        self._insert(at[is_new], ids[is_new], weights, names, name_bytes)
        self._prune()

    def _insert(
        self,
        at: Integers,
        ids: Ids,
        weights: Integers,
        names: NDArray[np.object_],
        name_bytes: NDArray[np.int32],
    ) -> None:
        """New pairs, by ascending id, each before the one at `at`."""
        places = at + np.arange(len(at))
        is_old = np.ones(len(self._ids) + len(ids), np.bool_)
        is_old[places] = False
        self._ids = _joined(is_old, self._ids, ids)
        self._counts = _joined(is_old, self._counts, weights + self._floor)
        self._errors = _joined(is_old, self._errors, np.full(len(ids), self._floor))
        self._names = _joined(is_old, self._names, names)
        self._name_bytes = _joined(is_old, self._name_bytes, name_bytes)

    def _prune(self) -> None:
        held_bytes = len(self._ids) * _COUNTER_BYTES + int(self._name_bytes.sum())
        if held_bytes <= self._kept_bytes_max:
            return
        room = self._kept_bytes_max * _AFTER_PRUNING
        kept = int(len(self._ids) * room / held_bytes)
        while True:
            # As many of the most frequent; among equals those that come first here.
            self._floor = int(np.partition(self._counts, -kept - 1)[-kept - 1])
            stays = self._counts > self._floor
            equals = np.flatnonzero(self._counts == self._floor)
            stays[equals[: kept - np.count_nonzero(stays)]] = True
            if kept * _COUNTER_BYTES + int(self._name_bytes[stays].sum()) <= self._kept_bytes_max:
                break
            kept = int(kept * _AFTER_PRUNING)
        self._ids, self._names, self._name_bytes = (
            self._ids[stays],
            self._names[stays],
            self._name_bytes[stays],
        )
        self._counts, self._errors = self._counts[stays], self._errors[stays]


def _held_bytes(keys: Sequence[Key]) -> int:
    """What they keep alive, as if no two were the same."""
    return sum(map(getsizeof, keys)) + sum(map(getsizeof, chain.from_iterable(keys)))


def _mixed(received: array[int], sent: array[int]) -> Ids:
    """One number a pair, of two hashes."""
    first, second = np.frombuffer(received, np.uint64), np.frombuffer(sent, np.uint64)
    mixed: Ids = first * _ODD ^ (second >> _HALF | second << _HALF)
    mixed ^= mixed >> _SHIFT
    return mixed * _ODD


_ODD, _HALF, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(29)


def _name(received: Key, sent: Key) -> tuple[bytes | None, int]:
    """A pair's packed keys, and what they take; neither for a pair that is too long."""
    packed = _pack((received, sent))
    return (packed, len(packed) + _NAME_BYTES) if len(packed) <= PAIR_BYTES_MAX else (None, 0)


def _joined(is_old: NDArray[np.bool_], old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    made = np.empty(len(is_old), old.dtype)
    made[is_old] = old
    made[~is_old] = new
    return made
