"""Batches whose rows all have one width: the same msgpack as `codec` writes, written and read by columns.

msgpack lets a number take more bytes than it needs. Where each column of a batch takes as many bytes in every
row, the rows are a matrix of bytes, which numpy fills and reads column by column. Every reader of batches
reads such a one as any other: it is no form of its own, and nobody has to be told of it. What is not even
(some nulls in a column, texts of several lengths, nested values) is packed row by row.

A matrix is read as columns only if the bytes that tell a value's type and length are the same in each row:
then every row ends where the first one says. Neighbours: `codec` packs and reads rows, `stamps` are their
timestamps.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.store.codec import pack
from penstock.store.stamps import Stamps

ENTRY_BYTES_MIN = 256
"""A shorter entry is read sooner row by row."""
HEAD_BYTES_MAX = 20
"""What an entry has besides its rows,"""
STAMP_BYTES_MAX = 9
"""and for each of them besides its cells, at most."""
TEXT_BYTES_MAX = (1 << 16) - 1

Cells = NDArray[np.uint8]
"""Bytes by row and place."""

_BATCH = 0x93
_NULL, _FALSE, _TRUE = 0xC0, 0xC2, 0xC3
_FLOAT = 0xCB
_FIXED_TEXT, _TEXT_8, _TEXT_16, _BYTES_8, _BYTES_16 = 0xA0, 0xD9, 0xDA, 0xC4, 0xC5
_INT_16, _INT_32, _INT_64 = 0xD1, 0xD2, 0xD3
_NUMBERS = {
    0xCC: ">u1", 0xCD: ">u2", 0xCE: ">u4", 0xD0: ">i1", _INT_16: ">i2", _INT_32: ">i4", _INT_64: ">i8",
    _FLOAT: ">f8",
}  # fmt: skip
"""By the byte before it, how a number is written. 64 bits without a sign are not read: no column has them."""
_FIXED_INT_MAX = 0x7F


@dataclass(frozen=True, slots=True)
class EvenTexts:
    """Texts in UTF-8, or else bytes, that are equally long: a row of `cells` each."""

    cells: Cells
    is_text: bool


EvenColumn = NDArray[Any] | EvenTexts | None
"""Integers of up to 64 bits with a sign, fractions of 64, booleans, texts; None where every value is null."""


@dataclass(frozen=True, slots=True)
class EvenBatch:
    stamps: Stamps
    columns: list[EvenColumn]


# --- writing ----------------------------------------------------------------------------------------


def even_cells(columns: Sequence[EvenColumn], rows: int) -> Cells:
    """The rows of a batch, each as msgpack, all equally long. A column's values are as many as `rows`."""
    head = _array_head(len(columns))
    widths = [_Width.of(column) for column in columns]
    cells = np.empty((rows, len(head) + sum(width.bytes for width in widths)), np.uint8)
    cells[:, : len(head)] = np.frombuffer(head, np.uint8)
    at = len(head)
    for column, width in zip(columns, widths, strict=True):
        width.fill(cells, at, column)
        at += width.bytes
    return cells


def even_entry(stamps_us: NDArray[np.int64], cells: Cells) -> bytes:
    """An entry of rows that `even_cells` made, or of some of them, which are not none."""
    rows = len(cells)
    base_us = int(stamps_us[0])
    head = _array_head(rows)
    if (stamps_us == base_us).all():
        # What was read at once: each is 0 behind the first.
        packed = bytes(rows)
    else:
        deltas_us = stamps_us - base_us
        width = _Width.of(deltas_us)
        deltas = np.empty((rows, width.bytes), np.uint8)
        width.fill(deltas, 0, deltas_us)
        packed = deltas.tobytes()
    return b"".join((b"\x93", pack(base_us), head, packed, head, cells.tobytes()))


_ROWS_DECODER = msgspec.msgpack.Decoder(list[tuple[Any, ...]])


def rows_of(cells: Cells) -> list[tuple[Any, ...]]:
    """The rows that are in cells."""
    return _ROWS_DECODER.decode(_array_head(len(cells)) + cells.tobytes())


