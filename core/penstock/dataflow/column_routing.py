"""Keys -> shards for whole columns: what `routing` finds for each key, by XXH64 over arrays.

Each key column is hashed with the hash of the one before it as seed, as Spark does it. A column is an array
of numbers or booleans, of texts or bytes a matrix (each row its UTF-8, all equally long), and None where
every value is null. Neighbours: `routing` does it key by key, and is what this is held to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.routing import SEED

Hashes = NDArray[np.uint64]
KeyColumn = NDArray[Any] | None

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip
_NAN_32, _NAN_64 = np.uint32(0x7FC00000), np.uint64(0x7FF8000000000000)
_STRIPE = 32


class ColumnRouter:
    """Of one edge, whose key columns have these types. ValueError for one that is hashed key by key only."""

    def __init__(self, types: Sequence[str], shards: int) -> None:
        missing = [type_ for type_ in types if type_ not in _HASHES]
        if missing:
            raise ValueError(f"columns of {missing[0]} are hashed one by one")
        self._hashes = [_HASHES[type_] for type_ in types]
        self._shards = shards

    @staticmethod
    def knows(types: Sequence[str]) -> bool:
        return all(type_ in _HASHES for type_ in types)

    def shards_of(self, columns: Sequence[KeyColumn], rows: int) -> NDArray[np.int64]:
        """The shard of each row; each column has as many."""
        hashes = np.full(rows, SEED, np.uint64)
        for column, hash_ in zip(columns, self._hashes, strict=True):
            if column is not None:
                hashes = hash_(column, hashes)
        # Signed, as Spark has it; numpy's remainder has the divisor's sign.
        return hashes.view(np.int64) % np.int64(self._shards)


# --- XXH64 ------------------------------------------------------------------------------------------


def _turned(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _round(sums: Hashes, lanes: Hashes) -> Hashes:
    return _turned(sums + lanes * _P2, 31) * _P1


def _with_8_bytes(hashes: Hashes, lanes: Hashes) -> Hashes:
    return _turned(hashes ^ _round(np.zeros_like(lanes), lanes), 27) * _P1 + _P4


def _with_4_bytes(hashes: Hashes, lanes: Hashes) -> Hashes:
    return _turned(hashes ^ (lanes * _P1), 23) * _P2 + _P3


def _finished(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


def _of_8_bytes(lanes: Hashes, seeds: Hashes) -> Hashes:
    return _finished(_with_8_bytes(seeds + _P5 + np.uint64(8), lanes))


def _of_4_bytes(lanes: Hashes, seeds: Hashes) -> Hashes:
    return _finished(_with_4_bytes(seeds + _P5 + np.uint64(4), lanes))


def _of_texts(cells: NDArray[np.uint8], seeds: Hashes) -> Hashes:
    """Of rows of bytes."""
    length, at = cells.shape[1], 0
    if length >= _STRIPE:
        sums = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
        while at + _STRIPE <= length:
            for lane in range(4):
                sums[lane] = _round(sums[lane], _lanes(cells, at + 8 * lane, "<u8"))
            at += _STRIPE
        first, second, third, fourth = sums
        hashes = _turned(first, 1) + _turned(second, 7) + _turned(third, 12) + _turned(fourth, 18)
        for lane_sum in sums:
            hashes = (hashes ^ _round(np.zeros_like(lane_sum), lane_sum)) * _P1 + _P4
    else:
        hashes = seeds + _P5
    hashes = hashes + np.uint64(length)
    while at + 8 <= length:
        hashes = _with_8_bytes(hashes, _lanes(cells, at, "<u8"))
        at += 8
    if at + 4 <= length:
        hashes = _with_4_bytes(hashes, _lanes(cells, at, "<u4"))
        at += 4
    for place in range(at, length):
        hashes = _turned(hashes ^ (cells[:, place].astype(np.uint64) * _P5), 11) * _P1
    return _finished(hashes)


def _lanes(cells: NDArray[np.uint8], at: int, number: str) -> Hashes:
    size = int(number[2:])
    return np.ascontiguousarray(cells[:, at : at + size]).view(number).ravel().astype(np.uint64)


# --- what Spark hashes of a value -------------------------------------------------------------------


def _whole_32(column: NDArray[Any], seeds: Hashes) -> Hashes:
    return _of_4_bytes(column.astype(np.int32).view(np.uint32).astype(np.uint64), seeds)


def _whole_64(column: NDArray[Any], seeds: Hashes) -> Hashes:
    return _of_8_bytes(column.astype(np.int64).view(np.uint64), seeds)


def _float(column: NDArray[Any], seeds: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        numbers = column.astype(np.float32)
    bits = (numbers + np.float32(0)).view(np.uint32)  # -0.0 + 0.0 is 0.0
    return _of_4_bytes(np.where(np.isnan(numbers), _NAN_32, bits).astype(np.uint64), seeds)


def _double(column: NDArray[Any], seeds: Hashes) -> Hashes:
    numbers = column.astype(np.float64)
    bits = (numbers + 0.0).view(np.uint64)
    return _of_8_bytes(np.where(np.isnan(numbers), _NAN_64, bits), seeds)


_HASHES: dict[str, Callable[[NDArray[Any], Hashes], Hashes]] = {
    "boolean": _whole_32,
    "tinyint": _whole_32,
    "smallint": _whole_32,
    "int": _whole_32,
    "date": _whole_32,
    "bigint": _whole_64,
    "timestamp": _whole_64,
    "timestamp_ntz": _whole_64,
    "float": _float,
    "double": _double,
    "string": _of_texts,
    "binary": _of_texts,
}
