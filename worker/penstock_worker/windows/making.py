"""Which aggregator an `Aggregate` means, and what a window keeps of all of them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.dataflow import window
from penstock.dataflow.schema import Schema
from penstock.dataflow.window import Aggregate, column_of, decimal_digits
from penstock_worker.user_code.running import load_attribute
from penstock_worker.windows import aggregators
from penstock_worker.windows.aggregators import Aggregator, Rows
from penstock_worker.windows.stored_types import tuple_type


def aggregator_of(aggregate: Aggregate, given: Schema, base_dir: Path) -> Aggregator:
    """`given` is the schema of the rows; a user's module is looked for in `base_dir` first.

    Raises UserCodeMissing, and InvalidWindow where there is no such column or no such aggregate of it.
    """
    result = aggregate.result_type(given)
    if aggregate.is_users:
        return aggregators.UsersAggregator(load_attribute(aggregate.function, base_dir)())
    if not aggregate.column:
        return aggregators.CountRows()
    column = column_of(given, aggregate.column, f"aggregate {aggregate.output!r}")
    place = given.columns.index(column)
    match aggregate.function:
        case window.COUNT:
            return aggregators.CountColumn(place)
        case window.SUM:
            return _sum(place, result)
        case window.MEAN:
            return _mean(place, column.type, result)
        case window.MIN:
            return aggregators.Min(place, column.type)
        case window.MAX:
            return aggregators.Max(place, column.type)
    # The sketches are loaded by who has some.
    from penstock_worker.windows.sketches import ApproxCountDistinct, ApproxQuantiles

    if aggregate.function == window.APPROX_COUNT_DISTINCT:
        return ApproxCountDistinct(place)
    return ApproxQuantiles(place, aggregate.quantiles, alone=aggregate.function == window.APPROX_QUANTILE)


def _sum(place: int, result: str) -> Aggregator:
    if digits := decimal_digits(result):
        return aggregators.SumDecimals(place, *digits)
    return aggregators.SumIntegers(place) if result == "bigint" else aggregators.SumFractions(place)


def _mean(place: int, type_: str, result: str) -> Aggregator:
    digits, mean_digits = decimal_digits(type_), decimal_digits(result)
    if digits is None or mean_digits is None:
        return aggregators.Mean(place)
    total = aggregators.SumDecimals(place, min(digits[0] + 10, 38), digits[1])
    return aggregators.MeanDecimals(total, aggregators.CountColumn(place), mean_digits[1])


class Aggregators:
    """All aggregates of a window: their accumulators are one tuple. `stored` is what msgspec calls it,
    `small` whether it is some bytes whatever the rows are."""

    def __init__(self, each: Sequence[Aggregator]) -> None:
        self._each = tuple(each)
        self.stored = tuple_type([one.stored for one in each])
        self.small = all(one.small for one in each)
        self._reduce: list[Callable[[Any, Rows], Any]] = [one.reduce for one in each]
        self._zero = [one.zero for one in each]

    def reduce(self, accumulators: tuple[Any, ...] | None, rows: Rows) -> tuple[Any, ...]:
        """With rows more; None are those of no rows."""
        if accumulators is None:
            accumulators = tuple([zero() for zero in self._zero])
        if len(accumulators) == 1:
            return (self._reduce[0](accumulators[0], rows),)
        return tuple([reduce(a, rows) for reduce, a in zip(self._reduce, accumulators, strict=True)])

    def merge(self, parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Of neighbours in order. No part is changed."""
        if len(parts) == 1:
            return parts[0]
        merged = []
        for place, one in enumerate(self._each):
            accumulator = one.zero()
            for part in parts:
                accumulator = one.merge(accumulator, part[place])
            merged.append(accumulator)
        return tuple(merged)

    def finish(self, accumulators: tuple[Any, ...]) -> list[Any]:
        """The results, in order."""
        return [one.finish(a) for one, a in zip(self._each, accumulators, strict=True)]


def aggregators_of(aggregates: Sequence[Aggregate], given: Schema, base_dir: Path) -> Aggregators:
    """As `aggregator_of`, of all."""
    return Aggregators([aggregator_of(one, given, base_dir) for one in aggregates])
