"""What the benches work out, from loads and logs whose figures are known beforehand."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from bench import cpu, held, sink_log
from bench.load import KEYS, RatePlan, Segment, ZipfKeys, read_plan, write_plan

from penstock.connectors.zipf import ZipfSource
from penstock_worker.sources.zipf import ZipfReader


def test_both_systems_get_the_same_keys() -> None:
    keys = ZipfKeys(seed=7)
    source = ZipfSource(
        keys=KEYS,
        exponent=1.0,
        record_bytes=0,
        service_time_us=0,
        rate_per_s=None,
        records=None,
        shuffles_per_minute=0.0,
        partitions=1,
        seed=7,
    )
    reader = ZipfReader("records", source)
    reader.open("records/0", b"", 0)
    rows = reader.read("records/0", b"", 10_000, 1 << 30, 0).rows
    assert [row[0] for row in rows] == keys.of(0, 10_000).tolist()
    assert keys.of(4_000, 9_000).tolist() == keys.of(0, 9_000).tolist()[4_000:]


def test_a_record_is_counted_as_due_from_its_due_time_on() -> None:
    plan = RatePlan((Segment(1_000_000, 0, 3.0),)).then(3_000_000, 7_000.0)
    for at_us in range(900_000, 3_100_000, 12_345):
        due = plan.due_before(at_us)
        due_us = plan.due_us(np.arange(due + 2, dtype=np.int64))
        assert (due_us[:due] <= at_us).all()
        assert (due_us[due:] > at_us).all()


def test_raising_the_rate_leaves_the_past_as_it_was() -> None:
    slow = RatePlan((Segment(0, 0, 10.0),))
    fast = slow.then(2_000_000, 1_000.0)
    numbers = np.arange(20, dtype=np.int64)
    assert fast.due_us(numbers).tolist() == slow.due_us(numbers).tolist()
    assert fast.due_before(3_000_000) == 20 + 1_000


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = RatePlan((Segment(5, 0, 10.0),)).then(2_000_000, 1_000.0)
    write_plan(tmp_path / "plan.json", plan)
    assert read_plan(tmp_path / "plan.json") == plan


def _log_batches(folder: Path, keys: np.ndarray, ends: list[int]) -> None:
    """Rows of a counting processor whose n-th batch ends before record `ends[n]`, at n seconds."""
    totals: dict[int, int] = {}
    start = 0
    for second, end in enumerate(ends):
        seen, counts = np.unique(keys[start:end], return_counts=True)
        for key, count in zip(seen.tolist(), counts.tolist(), strict=True):
            totals[key] = totals.get(key, 0) + count
        new = np.array([totals[key] for key in seen.tolist()], dtype=np.int64)
        sink_log.append(folder, second * 1_000_000, seen.astype(np.int64), new)
        start = end


def test_every_record_arrives_with_the_batch_that_counts_it(tmp_path: Path) -> None:
    keys = ZipfKeys().of(0, 900)
    ends = [100, 130, 700]
    _log_batches(tmp_path, keys, ends)
    rows = sink_log.read(tmp_path)
    arrived = sink_log.arrivals(rows, keys)
    assert sink_log.records(rows) == 700
    assert sorted(arrived.number.tolist()) == list(range(700))
    batch = np.searchsorted(ends, arrived.number, side="right")
    assert (arrived.at_us == batch * 1_000_000).all()
    assert arrived.oldest.sum() == len(rows.keys)
    for key, first in zip(keys[arrived.number], arrived.number, strict=True):
        same = (keys[arrived.number] == key) & (batch == np.searchsorted(ends, first, side="right"))
        assert arrived.oldest[same].sum() == 1
        assert arrived.number[same & arrived.oldest][0] == arrived.number[same].min()


def test_a_row_counted_twice_is_found_out(tmp_path: Path) -> None:
    keys = ZipfKeys().of(0, 100)
    _log_batches(tmp_path, keys, [100])
    again = sink_log.read(tmp_path)
    sink_log.append(tmp_path, 5_000_000, again.keys[:1], again.totals[:1])
    with pytest.raises(sink_log.WrongTotalsError, match="twice"):
        sink_log.arrivals(sink_log.read(tmp_path), keys)


def test_a_total_beyond_the_input_is_found_out(tmp_path: Path) -> None:
    keys = ZipfKeys().of(0, 100)
    sink_log.append(tmp_path, 0, keys[:1], np.array([101], dtype=np.int64))
    with pytest.raises(sink_log.WrongTotalsError, match="above"):
        sink_log.arrivals(sink_log.read(tmp_path), keys)


def test_a_block_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    keys = ZipfKeys().of(0, 100)
    _log_batches(tmp_path, keys, [50, 100])
    log = next(tmp_path.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-8])
    assert sink_log.records(sink_log.read(tmp_path)) == 50


@pytest.mark.parametrize(("grows_per_s", "is_held"), [(0.0, True), (20.0, True), (200.0, False)])
def test_a_rate_is_held_when_what_waits_does_not_grow(grows_per_s: float, is_held: bool) -> None:
    random = np.random.default_rng(3)
    at_s = [0.25 * n for n in range(80)]
    waiting = [100 + grows_per_s * t + random.uniform(-20, 20) for t in at_s]
    assert held.is_held(at_s, waiting, rate_per_s=1_000.0) is is_held


def test_two_batches_are_no_proof_that_a_rate_is_held() -> None:
    assert not held.is_held([0.0, 5.0], [10.0, 10.0], 1_000.0)


BURN = "import time; end = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"


def test_cpu_of_children_that_ended_is_counted() -> None:
    child = BURN.format(seconds=0.3)
    run = f"subprocess.run([sys.executable, '-c', {child!r}])"
    parent = f"import subprocess, sys, time\nfor _ in range(3): {run}\ntime.sleep(0.5)"
    process = subprocess.Popen([sys.executable, "-c", parent])
    with cpu.CpuSampler(process.pid, every_s=0.05) as sampler:
        start_s = time.time()
        process.wait()
        end_s = time.time()
    assert 0.8 <= sampler.seconds(start_s, end_s) <= 2.5


@dataclass(frozen=True)
class Tried:
    held: bool


@pytest.mark.parametrize("capacity_per_s", [1_200.0, 35_000.0, 61_000.0, 80_000.0])
def test_the_highest_rate_held_is_found_to_within_a_few_percent(capacity_per_s: float) -> None:
    tried: list[float] = []

    def run(rate_per_s: float) -> Tried:
        tried.append(rate_per_s)
        return Tried(rate_per_s <= capacity_per_s)

    rate_per_s, found = held.highest_held(30_000.0, 90_000.0, 6, run)
    assert found.held
    assert rate_per_s == max(rate for rate in tried if rate <= capacity_per_s)
    if capacity_per_s > 30_000:
        assert rate_per_s > 0.97 * capacity_per_s


def test_a_system_that_holds_nothing_is_an_error() -> None:
    with pytest.raises(held.NothingHeldError):
        held.highest_held(100.0, 200.0, 3, lambda _: Tried(held=False))
