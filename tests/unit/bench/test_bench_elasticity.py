"""bench-elasticity's workloads keep to what Elasticutor's paper publishes, and its trials to the cluster they
have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench.elasticity import experiments
from bench.elasticity_trials import (
    ELASTIC,
    ELASTICUTOR,
    POLICIES,
    RESOURCE_CENTRIC,
    STATIC,
    executors_of,
    micro_trial,
    stock_exchange_trial,
)
from bench.transients import transients_s
from bench.workloads import market_clearing, shuffled_keys
from bench.workloads.shuffled_keys import KEYS, NODE_CORES, SLOT_MS, WARM_UP_S, Setting

SMALL = Setting(nodes=2, upstream=2)


def shares(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows.sum(axis=0) / rows.sum())


def test_the_cluster_and_its_shards_are_the_published_ones() -> None:
    # Section 5: 32 nodes of 8 cores, 32 elastic executors of 256 shards each; 5.1: the defaults.
    setting = Setting()
    assert (setting.cores, setting.shards) == (256, 8_192)
    assert (setting.cost_ms, setting.tuple_bytes, setting.shard_bytes) == (1.0, 128.0, 32 * 1024.0)
    assert (setting.skew, KEYS) == (0.5, 10_000)


def test_more_is_offered_than_all_cores_can_do_unless_the_network_cannot_bring_it() -> None:
    rows = shuffled_keys.draw(SMALL, 20, seed=3)
    offered_per_s = rows.sum() / 20
    assert offered_per_s == pytest.approx(1.25 * SMALL.cores * 1000, rel=0.01)
    # Section 5.1: at 0.01 ms and 2 KB a core at full speed needs 2 Gbps, a node has 1.
    heavy = Setting(cost_ms=0.01, tuple_bytes=2_048.0)
    assert heavy.offered_per_s == pytest.approx(32 * 125e6 / 2_048 * 32 / 31)


def test_frequencies_are_shuffled_as_often_as_asked_for_and_never_at_omega_0() -> None:
    assert shuffled_keys.shuffles(replace(SMALL, shuffles_per_min=0), 100) == []
    starts = shuffled_keys.shuffles(replace(SMALL, shuffles_per_min=4), 10 + 45)
    assert starts == [100, 250, 400]
    rows = shuffled_keys.draw(replace(SMALL, shuffles_per_min=4), 40, seed=1)
    before, first, second = shares(rows[:100]), shares(rows[100:175]), shares(rows[175:250])
    drift = np.abs(first - second).sum()
    assert np.abs(before - first).sum() > 3 * drift


def test_synchronising_takes_two_to_three_orders_of_magnitude_longer_than_elastic_executors_do() -> None:
    # Figure 12a.
    few, many = replace(SMALL, upstream=1), replace(SMALL, upstream=256)
    assert (few.repartition_ms, many.repartition_ms) == (200.0, 2_000.0)


def test_a_static_exchange_has_all_cores_shared_out_by_the_work() -> None:
    stages = market_clearing.stages()
    # Figure 17: a transactor, 6 operators for statistics, 5 for events.
    assert len(stages) == 12
    assert sum(stage.share for stage in stages) == pytest.approx(1.0)
    for nodes in (8, 32):
        counts = executors_of(STATIC, stages, nodes)
        assert sum(count * tasks for count, tasks in counts) == nodes * NODE_CORES
        for (count, _), stage in zip(counts, stages, strict=True):
            assert abs(count - stage.share * nodes * NODE_CORES) <= 1
        for policy in ELASTIC:
            assert sum(c * tasks for c, tasks in executors_of(policy, stages, nodes)) <= nodes * NODE_CORES


def test_orders_saturate_the_cluster_and_have_no_opening() -> None:
    rows = market_clearing.draw(2, 30, seed=1)
    assert rows.shape == (300, 2 * market_clearing.SHARDS_PER_NODE)
    capacity_per_s = 2 * NODE_CORES * 1000 / market_clearing.ORDER_MS
    assert rows.sum() == pytest.approx(1.25 * capacity_per_s * 30, rel=1e-3)
    by_second = rows.sum(axis=1).reshape(-1, 1000 // SLOT_MS).sum(axis=1)
    assert by_second[0] < 3 * by_second.mean()


def test_elastic_executors_keep_up_under_shuffles_where_a_static_operator_does_not() -> None:
    setting = replace(SMALL, shuffles_per_min=6, skew=0.7)
    outcomes = {policy: micro_trial(policy, setting, 10, seed=2) for policy in (STATIC, ELASTICUTOR)}
    capacity_per_s = setting.cores * 1000 / 1.025
    for outcome in outcomes.values():
        assert 0 < outcome.throughput_per_s < 1.05 * capacity_per_s
        assert len(outcome.per_second) == WARM_UP_S + 10
    assert outcomes[STATIC].switches == 0
    assert outcomes[ELASTICUTOR].throughput_per_s > 1.05 * outcomes[STATIC].throughput_per_s


def test_a_resource_centric_change_of_hands_takes_as_long_as_its_synchronisation_at_least() -> None:
    setting = replace(SMALL, shuffles_per_min=6, skew=0.7, upstream=64)
    outcome = micro_trial(RESOURCE_CENTRIC, setting, 10, seed=2)
    assert outcome.switches > 0
    assert outcome.switching_ms >= setting.repartition_ms


def test_the_stock_exchange_runs_under_every_policy() -> None:
    for policy in POLICIES:
        outcome = stock_exchange_trial(policy, 2, 4, seed=1)
        assert outcome.throughput_per_s > 0
        assert outcome.p99_latency_ms > outcome.mean_latency_ms / 2 > 0
        assert outcome.switches == 0 or policy != STATIC
        assert (outcome.mean_tasks == 2 * NODE_CORES) or policy != STATIC


def test_every_experiment_has_the_papers_policies_and_its_short_run_is_part_of_the_full_one() -> None:
    for experiment in experiments(8):
        assert set(experiment.short) <= set(experiment.full)
        assert {STATIC, RESOURCE_CENTRIC, ELASTICUTOR} <= set(experiment.policies)


def test_a_transient_is_the_time_in_which_a_second_has_less_than_nine_tenths_of_what_it_comes_to() -> None:
    # 10 rows a slot of 100 ms; none for 2 s from slot 50 on, half of them for 3 s from slot 200 on.
    rows = np.full(300, 10.0)
    rows[50:70] = 0
    rows[200:230] = 5
    # A window of ten slots is below 90 rows once it holds two empty ones, or three halved ones, until as many
    # are left in it.
    assert transients_s(rows, 0.1, [50, 200]) == (pytest.approx(2.7), pytest.approx(3.5))
    assert transients_s(rows, 0.1, [100]) == (pytest.approx(3.5),)
    assert transients_s(rows, 0.1, []) == ()
