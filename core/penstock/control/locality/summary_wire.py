"""A `PairSummary` on its way from a task to the operator, and its one codec.

msgpack through msgspec: keys once each, pairs as places among them. What is read was left in a store by
another process, so every bound is checked before anybody counts on it. Neighbours: `pair_counter` makes what
is packed; reader and writer are the reconfiguration's matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from penstock.control.locality.pair_summary import Key, PairSummary
from penstock.errors import PermanentError

SUMMARY_BYTES_MAX = 4 << 20
PAIRS_MAX = 1 << 17
_FORM, _OLD_FORM = 2, 1
_COUNT_MAX = 1 << 53
_VALUES = (bool, int, float, str, bytes)


class UnreadableSummary(PermanentError):
    """It was damaged, or other code wrote it. Its task's counts are missing, never zero (promise 7)."""


class _Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    form: int
    records: int
    floor: int
    received: list[tuple[Any, ...]]
    sent: list[tuple[Any, ...]]
    pairs: list[tuple[int, int, int, int]]
    """(place in received, place in sent, count, error)"""
    counts_received: list[int] = []
    """How often each of `received` came at the least. The old form has none of them."""


_encode = msgspec.msgpack.Encoder().encode
_DECODER = msgspec.msgpack.Decoder(_Wire)


def pack_summary(summary: PairSummary) -> bytes:
    """At most `PAIRS_MAX` pairs fit; ValueError for more, or for more than `SUMMARY_BYTES_MAX` bytes."""
    if len(summary.pairs) > PAIRS_MAX:
        raise ValueError(f"{len(summary.pairs)} pairs, {PAIRS_MAX} are the most on the wire")
    received: dict[Key, int] = {}
    sent: dict[Key, int] = {}
    pairs = [
        (received.setdefault(one, len(received)), sent.setdefault(other, len(sent)), count, error)
        for (one, other), count, error in zip(
            summary.pairs, summary.counts.tolist(), summary.errors.tolist(), strict=True
        )
    ]
    seen = [summary.received.get(key, 0) for key in received]
    packed = _encode(_Wire(_FORM, summary.records, summary.floor, list(received), list(sent), pairs, seen))
    if len(packed) > SUMMARY_BYTES_MAX:
        raise ValueError(f"a summary of {len(packed)} bytes, {SUMMARY_BYTES_MAX} are the most on the wire")
    return packed


def unpack_summary(packed: bytes) -> PairSummary:
    """Inverse of `pack_summary`. Raises UnreadableSummary for anything else."""
    if len(packed) > SUMMARY_BYTES_MAX:
        raise UnreadableSummary(f"{len(packed)} bytes of counted pairs, {SUMMARY_BYTES_MAX} are the most")
    try:
        wire = _DECODER.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableSummary(f"counted pairs cannot be read ({error})") from error
    fault = _fault(wire)
    if fault:
        raise UnreadableSummary(f"counted pairs make no sense: {fault}")
    numbers = np.array(wire.pairs, np.int64).reshape(-1, 4)
    return PairSummary(
        records=wire.records,
        floor=wire.floor,
        pairs=tuple((wire.received[one], wire.sent[other]) for one, other, _, _ in wire.pairs),
        counts=numbers[:, 2],
        errors=numbers[:, 3],
        received={key: seen for key, seen in zip(wire.received, wire.counts_received, strict=False) if seen},
    )


def _fault(wire: _Wire) -> str:
    """What is wrong with it, or nothing."""
    if wire.form not in (_FORM, _OLD_FORM):
        return f"form {wire.form}, {_OLD_FORM} and {_FORM} are known"
    if not 0 <= wire.floor <= wire.records <= _COUNT_MAX:
        return f"a floor of {wire.floor} of {wire.records} records"
    if len(wire.pairs) > PAIRS_MAX:
        return f"{len(wire.pairs)} pairs, {PAIRS_MAX} are the most"
    for what, keys in (("received", wire.received), ("sent", wire.sent)):
        if fault := _fault_of_keys(keys):
            return f"{fault} among keys {what}"
    if fault := _fault_of_received(wire):
        return fault
    certain = 0
    for one, other, count, error in wire.pairs:
        if not (0 <= one < len(wire.received) and 0 <= other < len(wire.sent)):
            return f"a pair of keys {one} and {other} of {len(wire.received)} and {len(wire.sent)}"
        if not 0 <= error <= count <= _COUNT_MAX:
            return f"a count of {count} with an error of {error}"
        certain += count - error
    if certain > wire.records:
        return f"pairs were met {certain} times in {wire.records} records"
    if len({(one, other) for one, other, _, _ in wire.pairs}) < len(wire.pairs):
        return "a pair is there twice"
    return ""


def _fault_of_received(wire: _Wire) -> str:
    counts = wire.counts_received
    if len(counts) != (len(wire.received) if wire.form == _FORM else 0):
        return f"{len(counts)} counts of {len(wire.received)} keys received"
    if min(counts, default=0) < 0 or sum(counts) > wire.records:
        return f"keys were received {sum(counts)} times in {wire.records} records"
    return ""


def _fault_of_keys(keys: Sequence[tuple[Any, ...]]) -> str:
    columns = {len(key) for key in keys}
    if len(columns) > 1:
        return f"keys of {sorted(columns)} columns"
    strange = {type(value) for key in keys for value in key if value is not None} - set(_VALUES)
    if strange:
        return f"values of {sorted(each.__name__ for each in strange)}"
    return "" if len(set(keys)) == len(keys) else "a key that is there twice"
