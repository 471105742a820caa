"""One measured run between two topics of Kafka, of either side.

Both sides read the same records and are seen by the same reader (`kafka_watch`) of what they wrote. `paced`
feeds a side record by record and tells ages; a backlog is a topic that is full already. CPU is that of all
processes of the side; the broker's is told beside. Neighbours: `kafka_sides` starts them, `sources` decides
what is run.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import penstock_side, sink_log
from bench.cpu import CpuSampler
from bench.kafka_feed import PARTITIONS, fed_keys
from bench.kafka_figures import Ages, Batch, Kept, ages, came, full_batches, kept, once
from bench.kafka_load import COME_WITHIN_S, loaded
from bench.kafka_sides import (
    LOOK_S,
    START_WITHIN_S,
    Side,
    Start,
    read_by_penstock,
    spark,
    tuned,
    wait,
    written_by_penstock,
)
from bench.penstock_side import RunFailedError

from backends.kafka_broker import KafkaBroker
from penstock.store.port import Measure

GENTLE_RATE_PER_S = 500.0
GENTLE_SHARE = 0.4
"""As for Spark in the other benches: this share of the warm-up is gentle."""
KILL_APART_S = 1.0
BACKLOG_LEFT_MIN = 0.02
"""With less than this share of a backlog left, the rest is not measured: it comes in smaller batches."""
KEPT_UP_SHARE = 0.95
"""Records came at this share, at least, of the rate at which they were due."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run that was fed at a pace. `per_cpu_s` are records a CPU-second of the side's."""

    ages: Ages
    kept: Kept
    per_s: float
    per_cpu_s: float
    cores_used: float
    broker_cores: float
    kept_up: bool


@dataclass(frozen=True, slots=True)
class Worked:
    """A run over a backlog."""

    per_s: float
    per_cpu_s: float
    cores_used: float
    broker_cores: float


def paced(
    broker: KafkaBroker,
    start: Start,
    rate_per_s: float,
    warmup_s: float,
    seconds: float,
    folder: Path,
    tell: Callable[[str], None],
    kills: int = 0,
) -> Measured:
    """Feed a side at this rate, and measure `seconds` after the warm-up, which begins with its first total.

    Behind that, `kills` times a counting task is killed while records go on. Raises RunFailedError.
    """
    with (
        loaded(broker, folder) as load,
        start(load.source, load.sink, folder) as side,
        CpuSampler(side.pid) as cpu,
        CpuSampler(broker.pid) as broker_cpu,
    ):
        load.check_side = side.check
        load.begin()
        tell("start")
        load.until_first()
        tell("warm-up")
        began_s = time.time()
        for rate, after_s in ((GENTLE_RATE_PER_S, 0.0), (rate_per_s, warmup_s * GENTLE_SHARE)):
            load.until(began_s + after_s)
            load.turn(rate)
        first_s = began_s + warmup_s
        load.until(first_s)
        tell("measuring")
        last_s = first_s + seconds
        load.until(last_s)
        for number in range(kills):
            tell(f"kill {number + 1}")
            kill_one(side, load.rows, load.check)
        tell("waiting for the records under way")
        fed = load.finish()
    found, keys = load.rows(), fed_keys(fed)
    arrived = sink_log.arrivals(once(found), keys)
    there = came(arrived, first_s, last_s)
    if there is None:
        raise RunFailedError(f"nothing came, or once only, in {seconds:.0f} s")
    told = ages(arrived, load.plan, first_s, last_s)
    cpu_s, broker_s = (of.seconds(there.first_s, there.last_s) for of in (cpu, broker_cpu))
    return Measured(
        ages=told,
        kept=kept(found, keys),
        per_s=there.records / there.span_s,
        per_cpu_s=there.records / cpu_s,
        cores_used=cpu_s / there.span_s,
        broker_cores=broker_s / there.span_s,
        kept_up=there.records / there.span_s >= KEPT_UP_SHARE * told.due / seconds,
    )


def kill_one(side: Side, rows: Callable[[], sink_log.Rows], check: Callable[[], None]) -> None:
    """End a counting task, and wait until totals come again."""
    for pid in side.tasks():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(KILL_APART_S)
    killed_us = time.time_ns() // 1000
    wait(lambda: bool((rows().at_us > killed_us).any()), check, "totals behind a kill", COME_WITHIN_S)


@dataclass(frozen=True, slots=True)
class Backlog:
    """A topic that has so many records before anybody reads it."""

    broker: KafkaBroker
    topic: str
    records: int


