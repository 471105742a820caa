"""The Arrow type of each type in an expression. Spark's own, but for decimals of more than 38 digits."""

from __future__ import annotations

import pyarrow as pa

from penstock.dataflow.expression_tree import VOID
from penstock.dataflow.expressions.types import PRECISION_MAX, digits

_TYPES = {
    VOID: pa.null(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(type_: str) -> pa.DataType | None:
    """None of a nested type: such values go on, and nothing is worked out of them."""
    found = digits(type_)
    if found is None:
        return _TYPES.get(type_)
    precision, scale = found
    return pa.decimal128(*found) if precision <= PRECISION_MAX else pa.decimal256(precision, scale)
