"""What is computed of a window: the port of aggregators, those of numbers and texts, and those of users.

An aggregator is stateless; what it knows of a window is an accumulator, a plain value that state can hold.
A user's is a class with the words of Spark's `Aggregator`:

    class Volume:
        def zero(self): return [0, 0.0]                 # the accumulator of no rows
        def reduce(self, acc, row): ...                 # with one more row; may change acc and return it
        def merge(self, one, other): ...                # of both; may change `one` and return it
        def finish(self, acc): return acc[1] / acc[0]   # the result, of the aggregate's type

Its accumulators are what msgpack takes: numbers, texts, bytes, None, lists and dicts of them; a tuple comes
back as a list. A class may name something stricter as `buffer`, such as `tuple[int, float]` or a dataclass.
`merge` joins neighbouring rows: of a session that two have become, or of slices that windows share.
Neighbours: `sketches` (approximate ones), `making` (which one an aggregate means).
"""

from __future__ import annotations

import copy
import decimal
from collections.abc import Sequence
from typing import Any, Optional, Protocol

from penstock_worker.windows.stored_types import stored_type

Rows = Sequence[tuple[Any, ...]]

_LONG = 1 << 63
_EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
# pyspark's Row takes its time over an index: it looks whether that is a name.
_value = tuple.__getitem__


class SumOverflow(ArithmeticError):
    """A sum does not fit its type, which is an error as in Spark's ANSI mode."""


class Aggregator(Protocol):
    """One column of a window's results. `stored` is what msgspec calls its accumulators; `small` whether
    these are some bytes whatever the rows are."""

    stored: Any
    small: bool

    def zero(self) -> Any:
        """The accumulator of no rows."""

    def reduce(self, accumulator: Any, rows: Rows) -> Any:
        """With rows more; may change and return it."""

    def merge(self, one: Any, other: Any) -> Any:
        """Of the rows of both; may change and return `one`, never `other`."""

    def finish(self, accumulator: Any) -> Any:
        """The result."""


class UsersAggregator:
    """One that a user wrote."""

    small = False

    def __init__(self, users: Any) -> None:
        self.stored = getattr(users, "buffer", Any)
        self.zero = users.zero
        self.finish = users.finish
        self._reduce = users.reduce
        self._merge = users.merge

    def merge(self, one: Any, other: Any) -> Any:
        # What they return may be `other`, and be changed by the next call, while a slice still has it.
        return self._merge(one, copy.deepcopy(other))

    def reduce(self, accumulator: Any, rows: Rows) -> Any:
        reduce = self._reduce
        for row in rows:
            accumulator = reduce(accumulator, row)
        return accumulator


class CountRows:
    stored: Any = int
    small = True

    def zero(self) -> int:
        return 0

    def reduce(self, accumulator: int, rows: Rows) -> int:
        return accumulator + len(rows)

    def merge(self, one: int, other: int) -> int:
        return one + other

    def finish(self, accumulator: int) -> int:
        return accumulator


class CountColumn(CountRows):
    """Rows whose column is not null."""

    def __init__(self, place: int) -> None:
        self._place = place

    def reduce(self, accumulator: int, rows: Rows) -> int:
        place = self._place
        for row in rows:
            if _value(row, place) is not None:
                accumulator += 1
        return accumulator


class SumIntegers:
    """bigint; None where there is no value."""

    small = True
    stored: Any = Optional[int]  # noqa: UP045 - msgspec asks for it at run time

    def __init__(self, place: int) -> None:
        self._place = place

    def zero(self) -> Any:
        return None

    def reduce(self, accumulator: Any, rows: Rows) -> Any:
        place = self._place
        for row in rows:
            value = _value(row, place)
            if value is not None:
                # To 0 first, as Spark does: of -0.0 alone the sum is 0.0.
                accumulator = (0 if accumulator is None else accumulator) + value
        return self._checked(accumulator)

    def merge(self, one: Any, other: Any) -> Any:
        if one is None or other is None:
            return one if other is None else other
        return self._checked(one + other)

    def finish(self, accumulator: Any) -> Any:
        return accumulator

    def _checked(self, accumulator: Any) -> Any:
        if accumulator is not None and not -_LONG <= accumulator < _LONG:
            raise SumOverflow(f"a sum is {accumulator}, which is no bigint: sum doubles or decimals instead")
        return accumulator


