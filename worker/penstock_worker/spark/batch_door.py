"""Where tasks have the function of a sink called: in the worker's main process, which is Spark's driver.

A task sends a batch through a socket, as Arrow, and waits for the answer: that it is written, or what the
function raised, in words. Calls of one sink run one after the other in a thread of its own. When a task is
killed its call goes on; a later one with the same batch waits for it, and then calls again, so one worker
never writes a batch twice at a time. A call that cannot be answered truly, since Spark ends, is not answered:
the task claims its shard again. Neighbours: `standby` (the other socket), `stages.batch_stage` (who calls),
`user_code.batch_code` (what is called).
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.dataflow.plan import Plan, Processor
from penstock.dataflow.schema import Schema
from penstock.errors import PenstockError, PermanentError, RetryError
from penstock_worker.kinds.stage_sinks import batch_code
from penstock_worker.spark.local_socket import (
    is_closed,
    is_this_user,
    received_message,
    send_message,
    unnamed_listener,
)
from penstock_worker.stages.batch_stage import Write
from penstock_worker.stages.work import WorkFailed
from penstock_worker.user_code.batch_code import BatchCode
from penstock_worker.values.arrow_rows import unpacked
from penstock_worker.values.spark_types import struct_type

_LOG = logging.getLogger(__name__)

_ONE_PARTITION = {
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000000",
}
"""A batch is one partition: a job on it has one task, and a writer makes one file. Spark would cut it into as
many as the session has slots, hundreds."""


class _Request(msgspec.Struct, frozen=True, array_like=True):
    operator: str
    number: int
    rows: int
    records: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Request)
_WRITTEN = b"w"
_FAILED = b"f"


@dataclass(frozen=True, slots=True)
class BatchSink:
    """What is called for a sink, and the schema of its rows."""

    schema: Schema
    code: BatchCode


@dataclass(frozen=True, slots=True)
class _Call:
    request: _Request
    connection: socket.socket


class BatchDoor:
    """The main process' end. `sinks` are those of all stages, by operator. Raises OSError where there is no
    place for a socket."""

    def __init__(self, spark: SparkSession, sinks: Mapping[str, BatchSink]) -> None:
        self._spark = spark
        self.path, self._listener = unnamed_listener()
        self._closed = False
        self._calls: dict[str, queue.SimpleQueue[_Call]] = {}
        for operator, sink in sinks.items():
            calls = self._calls[operator] = queue.SimpleQueue()
            _start(f"batches of {operator}", self._serve, sink, calls)
        _start("batch-door", self._listen)

    def close(self) -> None:
        """Nobody is answered any more: what Spark's end makes of a call is not the function's failure."""
        self._closed = True
        with suppress(OSError):
            # A thread that blocks in accept wakes by the shutdown, not by the close.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            _start("batch-received", self._take, connection)

    def _take(self, connection: socket.socket) -> None:
        try:
            message = received_message(connection) if is_this_user(connection) else None
            if message is not None:
                request = _DECODER.decode(message)
                self._calls[request.operator].put(_Call(request, connection))
                return
        except OSError:
            pass
        connection.close()

    def _serve(self, sink: BatchSink, calls: queue.SimpleQueue[_Call]) -> None:
        session: SparkSession | None = None
        while True:
            call = calls.get()
            with call.connection, suppress(OSError):
                if self._closed or is_closed(call.connection):
                    continue  # Its task was killed as it waited.
                failure = ""
                try:
                    if session is None:
                        session = self._session()
                    _write(session, sink, call.request)
                except PenstockError as error:
                    failure = str(error)
                except (PySparkException, Py4JError, pa.ArrowException) as error:
                    failure = f"operator {call.request.operator}: no DataFrame can be made: {error}"
                if failure and self._is_ending():
                    _LOG.warning("batch %d of %s: Spark ends", call.request.number, call.request.operator)
                    continue
                send_message(call.connection, _FAILED + failure.encode() if failure else _WRITTEN)

    def _session(self) -> SparkSession:
        """Views and settings of one sink's function are no other's."""
        session: SparkSession = self._spark.newSession()
        for name, value in _ONE_PARTITION.items():
            session.conf.set(name, value)
        return session

    def _is_ending(self) -> bool:
        if self._closed:
            return True
        try:
            return bool(self._spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - has no other way
        except (Py4JError, OSError, AttributeError):
            return True


def open_batch_door(spark: SparkSession, plan: Plan, base_dir: Path) -> BatchDoor | None:
    """Of the plan's sinks that are stages; None where it has none. Raises PermanentError."""
    sinks = {
        stage.operator: BatchSink(head.input, batch_code(head.batches_to, base_dir))
        for stage in plan.stages
        if isinstance(head := stage.head, Processor) and head.batches_to is not None
    }
    try:
        return BatchDoor(spark, sinks) if sinks else None
    except OSError as error:
        raise PermanentError(f"no socket can be opened for the batches of sinks: {error}") from error


def _write(session: SparkSession, sink: BatchSink, request: _Request) -> None:
    frame: DataFrame = session.createDataFrame(unpacked(request.records), struct_type(sink.schema))
    session.sparkContext.setJobDescription(f"batch {request.number} of {request.operator}")
    sink.code.call(frame, request.number, request.rows)


def writing_through(door: str, operator: str) -> Write:
    """The task's end: writes batches of the sink `operator` through the door at `door`."""

    def write(number: int, rows: int, records: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            answer: bytes | None = None
            with suppress(OSError):
                connection.connect(door)
                if is_this_user(connection):
                    send_message(connection, _ENCODER.encode(_Request(operator, number, rows, records)))
                    answer = received_message(connection)
        if answer is None:
            raise RetryError(f"batch {number} of {operator} has no answer: the worker's main process ends")
        if answer != _WRITTEN:
            raise WorkFailed(answer[len(_FAILED) :].decode())

    return write


def _start(name: str, target: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, name=name, daemon=True).start()
