"""The load of the live SLA bench: a processor that waits as long as each record asks, on a clock of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import waiting
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import Processor

TOPOLOGY = ROOT / "bench" / "topologies" / "waiting.yaml"


class LateTimer:
    """Time passes only in `sleep`, which wakes `late_us` too late."""

    def __init__(self, late_us: int) -> None:
        self._late_ns = late_us * 1000
        self.now_ns = 0
        self.asked_us: list[int] = []

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.asked_us.append(round(seconds * 1e6))
        self.now_ns += round(seconds * 1e9) + self._late_ns


def timer(monkeypatch: pytest.MonkeyPatch, late_us: int) -> LateTimer:
    made = LateTimer(late_us)
    monkeypatch.setattr(waiting, "time", made)
    return made


def test_the_timers_lateness_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = timer(monkeypatch, late_us=80)
    waiter = waiting.Waiter()
    for _ in range(100):
        waiter.wait(5_000)
    assert clock.now_ns == 100 * 5_000_000 + 80_000
    assert clock.asked_us[:3] == [5_000, 4_920, 4_920]


def test_records_shorter_than_the_lateness_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = timer(monkeypatch, late_us=100)
    waiter = waiting.Waiter()
    for _ in range(300):
        waiter.wait(30)
    assert 300 * 30_000 <= clock.now_ns <= 300 * 30_000 + 100_000
    assert len(clock.asked_us) < 100


def test_time_that_the_machine_did_not_give_is_not_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = timer(monkeypatch, late_us=20_000)
    waiter = waiting.Waiter()
    waiter.wait(5_000)
    waiter.wait(5_000)
    assert clock.asked_us == [5_000, 5_000 - waiting.LATE_NS_MAX // 1000]


def test_a_group_of_records_takes_their_times_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = timer(monkeypatch, late_us=0)
    tester = TwsTester(waiting.Wait())
    rows = [Row(key=4, payload="", service_time_us=us, number=n) for n, us in enumerate((5_000, 7_000))]
    assert tester.test(4, rows) == [Row(key=4, total=2)]
    assert tester.test(4, rows[:1]) == [Row(key=4, total=3)]
    assert clock.now_ns == 17_000_000


def test_a_calculators_records_come_out_one_by_one_and_hold_the_only_token_as_long_as_they_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "0").touch()
    monkeypatch.setattr(waiting, "TOKENS", tmp_path)
    calculate = waiting.Calculate()
    tester = TwsTester(calculate)
    other = waiting.Tokens([tmp_path / "0"])
    free_in_between: list[bool] = []
    clock = timer(monkeypatch, late_us=0)
    sleep = clock.sleep

    def looking_sleep(seconds: float) -> None:
        free_in_between.append(other._free() is not None)
        sleep(seconds)

    monkeypatch.setattr(clock, "sleep", looking_sleep)
    rows = [Row(key=4, payload="", service_time_us=us, number=n) for n, us in enumerate((5_000, 7_000))]
    out = tester.test(4, rows)
    assert [(row.number, row.total) for row in out] == [(0, 1), (1, 2)]
    assert clock.now_ns == 12_000_000
    assert free_in_between == [False, False]
    assert other._free() is not None
    other.close()
    calculate.close()


def test_the_topology_waits_5_ms_a_record_and_follows_a_trace() -> None:
    plan = compile_topology(load_topology(TOPOLOGY))
    source, wait = plan.stages
    assert isinstance(source.head, ZipfSource)
    assert (source.head.service_time_us, source.head.rate_trace) == (5_000, "rates.csv")
    assert isinstance(wait.head, Processor)
    assert (wait.head.target, wait.head.shards, wait.tasks.max) == ("waiting:Wait", 64, 8)
    assert wait.out.schema.ddl() == "`key` bigint, `total` bigint"
