"""What a LatencySLA from end to end shows: latencies along the path on which they are most, and what waits
before its sources."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.control.decision import Health, PolicyDecision, Prediction, Treatment
from penstock.control.snapshot import TopologySnapshot
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.figures.lag import Lag
from penstock.metrics.rows import ShardRow
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.sla.decision_record import Brought
from penstock.sla.look import Places, Samples, SlaLook
from penstock.sla.loop import SlaLoop
from penstock.sla.promise import Promise
from penstock.store.port import ShardCounters

SLOT_US = 100_000
EDGES = (("orders", "a"), ("a", "b"), ("a", "c"))
"""Rows of `a` go to `b` and to `c`, side by side."""
OPERATORS = ("a", "b", "c")


class Expecting:
    """Decides nothing, and expects of each operator what it is told."""

    name = "Expecting"

    def __init__(self, expected_us: Mapping[str, float]) -> None:
        self._expected_us = expected_us

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        return tuple(
            PolicyDecision(
                snapshot.at_us, self.name, operator, Treatment.NONE, "script", "", Health.GOOD,
                without=Prediction(us, 1),
            )
            for operator, us in self._expected_us.items()
        )  # fmt: skip


class NoLog:
    def decided(self, decision: PolicyDecision, sla: str, *, dry_run: bool) -> int:
        raise AssertionError(decision)

    def brought(self, outcome: Brought) -> None:
        raise AssertionError(outcome)


def schedule(operator: str) -> OperatorSchedule:
    return OperatorSchedule(
        operator=operator,
        version=1,
        term=1,
        workers=(WorkerPlace("w0", "n0", "host", "uid"),),
        executors=(ExecutorPlace(f"{operator}-w0", "w0", 1),),
        shards={f"{operator}/{n}": ShardPlace(f"{operator}-w0", "n0", 0) for n in range(2)},
        stores=(StorePlace("n0", "n0", "address"),),
        is_source=False,
    )


def look(number: int, latency_us: Mapping[str, int], **lags: Lag) -> SlaLook:
    """The look `number`: each shard has had ten rows of its operator's latency before it."""
    rows = 10 * number
    schedules = {operator: schedule(operator) for operator in OPERATORS}
    shards = {shard: operator for operator, one in schedules.items() for shard in one.shards}
    return SlaLook(
        at_us=number * SLOT_US,
        samples=Samples(
            counters={
                operator: {
                    shard: ShardCounters(1, 1, 1, rows, rows, 0, 0, 0, 0, f"{operator}-w0", False)
                    for shard in schedules[operator].shards
                }
                for operator in OPERATORS
            },
            rows={
                shard: ShardRow(1, 1, number * SLOT_US, rows, 0, rows * latency_us[operator])
                for shard, operator in shards.items()
                if operator in latency_us
            },
            spoke={},
            lags=lags,
        ),
        places=Places(schedules, nodes={}, room={}),
    )


def loop(expected_us: Mapping[str, float], source_lag_us: int | None = None) -> SlaLoop:
    targets = {name: LatencyTarget(latency_us=100_000, alert_us=100_000) for name in OPERATORS}
    scope = Scope(targets, dict.fromkeys(OPERATORS, TaskLimits(1, 4)))
    promise = Promise(
        "fast", "", "StreamSwitch", 200_000, 1_000_000, SLOT_US, False, scope,
        source_lag_us=source_lag_us, sources=("orders",),
    )  # fmt: skip
    shards = {operator: [f"{operator}/{n}" for n in range(2)] for operator in OPERATORS}
    return SlaLoop(promise, Expecting(expected_us), shards, EDGES, NoLog())


def test_latencies_from_end_to_end_are_added_up_along_the_slowest_path_and_not_over_its_branches() -> None:
    kept = loop({"a": 5_000.0, "b": 7_000.0, "c": 1_000.0})
    for number in range(1, 4):
        kept.examine(look(number, {"a": 20_000, "b": 30_000, "c": 50_000}))
    line = kept.line()
    assert line.mean_ms == pytest.approx(70.0)
    assert line.worst_ms == pytest.approx(70.0)
    assert line.expected_ms == pytest.approx(12.0)


def test_an_operator_that_has_completed_nothing_adds_nothing() -> None:
    kept = loop({"b": 7_000.0})
    assert kept.line().mean_ms is None
    for number in range(1, 4):
        kept.examine(look(number, {"a": 20_000}))
    assert kept.line().mean_ms == pytest.approx(20.0)
    assert kept.line().expected_ms == pytest.approx(7.0)


@pytest.mark.parametrize(("source_lag_us", "met"), [(10_000_000, False), (60_000_000, True), (None, True)])
def test_an_sla_is_not_met_while_a_source_is_further_behind_than_it_allows(
    source_lag_us: int | None, met: bool
) -> None:
    kept = loop({}, source_lag_us)
    for number in range(1, 15):
        kept.examine(look(number, dict.fromkeys(OPERATORS, 20_000), orders=Lag(900, 12_400)))
    line = kept.line()
    assert line.met is met
    told = {} if met else {"SourceBehind": line.conditions.get("SourceBehind")}
    assert line.conditions == told
    assert met or "orders by 12.4 s (900 records)" in line.conditions["SourceBehind"]
    assert line.success == 1.0
