"""The record codec: rows of one flush for one target <-> the payload of one entry.

msgpack through msgspec: [base timestamp, [delta, ...], [row, ...]] with a row's columns in schema
order. Timestamps are the *source's*, microseconds, one a row, so that latency is known to every
sink. Rows travel as plain values; columns whose Python value msgpack has no type for
(date, timestamp, decimal) are turned by `wire_type`-aware converters in the worker's rows module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_ENCODER = msgspec.msgpack.Encoder()


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`base_us` + `deltas_us[i]` is the source timestamp of `rows[i]`."""

    base_us: int
    deltas_us: list[int]
    rows: list[Any]


_DECODER = msgspec.msgpack.Decoder(Batch)


def encode_batch(timestamps_us: Sequence[int], rows: Sequence[Any]) -> bytes:
    """Pack rows (sequences of wire values) with their source timestamps; the two are equally long."""
    base = timestamps_us[0]
    return _ENCODER.encode((base, [t - base for t in timestamps_us], rows))


def decode_batch(payload: bytes) -> Batch:
    """Inverse of `encode_batch`. Raises msgspec.DecodeError for anything else."""
    return _DECODER.decode(payload)


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
