"""Code that Spark's driver calls with a batch of rows as a DataFrame: a sink's function, or a transform.

Neighbours: `batch_door` has tasks' calls made here, in the main process; `user_code.batch_code` and
`user_code.transform_code` are what is called. Tests of users' transforms come here without a door.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.dataflow.plan import Plan, Processor
from penstock.dataflow.schema import Schema
from penstock_worker.kinds.stage_sinks import batch_code
from penstock_worker.user_code.batch_code import BatchCode
from penstock_worker.user_code.transform_code import TransformCode
from penstock_worker.values.arrow_rows import packed_table, unpacked
from penstock_worker.values.spark_types import struct_type

_ONE_PARTITION = {
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000000",
}
"""A batch is one partition: a job on it has one task, and a writer makes one file. Spark would cut it into as
many as the session has slots, hundreds."""
_ONE_SHUFFLED = {"spark.sql.shuffle.partitions": "1"}
"""Of a transform: hundreds of partitions of a few rows would cost seconds."""


@dataclass(frozen=True, slots=True)
class BatchUser:
    """What is called for a sink or a transform, and the schema of the rows that it is given."""

    schema: Schema
    code: BatchCode | TransformCode


def batch_users(plan: Plan, base_dir: Path) -> Iterator[tuple[str, BatchUser]]:
    """The plan's transforms, and its sinks that are stages, by operator."""
    for stage in plan.stages:
        match stage.head:
            case Processor(batches_to=sink) as head if sink is not None:
                yield stage.operator, BatchUser(head.input, batch_code(sink, base_dir))
            case Processor(transform=transform) as head if transform is not None:
                code = TransformCode(stage.operator, transform, stage.out.schema, base_dir)
                yield stage.operator, BatchUser(head.input, code)


class BatchCalls:
    """Of the operator `operator`, in a session of its own: views and settings of one function are no
    other's."""

    def __init__(self, spark: SparkSession, operator: str, user: BatchUser) -> None:
        self._spark = spark
        self._operator = operator
        self._user = user
        self._session: SparkSession | None = None

    def call(self, number: int, rows: int, records: bytes) -> bytes:
        """Of a transform what came of the batch, packed by Arrow; b"" of a sink. Raises what the code and
        Spark raise."""
        session = self._own_session()
        frame: DataFrame = session.createDataFrame(unpacked(records), struct_type(self._user.schema))
        session.sparkContext.setJobDescription(f"batch {number} of {self._operator}")
        table = self._user.code.call(frame, number, rows)
        return b"" if table is None else packed_table(table)

    def _own_session(self) -> SparkSession:
        if self._session is None:
            session = self._spark.newSession()
            is_transform = isinstance(self._user.code, TransformCode)
            for name, value in (_ONE_PARTITION | (_ONE_SHUFFLED if is_transform else {})).items():
                session.conf.set(name, value)
            self._session = session
        return self._session