@dataclass(frozen=True, slots=True)
class _Width:
    """How each value of a column is written: `head`, then a number as numpy's `number` or a text."""

    head: bytes
    number: str
    bytes: int

    @classmethod
    def of(cls, column: EvenColumn) -> _Width:
        if column is None:
            return cls(b"\xc0", "", 1)
        if isinstance(column, EvenTexts):
            length = column.cells.shape[1]
            head = _text_head(length, is_text=column.is_text)
            return cls(head, "", len(head) + length)
        if column.dtype.kind == "b":
            return cls(b"", "u1", 1)
        if column.dtype.kind == "f":
            return cls(b"\xcb", ">f8", 9)
        least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        if least >= 0 and most <= _FIXED_INT_MAX:
            return cls(b"", "u1", 1)
        if least >= -(1 << 15) and most < 1 << 15:
            return cls(b"\xd1", ">i2", 3)
        if least >= -(1 << 31) and most < 1 << 31:
            return cls(b"\xd2", ">i4", 5)
        return cls(b"\xd3", ">i8", 9)

    def fill(self, cells: Cells, at: int, column: EvenColumn) -> None:
        """Write a column into the cells from place `at` on."""
        for byte in self.head:
            cells[:, at] = byte
            at += 1
        if column is None:
            return
        if isinstance(column, EvenTexts):
            cells[:, at : at + column.cells.shape[1]] = column.cells
        elif column.dtype.kind == "b":
            cells[:, at] = np.where(column, _TRUE, _FALSE)
        else:
            rows, stride = cells.shape
            np.ndarray((rows,), self.number, cells, at, (stride,))[:] = column


def _array_head(length: int) -> bytes:
    if length < 16:
        return bytes((0x90 | length,))
    return struct.pack(">BH", 0xDC, length) if length < 1 << 16 else struct.pack(">BI", 0xDD, length)


def _text_head(length: int, *, is_text: bool) -> bytes:
    if is_text and length < 32:
        return bytes((_FIXED_TEXT | length,))
    if length < 1 << 8:
        return bytes((_TEXT_8 if is_text else _BYTES_8, length))
    return struct.pack(">BH", _TEXT_16 if is_text else _BYTES_16, length)


# --- reading ----------------------------------------------------------------------------------------


class _Uneven(Exception):
    """The entry is to be read row by row."""


_UNREADABLE = (_Uneven, IndexError, OverflowError, struct.error)
"""What reading an entry by columns may raise: it is read row by row, then."""


def rows_in(payload: bytes) -> int | None:
    """How many rows an entry has that may be even; None for one that is not, or is short."""
    if len(payload) < ENTRY_BYTES_MIN or payload[0] != _BATCH:
        return None
    try:
        return _read_array_head(payload, _read_int(payload, 1)[1])[0]
    except _UNREADABLE:
        return None


def read_even(payload: bytes, rows_min: int = 1) -> EvenBatch | None:
    """An entry by columns; None for one that is not even, is short, has fewer rows, or holds what no column
    has."""
    return read_even_together((payload,), rows_min)


def read_even_together(payloads: Sequence[bytes], rows_min: int = 1) -> EvenBatch | None:
    """The rows of some entries, one behind the other, as if they were those of one; None where one of them
    is not even, or not as the first is. That costs little more than one of them does."""
    if min(map(len, payloads)) < ENTRY_BYTES_MIN:
        return None
    try:
        begins: list[int] = []
        counts: list[int] = []
        stamps: list[NDArray[np.int64]] = []
        for payload in payloads:
            of_entry, at = _read_stamps(payload)
            rows, at = _read_array_head(payload, at)
            if rows != len(of_entry):
                return None
            begins.append(at)
            counts.append(rows)
            stamps.append(of_entry)
        rows = sum(counts)
        if rows < rows_min:
            return None
        if len(payloads) == 1:
            return EvenBatch(Stamps(stamps[0]), _read_columns(payloads[0], begins[0], rows))
        sizes = {(len(payload) - at) / of for payload, at, of in zip(payloads, begins, counts, strict=True)}
        if len(sizes) > 1:
            return None
        together = b"".join(memoryview(payload)[at:] for payload, at in zip(payloads, begins, strict=True))
        return EvenBatch(Stamps(np.concatenate(stamps)), _read_columns(together, 0, rows))
    except _UNREADABLE:
        return None


def read_even_stamps(payload: bytes) -> Stamps | None:
    """The same, of the timestamps alone: the rows are not looked at."""
    if len(payload) < ENTRY_BYTES_MIN:
        return None
    try:
        return Stamps(_read_stamps(payload)[0])
    except _UNREADABLE:
        return None


def _read_stamps(payload: bytes) -> tuple[NDArray[np.int64], int]:
    """And where what is behind them begins."""
    if payload[0] != _BATCH:
        raise _Uneven
    base_us, at = _read_int(payload, 1)
    rows, at = _read_array_head(payload, at)
    if not rows:
        raise _Uneven
    head, number, size = _number_at(payload, at)
    stride = len(head) + size
    if at + rows * stride > len(payload):
        raise _Uneven
    end = at + rows * stride
    if stride == 1 and payload.count(payload[at : at + 1], at, end) == rows:
        # All are as old as each other, as what was read at once is.
        return np.full(rows, base_us + payload[at], np.int64), end
    cells: Cells = np.ndarray((rows, stride), np.uint8, payload, at)
    deltas_us = _numbers(payload, cells, at, 0, head, number)
    if deltas_us.dtype.kind == "f":
        raise _Uneven
    return deltas_us + base_us, end


