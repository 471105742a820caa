"""Runs the Spark peer as a process, measures it from outside, and works its log out into figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from bench import held, sink_log
from bench.cpu import CpuSampler
from bench.load import RatePlan, Segment, ZipfKeys, write_plan
from bench.spark_peer import Run, Settings, write_run

from penstock.metrics.latency import LatencyHistogram, buckets_of

ROOT = Path(__file__).parent.parent
SETTINGS = Path(__file__).with_name("spark_settings.json")
START_WITHIN_S = 90.0
END_WITHIN_S = 30.0
GENTLE_RATE_PER_S = 500.0
GENTLE_SHARE = 0.4
"""This share of the warm-up runs at a gentle rate: the first batches take seconds (workers start, code is
compiled), and what piled up behind them would be charged to the figures."""


class PeerFailedError(Exception):
    """The peer ended by itself, or did not start; the text is the end of its output."""


@dataclass(frozen=True, slots=True)
class SparkRun:
    """One measured run. `records` is the age of each record when its output was there, `groups` the age of
    the oldest record of each output row: what Penstock's sinks count."""

    records: LatencyHistogram
    groups: LatencyHistogram
    held: bool
    processed_per_s: float
    records_per_cpu_s: float
    cores_used: float
    batches: int
    batch_ms: dict[str, float]
    """Medians of Spark's own times by phase."""
    cpu_s_by_process: dict[str, float]


def settings_for(profile: str) -> Settings:
    """What the sweep froze: `latency_1000`, `latency_10000` or `throughput`."""
    return msgspec.convert(json.loads(SETTINGS.read_text())[profile]["settings"], Settings)


def measure(
    settings: Settings,
    rate_per_s: float,
    warmup_s: float,
    seconds: float,
    folder: Path,
    tell: Callable[[str], None],
    *,
    saturated: bool = False,
) -> SparkRun:
    """Feed the counting peer at `rate_per_s` and measure records that are due in `seconds` after the warm-up.

    `saturated` says that the rate is beyond reach, so that what is due is not waited for. `folder` must be
    empty. Raises PeerFailedError.
    """
    run = Run(str(folder), settings)

    def all_came(played: Played) -> bool:
        wanted = played.plan.due_before(int(played.last_s * 1e6))
        return saturated or sink_log.records(sink_log.read(run.log)) >= wanted

    return _figures(run, play(run, rate_per_s, warmup_s, seconds, tell, all_came), rate_per_s)


@dataclass(frozen=True, slots=True)
class Played:
    """A run of the peer that was measured from `first_s` to `last_s`, in seconds since 1970."""

    plan: RatePlan
    first_s: float
    last_s: float
    cpu: CpuSampler


