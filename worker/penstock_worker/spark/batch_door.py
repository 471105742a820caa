"""Where tasks have the function of a sink or a transform called: in the worker's main process.

That is Spark's driver. A task sends a batch through a socket, as Arrow, and waits for the answer: that it is
written, what came of it, or what the function raised, in words. Calls of one operator run one after the other
in a thread of its own. When a task is killed its call goes on; a later one with the same batch waits for it,
and then calls again, so one worker never writes a batch twice at a time. A call that cannot be answered
truly, since Spark ends, is not answered: the task claims its shard again. Neighbours: `standby` (the other
socket), `stages.batch_stage` and `stages.transform_stage` (who calls), `batch_calls` (what is called).
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
from pyspark.sql import SparkSession

from penstock.dataflow.plan import Plan
from penstock.errors import PenstockError, PermanentError, RetryError
from penstock_worker.spark.batch_calls import BatchCalls, BatchUser, batch_users
from penstock_worker.spark.local_socket import (
    is_closed,
    is_this_user,
    received_message,
    send_message,
    unnamed_listener,
)
from penstock_worker.stages.batch_stage import Write
from penstock_worker.stages.transform_stage import Run
from penstock_worker.stages.work import WorkFailed
from penstock_worker.user_code.running import UserCodeError

_LOG = logging.getLogger(__name__)


class _Request(msgspec.Struct, frozen=True, array_like=True):
    operator: str
    number: int
    rows: int
    records: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Request)
_WRITTEN = b"w"
"""Behind it, of a transform, what came of the batch."""
_FAILED = b"f"
_RAISED = b"r"
"""The code has raised on this batch; on another one it may not."""


@dataclass(frozen=True, slots=True)
class _Call:
    request: _Request
    connection: socket.socket


class BatchDoor:
    """The main process' end. `users` are what is called of all stages, by operator. Raises OSError where
    there is no place for a socket."""

    def __init__(self, spark: SparkSession, users: Mapping[str, BatchUser]) -> None:
        self._spark = spark
        self.path, self._listener = unnamed_listener()
        self._closed = False
        self._calls: dict[str, queue.SimpleQueue[_Call]] = {}
        for operator, user in users.items():
            waiting = self._calls[operator] = queue.SimpleQueue()
            _start(f"batches of {operator}", self._serve, BatchCalls(spark, operator, user), waiting)
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

    def _serve(self, calls: BatchCalls, waiting: queue.SimpleQueue[_Call]) -> None:
        while True:
            call = waiting.get()
            with call.connection, suppress(OSError):
                if self._closed or is_closed(call.connection):
                    continue  # Its task was killed as it waited.
                request = call.request
                came, said = _FAILED, b""
                try:
                    came, said = _WRITTEN, calls.call(request.number, request.rows, request.records)
                except UserCodeError as error:
                    came, said = _RAISED, str(error).encode()
                except PenstockError as error:
                    came, said = _FAILED, str(error).encode()
                except (PySparkException, Py4JError, pa.ArrowException) as error:
                    text = f"operator {request.operator}: no DataFrame can be made: {error}"
                    came, said = _FAILED, text.encode()
                if came != _WRITTEN and self._is_ending():
                    _LOG.warning("batch %d of %s: Spark ends", request.number, request.operator)
                    continue
                send_message(call.connection, came + said)

    def _is_ending(self) -> bool:
        if self._closed:
            return True
        try:
            return bool(self._spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - has no other way
        except (Py4JError, OSError, AttributeError):
            return True


def open_batch_door(spark: SparkSession, plan: Plan, base_dir: Path) -> BatchDoor | None:
    """Of the plan's transforms and sinks that are stages; None where it has none. Raises PermanentError."""
    users = dict(batch_users(plan, base_dir))
    try:
        return BatchDoor(spark, users) if users else None
    except OSError as error:
        raise PermanentError(f"no socket can be opened for batches: {error}") from error


def writing_through(door: str, operator: str) -> Write:
    """The task's end: writes batches of the sink `operator` through the door at `door`."""
    run = transforming_through(door, operator)

    def write(number: int, rows: int, records: bytes) -> None:
        try:
            run(number, rows, records)
        except UserCodeError as error:
            raise WorkFailed(str(error)) from error

    return write


def transforming_through(door: str, operator: str) -> Run:
    """The same of a transform, whose answer is what came of the batch."""

    def run(number: int, rows: int, records: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            answer: bytes | None = None
            with suppress(OSError):
                connection.connect(door)
                if is_this_user(connection):
                    send_message(connection, _ENCODER.encode(_Request(operator, number, rows, records)))
                    answer = received_message(connection)
        if answer is None:
            raise RetryError(f"batch {number} of {operator} has no answer: the worker's main process ends")
        came, said = answer[:1], answer[1:]
        if came == _RAISED:
            raise UserCodeError.told(operator, said.decode())
        if came == _FAILED:
            raise WorkFailed(said.decode())
        return said

    return run


def _start(name: str, target: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, name=name, daemon=True).start()
