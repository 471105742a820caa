"""The sink `foreach`: calls the user's code with each row, as Spark's `foreach` does.

A batch (`entry_batches`) is opened, its rows are processed, and it is closed; one that its task's end left
open comes again, with the same ids and rows. Neighbour: `sinks.delivery` knows what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.connectors.foreach import ForeachSink
from penstock.dataflow.schema import Schema
from penstock_worker.sinks.entry_batches import Batch, batches_of, partition_id
from penstock_worker.sinks.writer import SinkPlace
from penstock_worker.user_code.foreach_code import ForeachCode, foreach_code, not_foreach
from penstock_worker.user_code.running import UserCodeError, UserCodeMissing, load_attribute, raised
from penstock_worker.values.rows import RowReader
from penstock_worker.values.wire_values import shown


class ForeachSinkWriter:
    """For all shards that feed one sink in this task. Raises UserCodeMissing."""

    def __init__(self, sink: ForeachSink, schema: Schema, place: SinkPlace) -> None:
        self._sink = sink
        self._given: Any = load_attribute(sink.target, place.base_dir)
        if problem := not_foreach(sink.target, self._given):
            raise UserCodeMissing(problem)
        self._reader = RowReader(schema, collected=True)
        self._at_work = place.at_work
        self._code: ForeachCode | None = None

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        """Raises UserCodeError."""
        if self._code is None:
            self._code = self._called(foreach_code, "__init__", "as it was made", self._given)
        identity = partition_id(shard, self._sink.feeders)
        with self._at_work(shard):
            for batch in batches_of(position, entries):
                self._batch(self._code, identity, batch)
                position = batch.position
        return position

    def _batch(self, code: ForeachCode, identity: int, batch: Batch) -> None:
        what = f"for partition {identity} and epoch {batch.number}"
        if code.open is not None and not self._called(code.open, "open", what, identity, batch.number):
            rows: list[tuple[Any, ...]] = []
        else:
            rows = batch.rows
        failed: UserCodeError | None = None
        process = code.process
        for row in self._reader.rows(rows):
            try:
                process(row)
            except BaseException as error:  # noqa: BLE001 - raised below, when all is closed
                failed = self._raised(process, "process", f"on {shown(row)}", error)
                break
        if code.close is not None:
            cause = None if failed is None else failed.__cause__
            try:
                self._called(code.close, "close", what, cause)
            except UserCodeError:
                if failed is None:
                    raise
        if failed is not None:
            raise failed

    def _called(self, function: Callable[..., Any], called: str, what: str, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            raise self._raised(function, called, what, error) from error

    def _raised(self, function: Any, called: str, what: str, error: BaseException) -> UserCodeError:
        made = raised(self._sink.name, function, f"{self._sink.target}, {called},", what, error)
        made.__cause__ = error
        return made

    def check(self, shard: str, position: bytes) -> None:
        """Nobody can look at what user code did."""

    def sync(self, shard: str) -> None:
        """What user code returned from is out of the task's hands."""

    def close(self) -> None:
        """User code is closed with each batch."""
