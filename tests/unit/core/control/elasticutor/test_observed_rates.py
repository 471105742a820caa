"""Rates that Elasticutor decides upon: tables of samples, shards that change hands, what is unknown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.control.elasticutor.policy import Elasticutor, Settings
from penstock.control.samples.sample_table import (
    ARRIVED,
    BUSY_US,
    COMPLETED,
    ROWS,
    AssignmentTable,
    SampleTable,
    Shards,
)
from penstock.control.samples.shard_rates import ServiceMemory, ShardRates
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot
from scenes.elasticutor_plant import Plant, S, scope


def test_a_table_is_the_mapping_that_it_stands_for() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0", "n0"]}, shards=3)
    plant.lost = {"count-1"}
    plant.run(1, {"count-0": 30})
    samples = plant.snapshot().operators["count"].samples
    shards = Shards(sorted(samples))
    values = np.full((ROWS, 6), np.nan)
    writer = np.array([1, 1, 1, -1, -1, -1])
    values[:, :3] = np.array(
        [[10_000.0] * 3, [10_000.0] * 3, [1e5] * 3, [0] * 3, [0] * 3, [0] * 3, [1e5] * 3, [1e3] * 3]
    )
    table = SampleTable(shards, values, writer)
    assert dict(table) == dict(samples)
    assert len(table) == 6
    assert "count/count-1.0" in table
    owners = AssignmentTable(shards, ("count-0", "count-1"), np.array([0, 0, 0, 1, 1, -1]))
    assert dict(owners) == {name: f"count-{k // 3}" for k, name in enumerate(shards.names[:5])}
    assert len(owners) == 5
    with pytest.raises(KeyError):
        owners[shards.names[5]]


def test_arrays_and_mappings_give_the_same_decisions() -> None:
    plant = Plant({"n0": 8, "n1": 8}, {"count": ["n0", "n1"]})
    plain, arrays = Elasticutor(scope("count")), Elasticutor(scope("count"))
    shards = None
    for _ in range(4):
        plant.run(1, {"count-0": 250, "count-1": 130})
        snapshot = plant.snapshot()
        operator = snapshot.operators["count"]
        names = tuple(sorted(operator.samples))
        shards = shards or Shards(names)
        samples = [operator.samples[name] for name in names]
        values = np.array(
            [
                (
                    s.arrived,
                    s.completed,
                    s.busy_us,
                    s.bytes_in,
                    s.bytes_out,
                    s.waited_us,
                    s.served_us,
                    s.state_bytes,
                )
                for s in samples
                if s is not None
            ]
        ).T.astype(float)
        owner = np.array([int(operator.assignment[name][-1]) for name in names])
        table = replace(
            operator,
            samples=SampleTable(shards, values, np.ones(len(names), dtype=np.int64)),
            assignment=AssignmentTable(shards, ("count-0", "count-1"), owner),
        )
        expected = plain.decide(snapshot)
        assert arrays.decide(replace(snapshot, operators={"count": table})) == expected
        plant.carry_out(expected)


def rates_table(shards: Shards, arrived: list[float], writer: list[int]) -> SampleTable:
    values = np.zeros((ROWS, len(arrived)))
    values[ARRIVED] = values[COMPLETED] = arrived
    values[BUSY_US] = values[COMPLETED] * 100
    return SampleTable(shards, values, np.array(writer))


def observed(rates: ShardRates, at_us: int, table: SampleTable) -> list[float]:
    owner = AssignmentTable(table.shards, ("e",), np.zeros(len(table), dtype=np.int64))
    operator = OperatorSnapshot("o", (ExecutorSeen("e", 1, 1),), owner, table)
    return rates.observe(at_us, operator).arrival_per_s().tolist()


def test_a_shard_with_a_new_writer_is_told_from_the_new_writer_alone() -> None:
    shards = Shards(("o/0", "o/1"))
    rates = ShardRates(1 * S)
    half = S // 2
    observed(rates, 0, rates_table(shards, [0, 0], [1, 1]))
    assert observed(rates, half, rates_table(shards, [50, 50], [1, 1])) == [100, 100]
    # Its count begins anew: a difference to the old writer's would be negative. One sample tells nothing yet.
    assert observed(rates, 2 * half, rates_table(shards, [100, 3], [1, 2])) == [100, 100]
    assert observed(rates, 3 * half, rates_table(shards, [150, 103], [1, 2])) == [100, 200]


def test_a_shard_that_was_not_read_makes_its_executor_unknown() -> None:
    shards = Shards(("o/0", "o/1"))
    rates = ShardRates(1 * S)
    observed(rates, 0, rates_table(shards, [0, 0], [1, 1]))
    observed(rates, S, rates_table(shards, [50, 50], [1, 1]))
    table = rates_table(shards, [100, 100], [1, -1])
    table.rows[:, 1] = np.nan
    assert math.isnan(observed(rates, 2 * S, table)[1])
    owner = AssignmentTable(shards, ("e",), np.zeros(2, dtype=np.int64))
    seen = OperatorSnapshot("o", (ExecutorSeen("e", 1, 1),), owner, table)
    look = rates.observe(3 * S, seen)
    assert math.isnan(ServiceMemory().rates([look]).arrival_per_s[0])


def test_a_shard_whose_writers_keep_changing_is_unknown_after_a_window() -> None:
    shards = Shards(("o/0",))
    rates = ShardRates(1 * S)
    half = S // 2
    observed(rates, 0, rates_table(shards, [0], [1]))
    assert observed(rates, half, rates_table(shards, [50], [1])) == [100]
    found = [observed(rates, n * half, rates_table(shards, [50 * n], [n])) for n in range(2, 6)]
    assert found[0] == found[1] == [100]
    assert math.isnan(found[2][0])


def test_the_last_service_rate_stands_while_nothing_is_completed() -> None:
    shards = Shards(("o/0",))
    rates, memory = ShardRates(1 * S), ServiceMemory()
    owner = AssignmentTable(shards, ("e",), np.zeros(1, dtype=np.int64))
    found = []
    for second, rows in enumerate((0, 50, 50, 50)):
        seen = OperatorSnapshot("o", (ExecutorSeen("e", 1, 1),), owner, rates_table(shards, [rows], [1]))
        found.append(memory.rates([rates.observe(second * S, seen)]).service_per_s[0])
    # 100 us of work a row.
    assert math.isnan(found[0])
    assert found[1:] == [10_000, 10_000, 10_000]


def test_settings_out_of_range_are_refused() -> None:
    for wrong in (
        {"window_us": 0},
        {"release_after_us": -1},
        {"threshold_bytes_per_s": 0},
        {"end_to_end_us": 0},
    ):
        with pytest.raises(ValueError, match=r"out of range|end-to-end"):
            Settings(**wrong)
