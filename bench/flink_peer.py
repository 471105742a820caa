"""The peer of the scale-out bench: the same load and the same service on Flink, as a job.

`flink run -py flink_peer.py JOB.json` runs it in the peer's own virtual environment: it submits the job to
the cluster that `flink_side` has started, and leaves its id. The source's records are numbers; when each is
due and which key it has stands in two files of 64-bit integers. A row is written the moment its record was
worked on, before any checkpoint has it: a Flink sink of the same guarantee as Penstock's would show it later.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, MapFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor

SERVICE_NS = 5_000_000
LATE_NS_MAX = 500_000
"""As in `waiting`."""


def _integers(path: str) -> array[int]:
    values: array[int] = array("q")
    values.frombytes(Path(path).read_bytes())
    return values


class Pace(MapFunction):  # type: ignore[misc]  # pyflink carries no types for mypy here
    """Number -> (key, number), not before it is due. Who comes late is not waited for."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self._due_us = _integers(f"{self._folder}/due.bin")
        self._keys = _integers(f"{self._folder}/keys.bin")
        begun = Path(self._folder, "begun")
        if not begun.exists():
            # The source's first start is second 0 of the trace; a later one goes on from there.
            begun.write_text(str(time.time_ns() // 1000))
        self._begun_us = int(begun.read_text())

    def map(self, value: int) -> tuple[int, int]:
        wait_us = self._begun_us + self._due_us[value] - time.time_ns() // 1000
        if wait_us > 0:
            time.sleep(wait_us / 1e6)
        return self._keys[value], value


class Step(KeyedProcessFunction):  # type: ignore[misc]
    """Waits 5 ms for each record, counts its key's, and writes a row."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self._late_ns = 0
        # In thread mode all subtasks share a process, and pyflink 2.3 cannot ask for their index.
        self._process = int.from_bytes(os.urandom(6), "big")
        path = f"{self._folder}/out/{self._process}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def close(self) -> None:
        os.close(self._file)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        wanted_ns = SERVICE_NS - self._late_ns
        began_ns = time.perf_counter_ns()
        time.sleep(wanted_ns / 1e9)
        self._late_ns = min(LATE_NS_MAX, max(0, time.perf_counter_ns() - began_ns - wanted_ns))
        total = (self._total.value() or 0) + 1
        self._total.update(total)
        row = f'{{"number":{value[1]},"total":{total},"process":{self._process}}}\n'
        os.write(self._file, row.encode())
        yield from ()


def main(path: str) -> None:
    job = json.loads(Path(path).read_text())
    environment = StreamExecutionEnvironment.get_execution_environment()
    numbers = environment.from_source(
        NumberSequenceSource(0, job["records"] - 1),
        WatermarkStrategy.no_watermarks(),
        "numbers",
        Types.LONG(),
    )
    records = numbers.map(Pace(job["folder"]), Types.TUPLE([Types.LONG(), Types.LONG()])).name("pace")
    keyed = records.key_by(lambda record: record[0], Types.LONG())
    keyed.process(Step(job["folder"]), Types.LONG()).name("step").print()
    client = environment.execute_async("step")
    Path(job["folder"], "job_id").write_text(str(client.get_job_id()))


if __name__ == "__main__":
    main(sys.argv[1])
