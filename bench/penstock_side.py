"""Runs Penstock through its own command line, and measures it from outside.

Latencies are Penstock's own histograms, read from the run's store at both ends of the measured time and
subtracted; CPU and memory are those of `penstock run` with everything under it: redis-server, workers, JVM,
tasks. Neighbour: `spark_side` does the same for the peer.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import held
from bench.cpu import CpuSampler

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.errors import RetryError
from penstock.metrics.latency import LatencyHistogram, merged
from penstock.metrics.rows import TaskRow, histogram_of, unpack
from penstock.store.port import Measure, ReadMetrics
from penstock.store.redis.store import RedisStore

HERE = Path(__file__).parent
SHARDS = 64
START_WITHIN_S = 60.0
STOP_WITHIN_S = 20.0
POLL_S = 0.25


class RunFailedError(Exception):
    """`penstock run` ended by itself or did not start; the text is the end of its output."""


@dataclass(frozen=True, slots=True)
class PenstockRun:
    """One measured run. `rows` is the age of each output row, that of the oldest record behind it, when it is
    in the sink's file; `records` the age of each record when the commit that counts it is done."""

    rows: LatencyHistogram
    records: LatencyHistogram
    held: bool
    read_per_s: float
    processed_per_s: float
    records_per_cpu_s: float
    cores_used: float
    cpu_s_by_process: dict[str, float]
    span_s: float
    """How long it was measured."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a run had done at one moment, all since its start: records read and counted, ages."""

    at_s: float
    read: int
    counted: int
    rows: LatencyHistogram
    records: LatencyHistogram
    pids: frozenset[int]


class Running:
    """A `penstock run` that is up."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    @property
    def output(self) -> str:
        """The end of what it has said."""
        return (self.folder / "output.txt").read_text(errors="replace")[-4000:]

    def check(self) -> None:
        """Raises RunFailedError when it has ended."""
        if self.process.poll() is not None:
            raise RunFailedError(self.output)

    def connect(self, within_s: float) -> RedisStore:
        """The run's private store, found in a worker's launch file. Raises RunFailedError."""
        launch_file = self.folder / "state" / "workers" / "w0.json"
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            self.check()
            if launch_file.exists() and launch_file.stat().st_size > 0:
                launch = WorkerLaunch.model_validate_json(launch_file.read_bytes())
                return RedisStore(launch.store_url, launch.topology_uid)
            time.sleep(0.05)
        raise RunFailedError(f"no worker within {within_s:.0f} s: {self.output}")


def environment() -> dict[str, str]:
    """For a process elsewhere that finds the same packages, the benches' too."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}


@contextmanager
def running(
    topology: str,
    overrides: Sequence[str],
    folder: Path,
    code: str = "counting.py",
    arguments: Sequence[str] = (),
    *,
    command: Sequence[str] = (),
    may_end: bool = False,
    fresh: bool = True,
) -> Iterator[Running]:
    """`penstock run` on a copy of `topologies/TOPOLOGY.yaml` and of `code`, with further `arguments`.

    State and sink files go to `folder`; not `fresh` goes on with what is there. `command` stands in for
    `penstock`. Raises RunFailedError at the end when the run has ended before; where it `may_end`, only when
    it did not end well.
    """
    manifest = folder / "topology.yaml"
    shutil.copy(HERE / "topologies" / f"{topology}.yaml", manifest)
    shutil.copy(HERE / code, folder)
    sets = [argument for override in overrides for argument in ("--set", override)]
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [
                *(command or (str(Path(sys.executable).with_name("penstock")),)),
                *("run", str(manifest), "--no-live", "--state-dir", str(folder / "state"), *sets),
                *(("--fresh",) if fresh else ()),
                *arguments,
            ],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    run = Running(process, folder)
    try:
        yield run
        if not may_end or process.poll() != 0:
            run.check()
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """At once: what still waits is of no interest, and a second interrupt skips the drain."""
    for _ in range(2):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def read(store: RedisStore, *, keyed: bool = True) -> Reading:
    """Look at the run's store; what is counted without keys is what the source committed. Raises RetryError
    when it is away."""
    shards = ("records/0", *(f"count/{part}" for part in range(SHARDS if keyed else 0)))
    packed, counters = store.pipeline([ReadMetrics(), Measure(shards)])
    tasks = [
        row
        for name, data in packed.items()
        if name.startswith("task:") and isinstance(row := unpack(name, data), TaskRow)
    ]
    completed = [0 if known is None else known.completed_rows for known in counters]
    return Reading(
        time.time(),
        completed[0],
        sum(completed[1:]) if keyed else completed[0],
        merged(histogram_of(task, "totals") for task in tasks),
        merged(histogram_of(task, "count") for task in tasks),
        frozenset(task.pid for task in tasks),
    )


