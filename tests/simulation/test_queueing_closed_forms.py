"""The simulated queues against what is known of them: M/M/1, M/M/k, M/D/1, a Jackson network; slots against
rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.control.streamswitch.policy import StreamSwitch
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.simulation.queueing.model import (
    Arrivals,
    Edge,
    InitialExecutor,
    Pauses,
    Service,
    Sharing,
    SimulatedOperator,
    SimulatedTopology,
    Switching,
)
from penstock.simulation.queueing.replay import run

SLOT_US = 100_000


def operator(
    name: str = "o",
    *,
    service_us: float = 1_000.0,
    tasks: int = 1,
    executors: int = 1,
    shards: int = 4,
    service: Service = Service.EXPONENTIAL,
    sharing: Sharing = Sharing.BY_ROW,
) -> SimulatedOperator:
    return SimulatedOperator(
        name=name,
        shards=shards,
        service_us=service_us,
        executors=tuple(InitialExecutor(f"{name}-{i}", tasks) for i in range(executors)),
        service=service,
        sharing=sharing,
    )


def poisson(
    rate_per_s: float, seconds: int, shards: int, seed: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    rng = np.random.default_rng(seed)
    slots = seconds * 1_000_000 // SLOT_US
    return rng.poisson(rate_per_s * SLOT_US / 1e6 / shards, (slots, shards))


def sojourn_mmk_us(rate_per_s: float, service_us: float, servers: int) -> float:
    """Mean time in M/M/k, by Erlang's C."""
    offered = rate_per_s * service_us / 1e6
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    waits = last / (sum(terms) + last)
    return service_us + waits * service_us / (servers - offered)


def mean_us(
    topology: SimulatedTopology, arrivals: Arrivals, *, exact: bool, seed: int = 1
) -> dict[str, float]:
    result = run(topology, arrivals, None, None, np.random.default_rng(seed), exact=exact)
    return {name: one.mean_latency_us for name, one in result.operators.items()}


def test_the_closed_form_of_this_file_is_mm1_for_one_server() -> None:
    # 1 / (mu - lambda) = 1 / (1000 - 500) s
    assert sojourn_mmk_us(500, 1_000, 1) == pytest.approx(2_000)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_rows_one_by_one_are_mm1(load: float) -> None:
    topology = SimulatedTopology((operator(),))
    arrivals = Arrivals(SLOT_US, {"o": poisson(1_000 * load, 600, 4, seed=3)})
    found = mean_us(topology, arrivals, exact=True)["o"]
    assert found == pytest.approx(1_000 / (1 - load), rel=0.02)


@pytest.mark.parametrize(("tasks", "load"), [(2, 0.6), (4, 0.7)])
def test_rows_one_by_one_are_mmk(tasks: int, load: float) -> None:
    topology = SimulatedTopology((operator(tasks=tasks),))
    rate = 1_000 * tasks * load
    arrivals = Arrivals(SLOT_US, {"o": poisson(rate, 300, 4, seed=4)})
    found = mean_us(topology, arrivals, exact=True)["o"]
    assert found == pytest.approx(sojourn_mmk_us(rate, 1_000, tasks), rel=0.02)


def test_rows_one_by_one_are_a_jackson_network_of_three() -> None:
    # Half of a's rows go on to b, all of b's to c, which also has some of its own: 400, 200 and 600 a second.
    topology = SimulatedTopology(
        (
            operator("a", service_us=1_500),
            operator("b", service_us=2_500),
            operator("c", service_us=2_000, tasks=2),
        ),
        (Edge("a", "b", 0.5), Edge("b", "c", 1.0, np.full((4, 4), 0.25))),
    )
    arrivals = Arrivals(SLOT_US, {"a": poisson(400, 500, 4, seed=5), "c": poisson(400, 500, 4, seed=11)})
    found = mean_us(topology, arrivals, exact=True)
    assert found["a"] == pytest.approx(sojourn_mmk_us(400, 1_500, 1), rel=0.02)
    assert found["b"] == pytest.approx(sojourn_mmk_us(200, 2_500, 1), rel=0.02)
    assert found["c"] == pytest.approx(sojourn_mmk_us(600, 2_000, 2), rel=0.02)


@pytest.mark.parametrize("service", [Service.DETERMINISTIC, Service.EXPONENTIAL])
@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_slots_find_the_mean_latency_of_mg1(service: Service, load: float) -> None:
    # Pollaczek-Khinchine: waiting is rho / (1 - rho) * E[S] * (1 + cv^2) / 2.
    topology = SimulatedTopology((operator(service_us=5_000, service=service),))
    arrivals = Arrivals(SLOT_US, {"o": poisson(200 * load, 40_000, 4, seed=6)})
    found = mean_us(topology, arrivals, exact=False)["o"]
    spread = 1.0 if service is Service.EXPONENTIAL else 0.5
    assert found == pytest.approx(5_000 * (1 + spread * load / (1 - load)), rel=0.05)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_slots_find_the_mean_latency_of_mmk(load: float) -> None:
    topology = SimulatedTopology((operator(service_us=5_000, tasks=4),))
    arrivals = Arrivals(SLOT_US, {"o": poisson(800 * load, 10_000, 4, seed=7)})
    found = mean_us(topology, arrivals, exact=False)["o"]
    assert found == pytest.approx(sojourn_mmk_us(800 * load, 5_000, 4), rel=0.05)


