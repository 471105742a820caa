"""Shards of whole columns of keys: the same as the router has for each key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.column_routing import ColumnRouter, KeyColumn
from penstock.dataflow.routing import Router

ROWS = 40
WHOLE = {
    "tinyint": 8,
    "smallint": 16,
    "int": 32,
    "bigint": 64,
    "date": 32,
    "timestamp": 64,
    "timestamp_ntz": 64,
}
FRACTIONS = [
    0.0,
    -0.0,
    float("nan"),
    -float("nan"),
    float("inf"),
    -float("inf"),
    1e39,
    -1e39,
    5e-324,
    1.5,
    0.1,
]
TYPES = [*WHOLE, "boolean", "float", "double", "string", "binary"]


@st.composite
def key_columns(draw: st.DrawFn) -> tuple[str, list[Any], KeyColumn]:
    """A type, some values of it, and these as a column."""
    type_ = draw(st.sampled_from(TYPES))
    random = np.random.default_rng(draw(st.integers(0, 1 << 40)))
    if draw(st.integers(0, 9)) == 0:
        return type_, [None] * ROWS, None
    if type_ in WHOLE:
        bits = WHOLE[type_]
        numbers = random.integers(-(1 << bits - 1), (1 << bits - 1) - 1, ROWS, np.int64, endpoint=True)
        numbers[:4] = 0, -1, -(1 << bits - 1), (1 << bits - 1) - 1
        return type_, numbers.tolist(), numbers
    if type_ == "boolean":
        flags = random.random(ROWS) < 0.5
        return type_, flags.tolist(), flags
    if type_ in ("float", "double"):
        fractions = random.normal(0, 1e6, ROWS)
        fractions[: len(FRACTIONS)] = FRACTIONS
        return type_, fractions.tolist(), fractions
    length = draw(st.integers(0, 100))
    cells = random.integers(0, 128 if type_ == "string" else 256, (ROWS, length)).astype(np.uint8)
    found = [row.tobytes() for row in cells]
    return type_, [each.decode() for each in found] if type_ == "string" else found, cells


@given(st.lists(key_columns(), min_size=1, max_size=3), st.integers(1, 10_000))
def test_shards_of_columns_are_those_of_their_keys(
    columns: list[tuple[str, list[Any], KeyColumn]], shards: int
) -> None:
    types = [type_ for type_, _, _ in columns]
    route = Router(types, shards).route
    expected = [route(key) for key in zip(*(values for _, values, _ in columns), strict=True)]
    found = ColumnRouter(types, shards).shards_of([column for _, _, column in columns], ROWS)
    assert found.tolist() == expected


def test_what_is_hashed_one_by_one_is_told() -> None:
    assert ColumnRouter.knows(["bigint", "string"])
    assert not ColumnRouter.knows(["bigint", "decimal(10,2)"])
    with pytest.raises(ValueError, match="struct"):
        ColumnRouter(["struct<a:int>"], 8)
