"""What a manifest says of a window: how event time is cut, and which columns are computed of each cut.

The models check each field for itself, and say in CEL what holds between the fields of one aggregate.
Neighbours: `windows` checks the rest and makes the plan's values, `topology` has them in its operators.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from penstock.dataflow.window import FUNCTIONS
from penstock.manifest.document import (
    EXPECTED,
    ColumnName,
    Document,
    Duration,
    atomic_list,
    cel,
    duration_us,
)

WINDOW_KINDS = ("tumbling", "sliding", "session")
AGGREGATES_MAX = 32
_QUANTILES_MAX = 32


def _whole_milliseconds(text: str) -> str:
    """Event time goes by milliseconds."""
    if duration_us(text) <= 0 or duration_us(text) % 1000:
        raise ValueError(f"{text!r} is no whole number of milliseconds above 0; give 1m, 250ms or the like")
    return text


WindowDuration = Annotated[
    Duration,
    AfterValidator(_whole_milliseconds),
    Field(
        json_schema_extra={
            EXPECTED: "a duration of whole milliseconds such as 1m, 10s or 250ms",
            **cel(("duration(self) >= duration('1ms')", "must be at least 1ms")),
        }
    ),
]
AggregateFunction = Annotated[
    str,
    StringConstraints(
        pattern=rf"^({'|'.join(FUNCTIONS)}|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*)$", max_length=253
    ),
    Field(json_schema_extra={EXPECTED: f"one of {', '.join(FUNCTIONS)}, or 'module:Class'"}),
]
TypeText = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class SlidingSpec(Document):
    """Windows of one size that begin again and again, and may lie over one another: a row is in several."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "duration(self.every) <= duration(self.size)",
                "sliding.every is longer than sliding.size: rows between would be in no window",
            )
        )
    )

    size: WindowDuration
    every: WindowDuration


class SessionSpec(Document):
    """Windows of rows of a key that follow one another closely."""

    gap: WindowDuration
    """A row that comes so long behind the last one still belongs; the session ends a gap behind its last."""


class WindowSpec(Document):
    """How event time is cut: exactly one kind. Windows are aligned to 1970-01-01T00:00:00Z."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "[has(self.tumbling), has(self.sliding), has(self.session)].filter(given, given).size() == 1",
                "exactly one of tumbling, sliding and session",
            )
        )
    )

    tumbling: WindowDuration | None = None
    """Windows of this size, one behind the other."""
    sliding: SlidingSpec | None = None
    session: SessionSpec | None = None


class AggregateSpec(Document):
    """One column that comes out of a window."""

    model_config = ConfigDict(
        # `as` and `function` are words of CEL's own, which it knows as __as__ and __function__.
        json_schema_extra=cel(
            (
                "has(self.type) == self.__function__.contains(':')",
                "an aggregator of your own says the type of its results; every other's follows",
            ),
            (
                "!has(self.column) || !self.__function__.contains(':')",
                "an aggregator of your own takes whole rows: it has no column",
            ),
            (
                "has(self.column) || self.__function__ == 'count' || self.__function__.contains(':')",
                "every aggregate needs a column, but count and those of your own",
            ),
            (
                "has(self.quantiles) == self.__function__.startsWith('approxQuantile')",
                "approxQuantile and approxQuantiles need quantiles, and nothing else has some",
            ),
            (
                "!has(self.quantiles) || self.__function__ != 'approxQuantile' || self.quantiles.size() == 1",
                "approxQuantile takes one quantile; approxQuantiles takes several",
            ),
            (
                "self.__function__ == oldSelf.__function__ && has(self.column) == has(oldSelf.column) && "
                "(!has(self.column) || self.column == oldSelf.column) && has(self.type) == has(oldSelf.type) "
                "&& (!has(self.type) || self.type == oldSelf.type)",
                "function, column and type of an aggregate are fixed for life",
            ),
        )
    )

    as_: Annotated[ColumnName, Field(alias="as")]
    """The name of the column that comes out."""
    function: AggregateFunction
    """count, sum, min, max, mean, approxCountDistinct, approxQuantile, approxQuantiles, or module:Class, an
    aggregator of your own with zero, reduce, merge and finish."""
    column: ColumnName | None = None
    """Of the input; what it is computed of. count has none where it counts rows, an aggregator of your own
    has none at all."""
    quantiles: (
        Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], atomic_list(_QUANTILES_MAX, minimum=1)]
        | None
    ) = None
    """Ranks from 0 to 1: one of approxQuantile, several of approxQuantiles. They may change."""
    type: TypeText | None = None
    """Of the results of an aggregator of your own, such as bigint."""
