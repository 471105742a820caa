"""Approximate aggregates, by sketches of Apache DataSketches.

Their accumulators are the sketches' own bytes, which merge without a loss: what comes out of a window
does not depend on how its rows came apart, up to the sketch's error. Neighbour: `aggregators` (the port).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from datasketches import hll_sketch, hll_union, kll_doubles_sketch

from penstock_worker.windows.aggregators import Rows
from penstock_worker.windows.instants import microseconds

HLL_LG_K = 12
"""4096 registers: up to 2.1 KB each, and an error of 1.6% (one standard deviation); below 192 values nearly
exact. Spark's own default is 5%."""
KLL_K = 200
"""The rank of a quantile is off by at most 1.33% (99% of the time); up to 200 values it is exact."""

_value = tuple.__getitem__


class ApproxCountDistinct:
    """HyperLogLog. 1 and 1.0 do not meet in one column; 0.0 and -0.0 are one value, and so are all NaN."""

    stored: Any = bytes
    small = False

    def __init__(self, place: int) -> None:
        self._place = place

    def zero(self) -> bytes:
        return b""

    def reduce(self, accumulator: bytes, rows: Rows) -> bytes:
        place = self._place
        values = [value for row in rows if (value := _value(row, place)) is not None]
        if not values:
            return accumulator
        sketch = hll_sketch.deserialize(accumulator) if accumulator else hll_sketch(HLL_LG_K)
        for value in values:
            sketch.update(_countable(value))
        return bytes(sketch.serialize_compact())

    def merge(self, one: bytes, other: bytes) -> bytes:
        if not one or not other:
            return one or other
        union = hll_union(HLL_LG_K)
        union.update(hll_sketch.deserialize(one))
        union.update(hll_sketch.deserialize(other))
        return bytes(union.get_result().serialize_compact())

    def finish(self, accumulator: bytes) -> int:
        return round(hll_sketch.deserialize(accumulator).get_estimate()) if accumulator else 0


def _countable(value: Any) -> int | float | str:
    """A value that the sketch takes; equal ones for equal values of one type."""
    if isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, datetime.datetime):
        return microseconds(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    # A column's dates, and its decimals, which have all the same number of decimals.
    return str(value)


class ApproxQuantiles:
    """KLL. `ranks` are the quantiles asked for; `alone`: one of them, not a list. NaN is left out."""

    stored: Any = bytes
    small = False

    def __init__(self, place: int, ranks: Sequence[float], *, alone: bool) -> None:
        self._place = place
        self._ranks = list(ranks)
        self._alone = alone

    def zero(self) -> bytes:
        return b""

    def reduce(self, accumulator: bytes, rows: Rows) -> bytes:
        place = self._place
        values = [value for row in rows if (value := _value(row, place)) is not None]
        if not values:
            return accumulator
        sketch = kll_doubles_sketch.deserialize(accumulator) if accumulator else kll_doubles_sketch(KLL_K)
        for value in values:
            sketch.update(float(value))
        return bytes(sketch.serialize())

    def merge(self, one: bytes, other: bytes) -> bytes:
        if not one or not other:
            return one or other
        sketch = kll_doubles_sketch.deserialize(one)
        sketch.merge(kll_doubles_sketch.deserialize(other))
        return bytes(sketch.serialize())

    def finish(self, accumulator: bytes) -> Any:
        sketch = kll_doubles_sketch.deserialize(accumulator) if accumulator else None
        if sketch is None or sketch.is_empty():
            return None
        # Inclusive: the smallest value that so large a part is not above, as Spark's percentile_approx.
        found = [float(value) for value in sketch.get_quantiles(self._ranks, inclusive=True)]
        return found[0] if self._alone else found
