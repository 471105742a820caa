"""What a manifest says of an interval join: which rows of two inputs meet, and which columns come out.

The models check each field for itself. Neighbours: `joins` checks the rest and makes the plan's values,
`topology` has them in its operators.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from penstock.manifest.document import (
    EXPECTED,
    ColumnName,
    Document,
    Duration,
    atomic_list,
    cel,
    duration_us,
)

JOIN_COLUMNS_MAX = 256
KEY_COLUMNS_MAX = 16


def _whole_milliseconds(text: str) -> str:
    """Event time goes by milliseconds."""
    if duration_us(text) % 1000:
        raise ValueError(f"{text!r} is no whole number of milliseconds; give 0s, 1m, 250ms or the like")
    return text


Distance = Annotated[
    Duration,
    AfterValidator(_whole_milliseconds),
    Field(json_schema_extra={EXPECTED: "a duration of whole milliseconds such as 1m, 10s or 0s"}),
]


class JoinColumnSpec(Document):
    """One column of one side that comes out."""

    column: ColumnName
    as_: Annotated[ColumnName | None, Field(alias="as")] = None
    """Its name there. Without it that which it has."""


class JoinSideSpec(Document):
    """One of the two inputs."""

    key: Annotated[tuple[ColumnName, ...], atomic_list(KEY_COLUMNS_MAX, minimum=1)]
    """Its columns that have to be equal to those of the other side, in the same order."""
    columns: Annotated[tuple[JoinColumnSpec, ...], atomic_list(JOIN_COLUMNS_MAX, minimum=1)] | None = None
    """Which of its columns come out. Without it all."""


class JoinSpec(Document):
    """Rows of two inputs meet where their keys are equal, and the right one happened from `before` before the
    left one to `after` after it, both included. `left` is the first of the operator's inputs."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.left.key.size() == self.right.key.size()", "left.key and right.key are equally long"),
        )
    )

    left: JoinSideSpec
    right: JoinSideSpec
    before: Distance = "0s"
    after: Distance = "0s"
    kind: Literal["Inner", "LeftOuter"] = "Inner"
    """LeftOuter: a row of the left that met nobody comes out too, the columns of the right null, when the
    watermark says that nobody will come."""
