"""Counts pairs of keys in bounded memory, many records at a time.

A pair is told by 64 bits of Python's hashes of its keys; the keys themselves are held of records that wait
and whose pair is not written down yet, as many as there is room for, and written down of a pair that is met
again: most of a long tail never are. Keys received are counted by themselves besides, since what a key
weighs is more than its pairs that have names. Neighbours: `id_counters` is the algorithm; a task has a
counter for each edge; `pair_summary` is what comes out.
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

from penstock.control.locality.id_counters import IdCounters, Ids, find, joined
from penstock.control.locality.pair_summary import Integers, Key, Pair, PairSummary

LIMIT_BYTES = 1 << 20
"""Of a task's memory, for one edge; what the paper gives an instance."""
LIMIT_BYTES_MIN = 1 << 16
PAIR_BYTES_MAX = 512
"""Of a packed pair; a longer one stays without a name, as the router remembers no longer keys either."""

_FIXED_BYTES = 16_384
"""What arrays and lists take besides what is in them; shares are of the rest of the limit."""
_WAITING_SHARE = 1 / 448
"""Records that wait until they are counted together, by byte."""
_FRESH_SHARE, _HELD_SHARE, _KEPT_SHARE = 0.05, 0.23, 0.45
"""Keys of records that are not looked at yet, keys of those that wait, and counters with their
names. As much as is held may be written down before the least frequent go."""
_RECEIVED_SHARE = 1 / 1024
"""Counters of keys received, by byte."""
_AFTER_PRUNING = 0.75
_LOOK_SHARE = 1 / 8192
"""Records that are looked at at once, by byte."""
_AT_ONCE = 32
"""A batch of so many records is looked at by itself."""
_PLACES_BYTES, _HOLD_BYTES = 16, 24
"""In two lists; with an id."""
_COUNTER_BYTES = 48
"""A pair's numbers, and some of them twice while they are put in order."""
_NAME_BYTES = 33
"""Of bytes, beside what they hold."""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[tuple[Any, ...], tuple[Any, ...]]).decode


class _HeldKeys:
    """Keys of records that wait and whose pair has no name, by the pair's id."""

    __slots__ = ("_ids", "_received", "_room_bytes", "_sent")

    def __init__(self, bytes_max: int) -> None:
        self._ids = array("Q")
        self._received: list[Key] = []
        self._sent: list[Key] = []
        self._room_bytes = bytes_max

    @property
    def is_full(self) -> bool:
        return self._room_bytes <= 0

    def hold(self, ids: Ids, received: Sequence[Key], sent: Sequence[Key]) -> None:
        """Where there is no room for all of them none is, and no others are held."""
        self._room_bytes -= len(ids) * _HOLD_BYTES + _held_bytes(received) + _held_bytes(sent)
        if self._room_bytes > 0:
            self._ids.frombytes(ids.tobytes())
            self._received += received
            self._sent += sent

    def places(self, ids: Ids) -> tuple[Integers, NDArray[np.bool_]]:
        """(where keys of each of `ids` are, whether they are held)."""
        held = _as_ids(self._ids)
        order = np.argsort(held)
        at, is_held = find(ids, held[order])
        places = np.zeros(len(ids), np.int64)
        places[is_held] = order[at[is_held]]
        return places, is_held

    def taken(self, place: int) -> Pair:
        """Its keys, which are held no longer: a name takes their room."""
        pair = self._received[place], self._sent[place]
        self._received[place] = self._sent[place] = ()
        return pair


