"""Rows that come to a keyed stage in fragments: kept in the shard's state until the last one is there.

The inbox holds a few fragments at a time, and other producers' entries between them; so those that came are
committed into a collection of their producer's, one for each, and the last one's commit drops it again.
Neighbours: `penstock.store.fragments` cuts and reads them; `keyed_stage`, `batch_stage` and `transform_stage`
ask here when one is at the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.store.codec import decode_batch
from penstock.store.fragments import Fragment, decode_fragment, is_fragment
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Entry, Load, StateWrite
from penstock_worker.state.cache import LoadState
from penstock_worker.state.encoding import FRAGMENTS, chunk_field
from penstock_worker.values.rows import WireRow

GATHERED_BYTES_MAX = 1 << 20
"""About what one commit takes of them."""


class Gathered(NamedTuple):
    """The first `entries` are fragments that are not the last of theirs, and what a commit writes of them."""

    entries: Sequence[Entry]
    writes: tuple[StateWrite, ...]


class LastFragment(NamedTuple):
    """A row's last fragment has come: the payload of its batch, and what forgets the fragments."""

    payload: bytes
    forget: StateWrite


def gathered(entries: Sequence[Entry], bytes_max: int = GATHERED_BYTES_MAX) -> Gathered:
    """What of `entries`, the first of which is a fragment, is to be kept: nothing when that is a last one. It
    ends with what comes to `bytes_max`."""
    writes: list[StateWrite] = []
    size_bytes = 0
    for entry in entries:
        if not is_fragment(entry.payload) or size_bytes >= bytes_max:
            break
        fragment = decode_fragment(entry.payload)
        if fragment.is_last:
            break
        writes.append(StateWrite(_collection(fragment), chunk_field(fragment.index), fragment.piece))
        size_bytes += len(fragment.piece)
    return Gathered(entries[: len(writes)], tuple(writes))


def last_fragment(owned: OwnedShard, entry: Entry, load: LoadState) -> LastFragment:
    """The row whose last fragment `entry` is. Loading the others raises OwnershipLost, StoreUnreachable."""
    last = decode_fragment(entry.payload)
    pieces: list[bytes] = []
    collection = _collection(last)
    while len(pieces) < last.index:
        fields = tuple(chunk_field(number) for number in range(len(pieces), last.index))
        answer = load(Load(owned.shard, owned.generation, owned.epoch, collection, fields))
        if not isinstance(answer, list):
            raise OwnershipLost(owned.shard, answer)
        if None in answer:
            raise RuntimeError(f"{owned.shard} lacks a piece of a row of {last.producer}")
        pieces += answer
    return LastFragment(b"".join([*pieces, last.piece]), StateWrite(collection, None, None))


class WholeRows(NamedTuple):
    """The rows of some entries, when each was due, how long all together have waited, and what a commit
    forgets of their fragments."""

    rows: list[WireRow]
    timestamps_us: list[int]
    waited_us: int
    forget: tuple[StateWrite, ...]


def whole_rows(owned: OwnedShard, entries: Sequence[Entry], load: LoadState, now_us: int) -> WholeRows:
    """The entries read, of which one that ends a fragmented row is alone. Raises UnreadableEntry,
    OwnershipLost, StoreUnreachable."""
    forget: tuple[StateWrite, ...] = ()
    if is_fragment(entries[0].payload):
        last = last_fragment(owned, entries[0], load)
        batches, forget = [decode_batch(last.payload)], (last.forget,)
    else:
        batches = [decode_batch(entry.payload) for entry in entries]
    waited_us = sum(
        (now_us - entry.placed_us) * len(batch.rows) for entry, batch in zip(entries, batches, strict=True)
    )
    return WholeRows(
        [row for batch in batches for row in batch.rows],
        [batch.base_us + delta_us for batch in batches for delta_us in batch.deltas_us],
        max(0, waited_us),
        forget,
    )


def _collection(fragment: Fragment) -> bytes:
    return FRAGMENTS + fragment.producer.encode()