def read_alone(
    backlog: Backlog, warmup_s: float, seconds: float, folder: Path, tell: Callable[[str], None]
) -> Worked:
    """Penstock's source, as fast as it goes, and a step that drops what it reads. Raises RunFailedError."""
    shards = tuple(f"records/{backlog.topic}/{number}" for number in range(PARTITIONS))
    return _by_penstock(backlog, "kafka-reading", "dropping.py", [], shards, warmup_s, seconds, folder, tell)


def worked_by_penstock(
    backlog: Backlog,
    profile: Mapping[str, Any],
    warmup_s: float,
    seconds: float,
    folder: Path,
    tell: Callable[[str], None],
) -> Worked:
    """The count, as fast as it goes, written at least once. Raises RunFailedError."""
    sink = backlog.broker.fresh_topic(PARTITIONS)
    sets = [*written_by_penstock(backlog.broker, sink), *tuned(profile, "AtLeastOnce")]
    shards = tuple(f"count/{number}" for number in range(profile["shards"]))
    return _by_penstock(backlog, "kafka", "counting.py", sets, shards, warmup_s, seconds, folder, tell)


def _by_penstock(
    backlog: Backlog,
    topology: str,
    code: str,
    sets: Sequence[str],
    shards: tuple[str, ...],
    warmup_s: float,
    seconds: float,
    folder: Path,
    tell: Callable[[str], None],
) -> Worked:
    """What it has done is what `shards` have completed."""
    sets = [*read_by_penstock(backlog.broker, backlog.topic), *sets]
    with (
        penstock_side.running(topology, sets, folder, code) as run,
        CpuSampler(run.process.pid) as cpu,
        CpuSampler(backlog.broker.pid) as broker_cpu,
    ):
        store = run.connect(START_WITHIN_S)

        def done() -> int:
            run.check()
            return sum(known.completed_rows for known in store.call(Measure(shards)) if known is not None)

        try:
            tell("start")
            wait(lambda: done() > 0, run.check, "a record", START_WITHIN_S)
            tell("warm-up")
            time.sleep(warmup_s)
            tell("measuring")
            readings = [(time.time(), done())]
            while readings[-1][0] < readings[0][0] + seconds:
                time.sleep(LOOK_S)
                readings.append((time.time(), done()))
                if readings[-1][1] > backlog.records * (1 - BACKLOG_LEFT_MIN):
                    readings.pop()
                    break
        finally:
            store.close()
        time.sleep(2 * LOOK_S)
    (first_s, first), (last_s, last) = readings[0], readings[-1]
    if last == first:
        raise RunFailedError(f"all {backlog.records} records were worked off while it was warmed up")
    return _per_time(last - first, first_s, last_s, cpu, broker_cpu)


def _per_time(count: int, first_s: float, last_s: float, cpu: CpuSampler, broker_cpu: CpuSampler) -> Worked:
    span_s, cpu_s = last_s - first_s, cpu.seconds(first_s, last_s)
    return Worked(
        per_s=count / span_s,
        per_cpu_s=count / cpu_s,
        cores_used=cpu_s / span_s,
        broker_cores=broker_cpu.seconds(first_s, last_s) / span_s,
    )


def worked_by_spark(
    backlog: Backlog,
    profile: Mapping[str, Any],
    warmup_s: float,
    seconds: float,
    folder: Path,
    tell: Callable[[str], None],
) -> Worked:
    """Spark's count over its full batches. Raises RunFailedError."""
    sink = backlog.broker.fresh_topic(PARTITIONS)
    with (
        spark(backlog.broker, profile)(backlog.topic, sink, folder) as side,
        CpuSampler(side.pid) as cpu,
        CpuSampler(backlog.broker.pid) as broker_cpu,
    ):
        tell("measuring")

        def found() -> list[Batch]:
            try:
                batches = json.loads((folder / "batches.json").read_text())
            except (FileNotFoundError, ValueError):
                return []
            return full_batches(batches, profile["max_records"], warmup_s, seconds)

        def is_enough() -> bool:
            batches = found()
            return bool(batches) and batches[-1][0] + batches[-1][1] - batches[0][0] >= seconds

        within_s = START_WITHIN_S + warmup_s + 2 * seconds
        with suppress(RunFailedError):
            wait(is_enough, side.check, "full batches", within_s)
        side.check()
        batches = found()
        if not batches:
            raise RunFailedError(f"Spark ended no full batch within {within_s:.0f} s")
        first_s, last_s = batches[0][0], batches[-1][0] + batches[-1][1]
        time.sleep(2 * LOOK_S)
    return _per_time(sum(records for _, _, records in batches), first_s, last_s, cpu, broker_cpu)