def measure(
    rate_per_s: float | None,
    durability: str,
    count_tasks: int,
    warmup_s: float,
    seconds: float,
    folder: Path,
    tell: Callable[[str], None],
    *,
    topology: str = "counting",
    code: str = "counting.py",
    sets: Sequence[str] = (),
    keyed: bool = True,
) -> PenstockRun:
    """Run the counting topology and measure `seconds` after the warm-up, both counted from the first record.

    `topology` and `code` are of another one with the same operators, `sets` further settings of it, as
    `penstock run --set` takes them; without `keyed` it has no count. `rate_per_s` None is as fast as it goes.
    `folder` must be empty. Raises RunFailedError.
    """
    overrides = [
        f"records.source.zipf.ratePerSecond={'null' if rate_per_s is None else rate_per_s}",
        f"durability={durability}",
        *((f"count.tasks.initial={count_tasks}", f"count.tasks.max={max(2, count_tasks)}") if keyed else ()),
        *sets,
    ]
    with running(topology, overrides, folder, code) as run, CpuSampler(run.process.pid) as cpu:
        store = run.connect(START_WITHIN_S)
        try:
            first = first_record(run, store, keyed=keyed)
            tell("warm-up")
            readings = _readings(run, store, first.at_s, first.at_s + warmup_s, keyed=keyed)[-1:]
            tell("measuring")
            begin_s = first.at_s + warmup_s
            readings += _readings(run, store, begin_s, begin_s + seconds, keyed=keyed)
        finally:
            store.close()
    return _figures(readings, rate_per_s, cpu)


def first_record(run: Running, store: RedisStore, *, keyed: bool = True) -> Reading:
    """Wait for the first record to be counted. Raises RunFailedError."""
    end_s = time.monotonic() + START_WITHIN_S
    while time.monotonic() < end_s:
        run.check()
        try:
            reading = read(store, keyed=keyed)
        except RetryError:
            reading = None
        if reading is not None and reading.counted > 0:
            return reading
        time.sleep(POLL_S)
    raise RunFailedError(f"no record was counted within {START_WITHIN_S:.0f} s: {run.output}")


def _readings(run: Running, store: RedisStore, start_s: float, end_s: float, *, keyed: bool) -> list[Reading]:
    """Readings every `POLL_S` from `start_s` to `end_s`, one of them at the very end."""
    found = []
    next_s = start_s
    while next_s < end_s:
        next_s = min(end_s, next_s + POLL_S)
        time.sleep(max(0.0, next_s - time.time()))
        run.check()
        found.append(read(store, keyed=keyed))
    return found


def _figures(readings: Sequence[Reading], rate_per_s: float | None, cpu: CpuSampler) -> PenstockRun:
    first, last = readings[0], readings[-1]
    if first.pids != last.pids:
        raise RunFailedError("a task was started again while it was measured")
    span_s = last.at_s - first.at_s
    counted = last.counted - first.counted
    cpu_s = cpu.seconds(first.at_s, last.at_s)
    at_s = [reading.at_s for reading in readings]
    if rate_per_s is None:
        waiting = [float(reading.read - reading.counted) for reading in readings]
    else:
        waiting = [rate_per_s * (reading.at_s - first.at_s) - reading.counted for reading in readings]
    return PenstockRun(
        rows=last.rows.since(first.rows),
        records=last.records.since(first.records),
        held=held.is_held(at_s, waiting, counted / span_s if rate_per_s is None else rate_per_s),
        read_per_s=(last.read - first.read) / span_s,
        processed_per_s=counted / span_s,
        records_per_cpu_s=counted / cpu_s,
        cores_used=cpu_s / span_s,
        cpu_s_by_process=cpu.by_name(),
        span_s=span_s,
    )