class SumFractions(SumIntegers):
    """double."""

    stored: Any = Optional[float]  # noqa: UP045 - as above

    def _checked(self, accumulator: Any) -> Any:
        return accumulator


class SumDecimals(SumIntegers):
    """A decimal of so many digits and decimals."""

    stored: Any = Optional[decimal.Decimal]  # noqa: UP045 - as above

    def __init__(self, place: int, precision: int, scale: int) -> None:
        super().__init__(place)
        self._type = f"decimal({precision},{scale})"
        self._limit = decimal.Decimal(10) ** (precision - scale)

    def reduce(self, accumulator: Any, rows: Rows) -> Any:
        for row in rows:
            value = _value(row, self._place)
            if value is not None:
                accumulator = _EXACT.add(0 if accumulator is None else accumulator, value)
        return self._checked(accumulator)

    def merge(self, one: Any, other: Any) -> Any:
        if one is None or other is None:
            return one if other is None else other
        return self._checked(_EXACT.add(one, other))

    def _checked(self, accumulator: Any) -> Any:
        if accumulator is not None and not -self._limit < accumulator < self._limit:
            raise SumOverflow(f"a sum is {accumulator}, which is no {self._type}: sum a smaller type")
        return accumulator


class Mean:
    """double, of doubles added in the order in which they come; None where there is no value."""

    small = True
    stored: Any = tuple[float, int]

    def __init__(self, place: int) -> None:
        self._place = place

    def zero(self) -> tuple[float, int]:
        return 0.0, 0

    def reduce(self, accumulator: tuple[float, int], rows: Rows) -> tuple[float, int]:
        total, count = accumulator
        place = self._place
        for row in rows:
            value = _value(row, place)
            if value is not None:
                total += float(value)
                count += 1
        return total, count

    def merge(self, one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
        return one[0] + other[0], one[1] + other[1]

    def finish(self, accumulator: tuple[float, int]) -> float | None:
        total, count = accumulator
        return total / count if count else None


class MeanDecimals:
    """A decimal with so many decimals, rounded half up; the sum is `total`'s."""

    small = True
    stored: Any = tuple[SumDecimals.stored, int]

    def __init__(self, total: SumDecimals, count: CountColumn, scale: int) -> None:
        self._total = total
        self._count = count
        self._quantum = decimal.Decimal(1).scaleb(-scale)

    def zero(self) -> tuple[Any, int]:
        return None, 0

    def reduce(self, accumulator: tuple[Any, int], rows: Rows) -> tuple[Any, int]:
        total, count = accumulator
        return self._total.reduce(total, rows), self._count.reduce(count, rows)

    def merge(self, one: tuple[Any, int], other: tuple[Any, int]) -> tuple[Any, int]:
        return self._total.merge(one[0], other[0]), one[1] + other[1]

    def finish(self, accumulator: tuple[Any, int]) -> decimal.Decimal | None:
        total, count = accumulator
        if not count:
            return None
        return _EXACT.divide(total, decimal.Decimal(count)).quantize(self._quantum, context=_EXACT)


class Max:
    """The largest value, of any type that has an order; NaN is larger than all, as in Spark."""

    def __init__(self, place: int, type_: str) -> None:
        self._place = place
        self.stored = stored_type(type_)
        self.small = type_ not in ("string", "binary")

    def zero(self) -> Any:
        return None

    def reduce(self, accumulator: Any, rows: Rows) -> Any:
        place = self._place
        for row in rows:
            value = _value(row, place)
            if value is not None and (accumulator is None or self._replaces(value, accumulator)):
                accumulator = value
        return accumulator

    def merge(self, one: Any, other: Any) -> Any:
        if one is None or other is None:
            return one if other is None else other
        return other if self._replaces(other, one) else one

    def finish(self, accumulator: Any) -> Any:
        return accumulator

    def _replaces(self, value: Any, accumulator: Any) -> bool:
        return bool(value > accumulator or value != value)


class Min(Max):
    """The smallest value; NaN only where there is nothing else."""

    def _replaces(self, value: Any, accumulator: Any) -> bool:
        return bool(value < accumulator or (accumulator != accumulator and value == value))