class PairCounter:
    """Pairs of one edge as one task meets them. Not thread safe.

    `limit_bytes` bounds what it holds at any moment of `count`. ValueError below 64 KiB.
    """

    __slots__ = (
        "_fresh_bytes", "_fresh_bytes_max", "_held", "_held_bytes_max", "_kept_bytes_max", "_look",
        "_name_bytes", "_names", "_pairs", "_received", "_received_max", "_received_seen", "_records",
        "_sent", "_waiting", "_waiting_max", "_waiting_received",
    )  # fmt: skip

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        if limit_bytes < LIMIT_BYTES_MIN:
            raise ValueError(
                f"pairs are counted in {LIMIT_BYTES_MIN} bytes at least, {limit_bytes} are given"
            )
        shared_bytes = limit_bytes - _FIXED_BYTES
        self._look = int(shared_bytes * _LOOK_SHARE)
        self._waiting_max = int(shared_bytes * _WAITING_SHARE)
        self._fresh_bytes_max = int(shared_bytes * _FRESH_SHARE)
        self._held_bytes_max = int(shared_bytes * _HELD_SHARE)
        self._kept_bytes_max = int(shared_bytes * _KEPT_SHARE)
        self._received_max = int(shared_bytes * _RECEIVED_SHARE)
        self.reset()

    def reset(self) -> None:
        """Begin anew, as at each change of a table: what is counted is what came since (section 3.2)."""
        self._records = 0
        self._refresh()
        self._await()
        self._pairs, self._received_seen = IdCounters(), IdCounters()
        # Of each pair that has a counter; a name is its packed keys, of 0 bytes if None.
        self._names: NDArray[np.object_] = np.zeros(0, np.object_)
        self._name_bytes: NDArray[np.int32] = np.zeros(0, np.int32)

    def _refresh(self) -> None:
        """All records were looked at."""
        self._received: list[Key] = []
        self._sent: list[Key] = []
        self._fresh_bytes = 0

    def _await(self) -> None:
        """No record waits."""
        self._waiting, self._waiting_received = array("Q"), array("q")
        self._held = _HeldKeys(self._held_bytes_max)

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
        # numpy pays for many records at once, and a batch may have few.
        if len(sent) < _AT_ONCE:
            self._fresh_bytes += _PLACES_BYTES * len(sent) + _held_bytes(received) + _held_bytes(sent)
            self._received += received
            self._sent += sent
            if len(self._sent) < self._look and self._fresh_bytes <= self._fresh_bytes_max:
                return
            received, sent = self._received, self._sent
            self._refresh()
        self._look_at(received, sent)
        if len(self._waiting) > self._waiting_max:
            self._fold()

    def _look_at(self, received: Sequence[Key], sent: Sequence[Key]) -> None:
        """Records begin to wait, and hold their keys if their pair has no name."""
        self._records += len(sent)
        received_ids = array("q", map(hash, received))
        self._waiting_received.extend(received_ids)
        ids = _mixed(received_ids, array("q", map(hash, sent)))
        self._waiting.frombytes(ids.tobytes())
        if self._held.is_full:
            return
        at, is_known = self._pairs.find(ids)
        has_no_name = np.ones(len(ids), np.bool_)
        has_no_name[is_known] = self._name_bytes[at[is_known]] == 0
        nameless = np.flatnonzero(has_no_name).tolist()
        self._held.hold(ids[nameless], [received[at] for at in nameless], [sent[at] for at in nameless])

    def summary(self) -> PairSummary:
        """What was counted since the start or `reset`; goes on counting. Takes memory beyond the limit for
        as long as it is held."""
        self._fold()
        is_named = self._name_bytes > 0
        nameless = self._pairs.counts[~is_named]
        pairs = tuple(map(_unpack, self._names[is_named]))
        return PairSummary(
            records=self._records,
            floor=max(self._pairs.floor, int(nameless.max(initial=0))),
            pairs=pairs,
            counts=self._pairs.counts[is_named],
            errors=self._pairs.errors[is_named],
            received=self._received_certain(tuple({received for received, _ in pairs})),
        )

    def _received_certain(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Of those that are told from each other by their ids: -1 and -2 have one hash in Python."""
        ids, first, times = np.unique(
            _as_ids(array("q", map(hash, keys))), return_index=True, return_counts=True
        )
        is_alone = times == 1
        seen = self._received_seen
        at, is_there = seen.find(ids[is_alone])
        certain = (seen.counts - seen.errors)[at[is_there]]
        places = first[is_alone][is_there]
        return {keys[place]: count for place, count in zip(places.tolist(), certain.tolist(), strict=True)}

    def _fold(self) -> None:
        """Take what waits into the counters, and forget what does not fit."""
        received_fresh, sent_fresh = self._received, self._sent
        self._refresh()
        if sent_fresh:
            self._look_at(received_fresh, sent_fresh)
        if not self._waiting:
            return
        waiting, received, held = self._waiting, self._waiting_received, self._held
        self._await()
        self._received_seen.count(
            _as_ids(received), self._received_max, int(self._received_max * _AFTER_PRUNING)
        )
        del received
        ids, weights = np.unique(_as_ids(waiting), return_counts=True)
        del waiting
        example, can_name = held.places(ids)
        at, is_known = self._pairs.find(ids)
        known = at[is_known]
        self._pairs.add(known, weights[is_known])
        to_name = is_known & can_name
        to_name[is_known] &= self._name_bytes[known] == 0
        for place, record in zip(at[to_name].tolist(), example[to_name].tolist(), strict=True):
            self._names[place], self._name_bytes[place] = _name(*held.taken(record))
        is_new = ~is_known
        weights, example = weights[is_new], example[is_new]
        names = np.full(len(weights), None, np.object_)
        name_bytes = np.zeros(len(weights), np.int32)
        for place in np.flatnonzero((weights > 1) & can_name[is_new]).tolist():
            names[place], name_bytes[place] = _name(*held.taken(example[place]))
        del held
        is_old = self._pairs.insert(at[is_new], ids[is_new], weights)
        self._names = joined(is_old, self._names, names)
        self._name_bytes = joined(is_old, self._name_bytes, name_bytes)
        self._prune()

    def _prune(self) -> None:
        held_bytes = len(self._pairs) * _COUNTER_BYTES + int(self._name_bytes.sum())
        if held_bytes <= self._kept_bytes_max:
            return
        room = self._kept_bytes_max * _AFTER_PRUNING
        kept = int(len(self._pairs) * room / held_bytes)
        while True:
            stays, floor = self._pairs.most_frequent(kept)
            if kept * _COUNTER_BYTES + int(self._name_bytes[stays].sum()) <= self._kept_bytes_max:
                break
            kept = int(kept * _AFTER_PRUNING)
        self._pairs.keep(stays, floor)
        self._names = self._names[stays]
        self._name_bytes = self._name_bytes[stays]


def _held_bytes(keys: Sequence[Key]) -> int:
    """What they keep alive, as if no two were the same."""
    # All have as many columns, so their tuples take the same.
    return len(keys) * getsizeof(keys[0]) + sum(map(getsizeof, chain.from_iterable(keys))) if keys else 0


def _as_ids(hashes: array[int]) -> Ids:
    """The same memory."""
    return np.frombuffer(hashes, np.uint64)


def _mixed(received: array[int], sent: array[int]) -> Ids:
    """One number a pair, of two hashes."""
    first, second = _as_ids(received), _as_ids(sent)
    mixed: Ids = first * _ODD ^ (second >> _HALF | second << _HALF)
    mixed ^= mixed >> _SHIFT
    return mixed * _ODD


_ODD, _HALF, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(29)


def _name(received: Key, sent: Key) -> tuple[bytes | None, int]:
    """A pair's packed keys, and what they take; neither for a pair that is too long."""
    packed = _pack((received, sent))
    return (packed, len(packed) + _NAME_BYTES) if len(packed) <= PAIR_BYTES_MAX else (None, 0)
