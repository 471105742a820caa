"""Makes the processors: what a window or a join says -> a StatefulProcessor of the row form.

It runs with event time (`timeMode: EventTime`), where rows behind the watermark are dropped before they
reach it, in Penstock as in Spark:

    rows.withWatermark("at", "10 seconds").groupBy("word").transformWithState(
        window_processor(aggregation, given, key_columns), output, "Append", "EventTime"
    )
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql.streaming import StatefulProcessor

from penstock.dataflow.interval_join import IntervalJoin
from penstock.dataflow.schema import Schema
from penstock.dataflow.window import Session, WindowAggregation, column_of
from penstock_worker.values.rows import is_converted
from penstock_worker.windows.aligned_windows import AlignedWindows
from penstock_worker.windows.interval_join import IntervalJoinProcessor
from penstock_worker.windows.session_windows import SessionWindows


def takes_wire_rows(aggregation: WindowAggregation, given: Schema) -> bool:
    """Whether all that is aggregated is on the wire what it is in rows: nobody needs to convert it then."""
    return not isinstance(aggregation.window, Session) and not any(
        one.is_users or (one.column and is_converted(column_of(given, one.column, one.output).type))
        for one in aggregation.aggregates
    )


def window_processor(
    aggregation: WindowAggregation,
    given: Schema,
    key_columns: Sequence[int],
    base_dir: Path = Path(),
    *,
    wire: bool = False,
) -> StatefulProcessor:
    """Of rows of the schema `given`, with their key at `key_columns`; it puts out `aggregation.output`.

    With `wire`, where it `takes_wire_rows`, both are wire rows. Users' aggregators are looked for in
    `base_dir` first. Raises InvalidWindow and UserCodeMissing.
    """
    if isinstance(aggregation.window, Session):
        return SessionWindows(aggregation, aggregation.window, given, key_columns, base_dir)
    return AlignedWindows(aggregation, aggregation.window, given, key_columns, base_dir, wire=wire)


def join_processor(join: IntervalJoin, given: Schema) -> StatefulProcessor:
    """Of rows of the schema `given`: the key's columns, `left` and `right`; it puts out `join.output`.

    Raises InvalidWindow.
    """
    return IntervalJoinProcessor(join, given)
