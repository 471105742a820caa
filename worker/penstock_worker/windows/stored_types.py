"""Values of rows, packed: what msgspec is told so that each is read again as it was given.

`pack` takes values as rows hold them: a struct as a dict, a map as pairs, times and decimals as Python's.
What reads them is made for their types (`stored_type`), by Spark's names. Neighbours: `open_slices`,
`session_windows` and `join_buffers`, whose state it is.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any, Optional, TypedDict

import msgspec

from penstock.dataflow.type_names import nested, split, struct_fields
from penstock.errors import PermanentError

_SIMPLE: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "binary": bytes,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
}

pack: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


class WindowStateUnreadable(PermanentError):
    """The state of a window or a join was written under other types or aggregates than it has now."""


def stored_type(type_: str) -> Any:
    """What msgspec calls values of a Spark type, each of which may be null."""
    return Optional[_known(type_)]  # noqa: UP045 - made at run time


def _known(type_: str) -> Any:
    if type_ in _SIMPLE:
        return _SIMPLE[type_]
    if type_.startswith("decimal("):
        return decimal.Decimal
    kind, inner = nested(type_)
    if kind == "array":
        return list[stored_type(inner)]  # type: ignore[misc]  # a type made at run time
    if kind == "map":
        key, value = split(inner)
        return list[tuple[stored_type(key), stored_type(value)]]  # type: ignore[misc]  # as above
    fields = {name: stored_type(field) for name, field in struct_fields(inner)}
    return TypedDict("Struct", fields)  # type: ignore[operator]  # as above


def tuple_type(types: Sequence[Any]) -> Any:
    """msgspec's type of a tuple with members of these types."""
    return tuple.__class_getitem__(tuple(types))


def unpacker(type_: Any) -> Callable[[bytes], Any]:
    """Packed values -> values of msgspec's `type_`. What it returns raises WindowStateUnreadable."""
    decode = msgspec.msgpack.Decoder(type_).decode

    def unpack(packed: bytes) -> Any:
        try:
            return decode(packed)
        except msgspec.DecodeError as error:
            raise WindowStateUnreadable(
                f"the state of this operator was written for other columns or aggregates ({error}); go on "
                "with those that it had, or start anew with --fresh"
            ) from None

    return unpack