def test_slots_agree_with_rows_under_bursts() -> None:
    # 16 skewed shards on four executors, rates that rise to twice what the executors serve and fall again.
    rng = np.random.default_rng(8)
    at_s = np.arange(3_000) * SLOT_US / 1e6
    weights = 1 / np.arange(1, 17) ** 0.5
    rate = 650 * (1 + 0.8 * np.sin(at_s / 20)) * weights[:, None] / weights.sum()
    rows = rng.poisson(rate.T * SLOT_US / 1e6)
    topology = SimulatedTopology(
        (operator(service_us=5_000, executors=4, shards=16, service=Service.DETERMINISTIC),)
    )
    arrivals = Arrivals(SLOT_US, {"o": rows})
    target = LatencyTarget(latency_us=1_000_000)
    by_row = run(topology, arrivals, None, target, np.random.default_rng(1), exact=True).operators["o"]
    by_slot = run(topology, arrivals, None, target, np.random.default_rng(1)).operators["o"]
    assert 0.3 < by_row.success_rate < 0.9
    assert by_slot.mean_latency_us == pytest.approx(by_row.mean_latency_us, rel=0.02)
    assert by_slot.success == pytest.approx(by_row.success, abs=0.02)
    assert by_slot.latency_quantile_us(0.99) == pytest.approx(by_row.latency_quantile_us(0.99), rel=0.05)
    assert by_slot.completed.sum() == pytest.approx(by_row.completed.sum(), rel=0.01)


@pytest.mark.parametrize("service", [Service.DETERMINISTIC, Service.EXPONENTIAL])
def test_slots_agree_with_rows_under_a_policy_that_acts_all_the_time(service: Service) -> None:
    # Waves and bursts over 16 skewed shards; a treatment takes a start of 1 s and a pause of 400 ms.
    rng = np.random.default_rng(10)
    at_s = np.arange(3_000) * SLOT_US / 1e6
    weights = 1 / np.arange(1, 17) ** 0.5
    bursts = 1 + 1.5 * (np.sin(at_s / 11) > 0.9)
    rate = 500 * (1 + 0.6 * np.sin(at_s / 30)) * bursts * weights[:, None] / weights.sum()
    arrivals = Arrivals(SLOT_US, {"o": rng.poisson(rate.T * SLOT_US / 1e6)})
    one = replace(
        operator(service_us=5_000, executors=4, shards=16, service=service),
        start_delay_us=1_000_000,
        switching=Switching(fixed_us=400_000, pauses=Pauses.EXECUTORS),
    )
    target = LatencyTarget(latency_us=1_000_000)

    def outcome(exact: bool) -> tuple[float, float, int]:
        scope = Scope({"o": target}, {"o": TaskLimits(1, 16)})
        runs = [
            run(
                SimulatedTopology((one,)),
                arrivals,
                StreamSwitch(scope),
                target,
                np.random.default_rng(seed),
                exact=exact,
            ).operators["o"]
            for seed in range(2)
        ]
        return (
            sum(of.success_rate for of in runs) / 2,
            sum(of.mean_tasks for of in runs) / 2,
            sum(len(of.switches) for of in runs),
        )

    success, tasks, switches = outcome(exact=False)
    success_by_row, tasks_by_row, switches_by_row = outcome(exact=True)
    assert switches_by_row > 40
    assert success == pytest.approx(success_by_row, abs=0.02)
    assert tasks == pytest.approx(tasks_by_row, rel=0.05)
    assert switches == pytest.approx(switches_by_row, rel=0.25)


def test_slots_agree_with_rows_down_a_path() -> None:
    topology = SimulatedTopology(
        (
            operator("split", service_us=4_000, executors=2, shards=8, service=Service.DETERMINISTIC),
            operator("count", service_us=1_500, executors=3, shards=8, service=Service.DETERMINISTIC),
        ),
        (Edge("split", "count", 3.0, np.full((8, 8), 0.125)),),
    )
    arrivals = Arrivals(SLOT_US, {"split": poisson(400, 300, 8, seed=9)})
    by_row = mean_us(topology, arrivals, exact=True)
    by_slot = mean_us(topology, arrivals, exact=False)
    assert by_slot["split"] == pytest.approx(by_row["split"], rel=0.05)
    # Three rows come at once where a row is split, which slots do not see.
    assert by_slot["count"] == pytest.approx(by_row["count"], rel=0.1)
