"""Elasticutor's micro-benchmark, with code that comes from a ConfigMap: no image of its own is built."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import FINISH_S, Running
from e2e.harness.zipf_calculator import ZipfCalculator

RECORDS = 6000
PER_SECOND = 400


def paced(records: int) -> dict[str, object]:
    """Settings of a source that gives so many."""
    return {"records": records, "ratePerSecond": PER_SECOND, "serviceTime": "500us"}


@pytest.mark.slow(held_by="test_an_sla_makes_tasks_in_the_pod_that_stands_and_explains_them")
def test_the_zipf_calculator_counts_every_record_once_with_code_from_a_config_map(
    cluster: Cluster,
    shared: SharedFolder,
    run: Callable[[Running], None],
    calculators_code: Callable[..., str],
) -> None:
    code = calculators_code("zipf-code")
    running = ZipfCalculator.made(cluster, shared, "zipf", code, paced(RECORDS))
    run(running)
    running.wait_phase("Finished", FINISH_S)
    assert running.expected().total() == RECORDS
    assert running.faults() == []


@pytest.mark.slow(held_by="test_other_pod_settings_roll_the_workers_one_by_one")
def test_a_change_of_the_code_in_a_config_map_rolls_the_workers(
    cluster: Cluster,
    shared: SharedFolder,
    run: Callable[[Running], None],
    calculators_code: Callable[..., str],
) -> None:
    code = calculators_code("zipf-rolled-code")
    running = ZipfCalculator.made(cluster, shared, "zipf-rolled", code, paced(7 * RECORDS))
    run(running)
    before = running.wait_workers(2)
    running.wait_rows()

    calculators_code(code, "\n# a newer version\n")
    running.wait_rolled(before)
    running.wait_phase("Finished", FINISH_S)
    assert running.faults() == []
