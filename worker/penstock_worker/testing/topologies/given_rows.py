"""What a test feeds, as rows of a source: checked as a data source's rows are, and by name more strictly.

A column that is missing is null; one that the source has not is a slip of the test, and refused. Neighbour:
`fed_partitions` takes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import Row

from penstock.dataflow.json_lines import BadLine, JsonLines
from penstock.dataflow.schema import Schema
from penstock.manifest.faults import nearest
from penstock_worker.testing.topologies.failures import Misuse
from penstock_worker.values.rows import OutputShape, RowMismatch, WireRow
from penstock_worker.values.wire_values import names_of, shown


def given_rows(source: str, schema: Schema, rows: object) -> list[WireRow]:
    """Rows as dicts, Rows, tuples, or bare values where there is one column. Raises Misuse."""
    if isinstance(rows, dict | str | bytes | Row) or not isinstance(rows, Iterable):
        raise Misuse(f"feed({source!r}, ...) takes a list of rows, got {shown(rows)}; write [...] around it")
    listed: list[Any] = list(rows)
    for row in listed:
        _check_names(source, schema, row)
    try:
        return list(OutputShape(schema).wire_rows(listed))
    except RowMismatch as error:
        raise Misuse(f"source {source}, ({schema.ddl()}): {error}") from None


def given_lines(source: str, schema: Schema, lines: Iterable[str]) -> list[WireRow]:
    """Rows as JSON, as they stand in files and topics. Raises Misuse."""
    try:
        return list(JsonLines(schema).rows(list(lines)))
    except BadLine as bad:
        raise Misuse(f"source {source}, line {bad.index + 1}{bad}") from None


def _check_names(source: str, schema: Schema, row: object) -> None:
    names = list(row) if isinstance(row, dict) else names_of(row) if isinstance(row, Row) else None
    for name in names or ():
        if name not in schema.names:
            raise Misuse(
                f"source {source} has no column {name!r}{nearest(str(name), schema.names)}; "
                f"it has {', '.join(schema.names)}"
            )
