"""Windows, as values: how event time is cut, what is computed of each cut, and which columns come out.

Each value is checked when it is made, by the rules of Spark's `window` and `session_window`;
`WindowAggregation.output` says what rows come out of an input. What a window does is the worker's
(`penstock_worker.windows`), as configuration and logic stand apart in bytewax. Neighbours: `interval_join`
(the other operator that needs no code), `plan` (processors of users).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataflow.schema import Column, Schema
from penstock.errors import PermanentError

COUNT = "count"
SUM = "sum"
MIN = "min"
MAX = "max"
MEAN = "mean"
APPROX_COUNT_DISTINCT = "approxCountDistinct"
APPROX_QUANTILE = "approxQuantile"
APPROX_QUANTILES = "approxQuantiles"
FUNCTIONS = (COUNT, SUM, MIN, MAX, MEAN, APPROX_COUNT_DISTINCT, APPROX_QUANTILE, APPROX_QUANTILES)

WINDOW_START = "windowStart"
WINDOW_END = "windowEnd"
TIME_TYPES = ("timestamp", "timestamp_ntz")
"""What a column of event times may be."""

INTEGERS = ("tinyint", "smallint", "int", "bigint")
FRACTIONS = ("float", "double")
_DECIMAL_PRECISION_MAX = 38
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TARGET = re.compile(r"[\w.]+:[\w.]+")
_NESTED = ("array<", "map<", "struct<")


class InvalidWindow(PermanentError):
    """A window, an aggregate or a join cannot be; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    """[offset + n * size, offset + (n + 1) * size) for every whole number n."""

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        _check_at_least("a tumbling window", "size", self.size_ms)
        _check_offset(self.offset_ms, self.size_ms, "its size")

    @property
    def every_ms(self) -> int:
        return self.size_ms

    def identity_text(self) -> str:
        return f"tumbling {self.size_ms} ms, offset {self.offset_ms} ms"


@dataclass(frozen=True, slots=True)
class Sliding:
    """[offset + n * every, offset + n * every + size) for every whole number n: a row is in several."""

    size_ms: int
    every_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        _check_at_least("a sliding window", "size", self.size_ms)
        _check_at_least("a sliding window", "every", self.every_ms)
        if self.every_ms > self.size_ms:
            raise InvalidWindow(
                f"a sliding window of {self.size_ms} ms begins every {self.every_ms} ms, so that rows "
                "between would be in none; let it begin at least as often as it is long"
            )
        _check_offset(self.offset_ms, self.every_ms, "every")

    def identity_text(self) -> str:
        return f"sliding {self.size_ms} ms every {self.every_ms} ms, offset {self.offset_ms} ms"


@dataclass(frozen=True, slots=True)
class Session:
    """Rows of a key, each at most a gap behind the one before; it ends a gap behind the last."""

    gap_ms: int

    def __post_init__(self) -> None:
        _check_at_least("a session", "gap", self.gap_ms)

    def identity_text(self) -> str:
        return f"session, gap {self.gap_ms} ms"


Window = Tumbling | Sliding | Session


def _check_at_least(what: str, field: str, value_ms: int) -> None:
    if value_ms < 1:
        raise InvalidWindow(f"{what} has a {field} of {value_ms} ms; give at least 1 ms")


