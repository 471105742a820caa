"""The door to a main process through which tasks have a sink's function called, with real Spark behind it."""

from __future__ import annotations

import datetime
import importlib
import socket
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from pyspark.sql import Row, SparkSession

from clocks.eventually import eventually
from penstock.dataflow.ddl import parse_schema
from penstock.errors import RetryError
from penstock_worker.spark.batch_calls import BatchUser
from penstock_worker.spark.batch_door import BatchDoor, writing_through
from penstock_worker.spark.local_socket import send_message
from penstock_worker.stages.work import WorkFailed
from penstock_worker.user_code.batch_code import BatchCode
from penstock_worker.values.arrow_rows import ArrowRows
from penstock_worker.values.spark_types import struct_type

SCHEMA = parse_schema(
    "word string, n int, at timestamp, local timestamp_ntz, day date, amount decimal(9,2), "
    "many array<int>, pairs map<string,int>, inner struct<x:int,y:string>"
)
AT_US = 1_700_000_000_000_001
ROWS = [("a", 1, AT_US, AT_US, 20_000, "12.50", [1, 2], [("k", 1)], [7, "z"]), (None,) * 9]
CODE = """
import threading

given = []
began, goes_on = threading.Event(), threading.Event()
goes_on.set()


def write(df, batch_id):
    given.append((batch_id, df.schema, df.collect(), df.rdd.getNumPartitions()))
    began.set()
    assert goes_on.wait(60)


def fail(df, batch_id):
    raise ValueError("the table is gone")


def one(df):
    pass
"""

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "door_code.py").write_text(CODE)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("door_code")
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def door(spark: SparkSession, code: ModuleType) -> Iterator[BatchDoor]:
    folder = Path(str(code.__file__)).parent
    sinks = {
        name: BatchUser(SCHEMA, BatchCode(name, f"door_code:{name}", folder))
        for name in ("write", "fail", "one")
    }
    door = BatchDoor(spark, sinks)
    yield door
    door.close()


def packed() -> bytes:
    return ArrowRows(SCHEMA).packed(ROWS)


def test_a_batch_is_a_dataframe_of_exactly_its_schema_and_rows_in_one_partition(
    door: BatchDoor, code: ModuleType
) -> None:
    code.given.clear()
    writing_through(door.path, "write")(5, len(ROWS), packed())
    ((batch_id, schema, rows, partitions),) = code.given
    assert (batch_id, partitions) == (5, 1)
    assert schema == struct_type(SCHEMA)
    at = datetime.datetime(2023, 11, 14, 22, 13, 20, 1)  # noqa: DTZ001
    (first, second) = rows
    assert first == Row(
        word="a", n=1, at=at.replace(tzinfo=datetime.UTC).astimezone().replace(tzinfo=None), local=at,
        day=datetime.date(2024, 10, 4), amount=Decimal("12.50"), many=[1, 2], pairs={"k": 1},
        inner=Row(x=7, y="z"),
    )  # fmt: skip
    assert second == Row(**dict.fromkeys(SCHEMA.names))


def test_what_the_function_raises_is_told_with_the_batch(door: BatchDoor, code: ModuleType) -> None:
    with pytest.raises(WorkFailed) as raised:
        writing_through(door.path, "fail")(7, 2, packed())
    text = str(raised.value)
    assert text.startswith("operator fail: door_code:fail raised on batch 7, of 2 rows\n")
    assert f'File "{code.__file__}"' in text
    assert text.endswith("ValueError: the table is gone")


def test_a_function_that_cannot_be_called_so_is_told(door: BatchDoor) -> None:
    with pytest.raises(WorkFailed, match=r"operator one: 'door_code:one' takes \(df\); foreachBatch calls"):
        writing_through(door.path, "one")(0, 2, packed())


def test_calls_of_a_sink_wait_for_each_other_and_those_of_killed_tasks_are_left_out(
    door: BatchDoor, code: ModuleType
) -> None:
    code.given.clear()
    code.began.clear()
    code.goes_on.clear()
    request = msgspec.msgpack.encode(["write", 3, len(ROWS), packed()])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.connect(door.path)
        send_message(killed, request)
        assert code.began.wait(60)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
            waiting.connect(door.path)
            send_message(waiting, request)
    written = threading.Event()

    def write() -> None:
        writing_through(door.path, "write")(3, len(ROWS), packed())
        written.set()

    threading.Thread(target=write, daemon=True).start()
    assert len(code.given) == 1, "a call waits for the one before it"
    code.goes_on.set()
    eventually(written.is_set, "the last call is answered")
    assert [batch_id for batch_id, *_ in code.given] == [3, 3], (
        "whoever waited and was killed is not called for"
    )


def test_where_nobody_answers_the_batch_may_be_written_or_not(spark: SparkSession, code: ModuleType) -> None:
    folder = Path(str(code.__file__)).parent
    closed = BatchDoor(spark, {"write": BatchUser(SCHEMA, BatchCode("write", "door_code:write", folder))})
    closed.close()
    with pytest.raises(RetryError, match="batch 3 of write has no answer: the worker's main process ends"):
        writing_through(closed.path, "write")(3, len(ROWS), packed())