def _read_columns(payload: bytes, begin: int, rows: int) -> list[EvenColumn]:
    count, at = _read_array_head(payload, begin)
    places: list[tuple[int, bytes, str, int]] = []
    for _ in range(count):
        head, number, size = _value_at(payload, at)
        places.append((at - begin, head, number, size))
        at += len(head) + size
    stride = at - begin
    if begin + rows * stride != len(payload):
        raise _Uneven
    cells: Cells = np.ndarray((rows, stride), np.uint8, payload, begin)
    head_bytes = places[0][0] if places else stride
    _see_same(cells, 0, payload[begin : begin + head_bytes])
    return [_column(payload, cells, begin, *place) for place in places]


def _column(
    payload: bytes, cells: Cells, begin: int, at: int, head: bytes, number: str, size: int
) -> EvenColumn:
    if number == "text":
        _see_same(cells, at, head)
        at += len(head)
        return EvenTexts(cells[:, at : at + size], head[0] not in (_BYTES_8, _BYTES_16))
    if number == "null":
        _see_same(cells, at, head)
        return None
    if number == "boolean":
        found: NDArray[np.bool_] = cells[:, at] == _TRUE
        if not (found | (cells[:, at] == _FALSE)).all():
            raise _Uneven
        return found
    return _numbers(payload, cells, begin, at, head, number)


def _numbers(payload: bytes, cells: Cells, begin: int, at: int, head: bytes, number: str) -> NDArray[Any]:
    """A column of numbers, of a type of its own."""
    if not head:
        if cells[:, at].max() > _FIXED_INT_MAX:
            raise _Uneven
        return cells[:, at].astype(np.int64)
    _see_same(cells, at, head)
    rows, stride = cells.shape
    found = np.ndarray((rows,), number, payload, begin + at + len(head), (stride,))
    return found.astype(np.float64 if number == ">f8" else np.int64)


def _see_same(cells: Cells, at: int, head: bytes) -> None:
    for place, byte in enumerate(head, at):
        if not (cells[:, place] == byte).all():
            raise _Uneven


def _value_at(payload: bytes, at: int) -> tuple[bytes, str, int]:
    """Of a value: the bytes before it, what it is, and how many bytes it has itself."""
    tag = payload[at]
    if _FIXED_TEXT <= tag < _FIXED_TEXT + 32:
        return payload[at : at + 1], "text", tag - _FIXED_TEXT
    if tag in (_TEXT_8, _BYTES_8):
        return payload[at : at + 2], "text", payload[at + 1]
    if tag in (_TEXT_16, _BYTES_16):
        (length,) = struct.unpack_from(">H", payload, at + 1)
        return payload[at : at + 3], "text", length
    if tag == _NULL:
        return payload[at : at + 1], "null", 0
    if tag in (_FALSE, _TRUE):
        return b"", "boolean", 1
    return _number_at(payload, at)


def _number_at(payload: bytes, at: int) -> tuple[bytes, str, int]:
    tag = payload[at]
    if tag <= _FIXED_INT_MAX:
        return b"", ">u1", 1
    number = _NUMBERS.get(tag)
    if number is None:
        raise _Uneven
    return payload[at : at + 1], number, int(number[2:])


def _read_int(payload: bytes, at: int) -> tuple[int, int]:
    """And where what is behind it begins."""
    tag = payload[at]
    if tag <= _FIXED_INT_MAX:
        return tag, at + 1
    if tag == 0xCF:
        return int.from_bytes(payload[at + 1 : at + 9]), at + 9
    number = _NUMBERS.get(tag, ">f8")
    if number == ">f8":
        raise _Uneven
    size = int(number[2:])
    return int.from_bytes(payload[at + 1 : at + 1 + size], signed=number[1] == "i"), at + 1 + size


def _read_array_head(payload: bytes, at: int) -> tuple[int, int]:
    tag = payload[at]
    if 0x90 <= tag < 0xA0:
        return tag - 0x90, at + 1
    if tag == 0xDC:
        return int.from_bytes(payload[at + 1 : at + 3]), at + 3
    if tag == 0xDD:
        return int.from_bytes(payload[at + 1 : at + 5]), at + 5
    raise _Uneven