def play(
    run: Run,
    rate_per_s: float,
    warmup_s: float,
    seconds: float,
    tell: Callable[[str], None],
    all_came: Callable[[Played], bool],
) -> Played:
    """Feed the peer at `rate_per_s`; at the end wait, for at most `seconds`, until all came that is to come.

    `run.folder` must be empty. Raises PeerFailedError.
    """
    folder = Path(run.folder)
    run.log.mkdir()
    write_plan(run.plan, RatePlan(()))
    write_run(folder / "run.json", run)
    output = folder / "output.txt"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    with output.open("wb") as file:
        peer = subprocess.Popen(
            [sys.executable, "-m", "bench.spark_peer", str(folder / "run.json")],
            env=environment,
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        with CpuSampler(peer.pid) as cpu:
            _wait(peer, output, run.started.exists, START_WITHIN_S)
            began_s = time.time() + 0.5
            gentle_s = warmup_s * GENTLE_SHARE
            at_us = int(began_s * 1e6)
            plan = RatePlan((Segment(at_us, 0, min(rate_per_s, GENTLE_RATE_PER_S)),))
            plan = plan.then(at_us + int(gentle_s * 1e6), rate_per_s)
            write_plan(run.plan, plan)
            first_s, last_s = began_s + warmup_s, began_s + warmup_s + seconds
            tell("warm-up")
            _wait(peer, output, lambda: time.time() >= first_s, warmup_s + 1.0)
            tell("measuring")
            _wait(peer, output, lambda: time.time() >= last_s, seconds + 1.0)
            tell("waiting for the records under way")
            played = Played(plan, first_s, last_s, cpu)
            while time.time() < last_s + seconds and peer.poll() is None and not all_came(played):
                time.sleep(0.5)
            run.stop.touch()
            # What came out is in the log by now: a peer that hangs while it stops is ended below.
            with suppress(subprocess.TimeoutExpired):
                peer.wait(END_WITHIN_S)
    finally:
        if peer.poll() is None:
            peer.kill()
            peer.wait()
    return played


def _wait(peer: subprocess.Popen[bytes], output: Path, done: Callable[[], bool], within_s: float) -> None:
    end_s = time.monotonic() + within_s
    while not done():
        if peer.poll() is not None:
            raise PeerFailedError(output.read_text(errors="replace")[-4000:])
        if time.monotonic() > end_s:
            raise PeerFailedError(f"not ready within {within_s:.0f} s; {output} says why")
        time.sleep(0.05)


def _figures(run: Run, played: Played, rate_per_s: float) -> SparkRun:
    plan, first_s, last_s, cpu = played.plan, played.first_s, played.last_s, played.cpu
    rows = sink_log.read(run.log)
    records = sink_log.records(rows)
    arrived = sink_log.arrivals(rows, ZipfKeys().of(0, _cover(run, records)))
    due_us = plan.due_us(arrived.number)
    ages_us = (arrived.at_us - due_us).astype(np.float64)
    inside = (due_us >= first_s * 1e6) & (due_us < last_s * 1e6)

    times_us, counts = np.unique(arrived.at_us, return_counts=True)
    ends = (times_us >= first_s * 1e6) & (times_us < last_s * 1e6)
    done = np.cumsum(counts)[ends]
    at_s = times_us[ends] / 1e6
    waiting = [plan.due_before(int(t)) - int(d) for t, d in zip(times_us[ends], done, strict=True)]
    processed = int(done[-1] - done[0]) if len(done) > 1 else 0
    span_s = float(at_s[-1] - at_s[0]) if len(done) > 1 else 0.0
    cpu_s = cpu.seconds(float(at_s[0]), float(at_s[-1])) if len(done) > 1 else 0.0
    return SparkRun(
        records=_histogram(ages_us[inside]),
        groups=_histogram(ages_us[inside & arrived.oldest]),
        held=held.is_held(at_s.tolist(), waiting, rate_per_s),
        processed_per_s=processed / span_s if span_s else 0.0,
        records_per_cpu_s=processed / cpu_s if cpu_s else 0.0,
        cores_used=cpu_s / span_s if span_s else 0.0,
        batches=int(ends.sum()),
        batch_ms=_batch_ms(run),
        cpu_s_by_process=cpu.by_name(),
    )


def _cover(run: Run, records: int) -> int:
    """Keys of so many records explain all rows: batches take records in their order, without a gap, but the
    tasks of one batch log one after the other, and a last batch may be cut by the end of the run."""
    return records + max(run.settings.max_records, records)


def _histogram(ages_us: np.ndarray) -> LatencyHistogram:
    found, counts = np.unique(buckets_of(ages_us), return_counts=True)
    return LatencyHistogram(dict(zip(found.tolist(), counts.tolist(), strict=True)))


def _batch_ms(run: Run) -> dict[str, float]:
    if not run.progress.exists():
        return {}
    batches = json.loads(run.progress.read_text())[-30:]
    phases = sorted({phase for batch in batches for phase in batch})
    return {phase: float(np.median([batch.get(phase, 0.0) for batch in batches])) for phase in phases}
