"""The record codec: rows of one flush for one target <-> the payload of one entry.

msgpack through msgspec: [base timestamp, [delta, ...], [row, ...]] with a row's columns in schema
order. Around that of initial state is an array of one. Timestamps are the *source's*, microseconds,
one a row, so that latency is known to every sink. Rows travel as plain values; columns whose Python value
msgpack has no type for (date, timestamp, decimal) are turned by `wire_type`-aware converters in the worker's
rows module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.errors import PermanentError

_SHOWN_BYTES = 24
_INITIAL = b"\x91"
"""An array of one; a batch is one of three, a fragment (`fragments`) one of four."""


class UnreadableEntry(PermanentError):
    """An entry holds no rows that this code can read: it was damaged, or other code wrote it."""


def _plain(value: object) -> object:
    """A text of a class of its own, as numpy's is, as what it is; asked only where msgpack knows no type."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is no wire value")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)

pack = _ENCODER.encode
"""Wire values -> msgpack. Raises UnicodeEncodeError for a text that is no Unicode."""


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`base_us` + `deltas_us[i]` is the source timestamp of `rows[i]`. Rows that are `initial` have another
    schema than the others of an inbox."""

    base_us: int
    deltas_us: list[int]
    rows: list[tuple[Any, ...]]
    initial: bool = False


_DECODER = msgspec.msgpack.Decoder(Batch)


def encode_batch(timestamps_us: Sequence[int], rows: Sequence[Any], *, initial: bool = False) -> bytes:
    """Pack rows (sequences of wire values) with their source timestamps; the two are equally long."""
    base = timestamps_us[0]
    payload = _ENCODER.encode((base, [t - base for t in timestamps_us], rows))
    return _INITIAL + payload if initial else payload


def decode_batch(payload: bytes) -> Batch:
    """Inverse of `encode_batch`. Raises UnreadableEntry for anything else."""
    try:
        if payload[:1] != _INITIAL:
            return _DECODER.decode(payload)
        batch = _DECODER.decode(memoryview(payload)[1:])
        return Batch(batch.base_us, batch.deltas_us, batch.rows, initial=True)
    except msgspec.DecodeError as error:
        raise UnreadableEntry(
            f"an entry of {len(payload)} bytes cannot be read ({error}); it begins with "
            f"{payload[:_SHOWN_BYTES].hex(' ')}. Whatever wrote it, only a start anew goes on without it"
        ) from error


class _BatchTimes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    base_us: int
    deltas_us: list[int]


_TIMES_DECODER = msgspec.msgpack.Decoder(_BatchTimes)


def decode_timestamps(payload: bytes) -> list[int]:
    """Only the source timestamps of an entry's rows, microseconds; the rows are skipped over."""
    times = _TIMES_DECODER.decode(payload)
    return [times.base_us + delta for delta in times.deltas_us]


_COUNTS_DECODER = msgspec.msgpack.Decoder(dict[str, int])


def encode_counts(counts: Mapping[str, int]) -> bytes:
    """Pack totals by name, as a commit leaves them with its shard."""
    return _ENCODER.encode(counts)


def decode_counts(packed: bytes) -> dict[str, int]:
    """Inverse of `encode_counts`; {} for b"", which is what a shard begins with."""
    return _COUNTS_DECODER.decode(packed) if packed else {}
