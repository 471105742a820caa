"""`mapInArrow`: record batches in, record batches out. Loads pyarrow; `batch_steps` imports it."""

from __future__ import annotations

from penstock.dataflow.schema import Schema
from penstock_worker.values.arrow_columns import ArrowShape, joined_rows
from penstock_worker.values.arrow_rows import ArrowRows


class ArrowStep:
    """Keeps the port `BatchForm`."""

    role = "mapInArrow"
    batches = "record batches"

    def __init__(self, given: Schema, output: Schema) -> None:
        self.batch = ArrowRows(given).batch
        self.wire_rows = ArrowShape(output).wire_rows
        self.joined = joined_rows