def _check_offset(offset_ms: int, bound_ms: int, bound: str) -> None:
    if abs(offset_ms) >= bound_ms:
        raise InvalidWindow(
            f"the offset of a window is {offset_ms} ms; give less than {bound}, {bound_ms} ms"
        )


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One column that comes out of a window.

    `function` is one of FUNCTIONS, or "module:Class" of an aggregator of the user's. `column` is what it is
    computed of; count may have none, then it counts rows. `quantiles` are ranks from 0 to 1: one of
    APPROX_QUANTILE, any number of APPROX_QUANTILES. `type` is what comes out of a user's.
    """

    output: str
    function: str
    column: str = ""
    quantiles: tuple[float, ...] = ()
    type: str = ""

    def __post_init__(self) -> None:
        what = f"aggregate {self.output!r}"
        if self.is_users:
            if self.column or self.quantiles:
                raise InvalidWindow(f"{what}: an aggregator of your own takes whole rows; name no column")
            if not self.type:
                raise InvalidWindow(f"{what}: say of what type the results of {self.function} are")
            return
        if self.function not in FUNCTIONS:
            raise InvalidWindow(
                f"{what} is {self.function!r}; give one of {', '.join(FUNCTIONS)}, or module:Class"
            )
        if self.type:
            raise InvalidWindow(f"{what}: the type of {self.function} follows from its column; leave it out")
        if not self.column and self.function != COUNT:
            raise InvalidWindow(f"{what}: {self.function} needs a column")
        self._check_quantiles(what)

    def _check_quantiles(self, what: str) -> None:
        count = len(self.quantiles)
        if self.function == APPROX_QUANTILE and count != 1:
            raise InvalidWindow(f"{what}: {self.function} takes one quantile, got {count}")
        if self.function == APPROX_QUANTILES and not count:
            raise InvalidWindow(f"{what}: {self.function} takes a list of quantiles")
        if count and self.function not in (APPROX_QUANTILE, APPROX_QUANTILES):
            raise InvalidWindow(f"{what}: {self.function} takes no quantiles")
        for quantile in self.quantiles:
            if not 0 <= quantile <= 1:
                raise InvalidWindow(f"{what}: a quantile is from 0 to 1, got {quantile}")

    @property
    def is_users(self) -> bool:
        return _TARGET.fullmatch(self.function) is not None

    def result_type(self, given: Schema) -> str:
        """The type of its results over rows of `given`. Raises InvalidWindow."""
        if self.is_users:
            return self.type
        type_ = column_of(given, self.column, f"aggregate {self.output!r}").type if self.column else ""
        result = _result_type(self.function, type_)
        if not result:
            raise InvalidWindow(
                f"aggregate {self.output!r}: there is no {self.function} of {type_} ({self.column!r})"
            )
        return result

    def identity_text(self) -> str:
        """What the state of a window depends on: quantiles are asked for in the end only."""
        return f"{self.function}({self.column})"


def _result_type(function: str, type_: str) -> str:
    """As Spark's; "" where there is no such aggregate."""
    is_number = type_ in INTEGERS or type_ in FRACTIONS or type_.startswith("decimal(")
    match function:
        case "count":
            return "bigint"
        case "approxCountDistinct" if not type_.startswith(_NESTED):
            return "bigint"
        case "min" | "max" if not type_.startswith(_NESTED):
            return type_
        case "sum" if is_number:
            return _sum_type(type_)
        case "mean" if is_number:
            return _decimal_wider(type_, 4, 4) or "double"
        case "approxQuantile" if is_number:
            return "double"
        case "approxQuantiles" if is_number:
            return "array<double>"
    return ""


def _sum_type(type_: str) -> str:
    return _decimal_wider(type_, 10, 0) or ("bigint" if type_ in INTEGERS else "double")


def _decimal_wider(type_: str, digits: int, decimals: int) -> str:
    """A decimal type with more digits, as many of them behind the point; "" for what is none."""
    found = _DECIMAL.fullmatch(type_)
    if found is None:
        return ""
    precision, scale = int(found[1]) + digits, int(found[2]) + decimals
    return f"decimal({min(precision, _DECIMAL_PRECISION_MAX)},{min(scale, _DECIMAL_PRECISION_MAX)})"


def decimal_digits(type_: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for what is none."""
    found = _DECIMAL.fullmatch(type_)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class WindowAggregation:
    """The operator: rows are grouped by key and by `window` over their column `event_time`."""

    window: Window
    event_time: str
    aggregates: tuple[Aggregate, ...]

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise InvalidWindow("a window computes nothing; give at least one aggregate, such as count")

    def output(self, given: Schema, key_columns: Sequence[int]) -> Schema:
        """The columns of its results: the key's, windowStart, windowEnd and the aggregates'.

        `given` is the schema of its rows, `key_columns` are positions in it. Raises InvalidWindow.
        """
        time = column_of(given, self.event_time, "eventTime")
        if time.type not in TIME_TYPES:
            raise InvalidWindow(f"event time {time.name!r} is {time.type}; it has to be a timestamp")
        made = [
            *(given.columns[place] for place in key_columns),
            Column(WINDOW_START, "timestamp"),
            Column(WINDOW_END, "timestamp"),
            *(Column(one.output, one.result_type(given)) for one in self.aggregates),
        ]
        return checked_output(made)

    def identity_text(self) -> str:
        """What its state depends on and what never changes, in words."""
        computed = ", ".join(one.identity_text() for one in self.aggregates)
        return f"{self.window.identity_text()}, of {self.event_time}: {computed}"


def column_of(schema: Schema, name: str, what: str) -> Column:
    """The column called `name`; `what` asks for it. Raises InvalidWindow."""
    for column in schema.columns:
        if column.name == name:
            return column
    raise InvalidWindow(f"{what}: there is no column {name!r}; there are {', '.join(schema.names)}")


def checked_output(columns: Sequence[Column]) -> Schema:
    """The columns as a schema. Raises InvalidWindow where two have one name."""
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise InvalidWindow(f"column {column.name!r} comes out twice (case does not count); rename one")
        seen.add(column.name.lower())
    return Schema(tuple(columns))
