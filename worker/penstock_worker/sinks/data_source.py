"""A Python data source of PySpark's as a sink: its stream writer writes and commits each batch.

`write` and `commit` are both called in the task, one after the other. A batch that was not acknowledged
comes again, with the same rows and the same batchId. Neighbours: `entry_batches` numbers,
`user_code.data_sources` finds the writer, `sinks.delivery` knows what to write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter

from penstock.connectors.data_source import DataSourceSink
from penstock.dataflow.schema import Schema
from penstock.errors import PermanentError
from penstock_worker.sinks.entry_batches import BATCH_BITS, Batch, batches_of, shard_number
from penstock_worker.sinks.writer import SinkPlace
from penstock_worker.user_code.data_sources import NoDataSource, data_source_class, made, writer_of
from penstock_worker.user_code.running import UserCodeError, raised, users_traceback
from penstock_worker.values.rows import RowReader
from penstock_worker.values.spark_types import struct_type

_LOG = logging.getLogger(__name__)


class DataSourceSinkWriter:
    """For all shards that feed one sink in this task. Raises UserCodeMissing and NoDataSource."""

    def __init__(self, sink: DataSourceSink, schema: Schema, place: SinkPlace) -> None:
        self._sink = sink
        self._kind = data_source_class(sink.target, place.base_dir)
        self._schema = struct_type(schema)
        self._reader = RowReader(schema, collected=True)
        self._at_work = place.at_work
        self._writer: DataSourceStreamWriter | None = None

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        """Raises UserCodeError and PermanentError."""
        if self._writer is None:
            self._writer = self._made()
        number = shard_number(shard, self._sink.feeders)
        if number is None:
            raise PermanentError(
                f"shard {shard} has a name and no number, so its batches have no batchId of their own; put a "
                "keyed operator between that source and this sink, or take a sink `foreach`"
            )
        with self._at_work(shard):
            for batch in batches_of(position, entries):
                self._batch(self._writer, (number << BATCH_BITS) + batch.number, batch)
                position = batch.position
        return position

    def _made(self) -> DataSourceStreamWriter:
        try:
            return writer_of(made(self._kind, dict(self._sink.options)), self._schema)
        except NoDataSource:
            raise
        except BaseException as error:
            text = users_traceback(error)
            called = f"{self._sink.target} raised before it gave a writer"
            raise UserCodeError(self._sink.name, called, text) from error

    def _batch(self, writer: DataSourceStreamWriter, batch_id: int, batch: Batch) -> None:
        messages: list[Any] = [None]
        try:
            messages = [self._called(writer.write, f"batch {batch_id}", self._rows(writer, batch))]
            self._called(writer.commit, f"batch {batch_id}", messages, batch_id)
        except UserCodeError:
            try:
                writer.abort(messages, batch_id)
            except BaseException as error:  # noqa: BLE001 - what came first is what is told
                _LOG.warning("sink %s: abort raised\n%s", self._sink.name, users_traceback(error))
            raise

    def _rows(self, writer: DataSourceStreamWriter, batch: Batch) -> Iterator[Any]:
        rows = self._reader.rows(batch.rows)
        if not isinstance(writer, DataSourceStreamArrowWriter):
            return rows
        # Arrow takes its memory: only who uses it pays.
        from pyspark.sql.conversion import LocalDataToArrowConversion

        table = LocalDataToArrowConversion.convert(list(rows), self._schema, False)
        return iter(table.to_batches())

    def _called(self, function: Callable[..., Any], what: str, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            called = f"{type(self._writer).__name__}.{function.__name__}"
            raise raised(self._sink.name, function, called, f"on {what}", error) from error

    def check(self, shard: str, position: bytes) -> None:
        """Nobody can look at what user code wrote."""

    def sync(self, shard: str) -> None:
        """What user code committed is out of the task's hands."""

    def close(self) -> None:
        """A stream writer has no end in PySpark's interface."""
