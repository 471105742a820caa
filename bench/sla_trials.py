"""One run of one policy on one workload under one seed, in virtual time: what `bench.sla` puts together.

A trial is a value and its outcome another, so that trials can run in other processes. Executors are counted
in tasks, whatever the policy calls an executor. Neighbours: `bench.workloads` has loads and parameters,
`penstock.simulation.queueing` is the simulator.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from bench.journal import Job, Journal
from bench.screen import Screen
from bench.workloads import stock_exchange
from bench.workloads.stock_exchange import SLOT_MS, StockParameters
from numpy.typing import NDArray

from penstock.control.baselines.drs import Drs
from penstock.control.elasticutor.policy import KEYED, Elasticutor, naive_ec
from penstock.control.hybrid.policy import Hybrid
from penstock.control.policy import Policy
from penstock.control.streamswitch.policy import StreamSwitch
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.simulation.queueing.clairvoyant import clairvoyant
from penstock.simulation.queueing.model import (
    Arrivals,
    InitialExecutor,
    OperatorRun,
    Pauses,
    Run,
    Service,
    SimulatedOperator,
    SimulatedTopology,
    Switching,
)
from penstock.simulation.queueing.replay import run
from penstock.simulation.queueing.success import met

SLOT_US = SLOT_MS * 1000
OPERATOR = "match"
HOURS = 4.0
"""The whole day."""

POLICIES: Mapping[str, Callable[[Scope], Policy]] = {
    "streamswitch": StreamSwitch,
    "streamswitch_unit": lambda scope: StreamSwitch(scope, one_at_a_time=True),
    "drs": Drs,
    "drs_lb": lambda scope: Drs(scope, balances_load=True),
    "elasticutor": Elasticutor,
    "naive_ec": naive_ec,
    "hybrid": lambda scope: Hybrid(scope, Elasticutor(scope, KEYED), StreamSwitch(scope, one_at_a_time=True)),
}
"""What they take as parameter is the safety margin of the scope's target. Elasticutor and naive-EC are as in
their paper, the hybrid is Penstock's default."""
ELASTIC = ("elasticutor", "naive_ec", "hybrid")
"""Those whose executors have several tasks, on nodes that matter; one task an executor for the others."""
STATIC = "static"
"""Takes a number of executors, and is no policy: nothing is ever decided."""


@dataclass(frozen=True, slots=True, order=True)
class Sla:
    """(L, T) in seconds."""

    latency_s: float
    window_s: float

    def __str__(self) -> str:
        return f"({self.latency_s:g} s, {self.window_s:g} s)"


@dataclass(frozen=True, slots=True)
class Trial:
    """`parameter` is epsilon, or the number of executors of a static solution."""

    policy: str
    parameter: float
    sla: Sla
    seed: int
    hours: float = HOURS


@dataclass(frozen=True, slots=True)
class Outcome:
    """`success` is the share of kept windows of each shard; `treatments` how many of each kind were carried
    out; `mixed_share` how much of the executors were of the other kind, where there are two."""

    success: tuple[float, ...]
    mean_executors: float
    treatments: Mapping[str, int]
    switching_s: float
    mixed_share: float

    @property
    def success_rate(self) -> float:
        """The paper's: the mean over substreams."""
        return float(np.mean(self.success))

    @property
    def worst_shard(self) -> float:
        """The success rate of the substream that fared worst."""
        return min(self.success)


@dataclass(frozen=True, slots=True)
class Bounds:
    """`success_rate`: every substream alone on an executor. `mean_executors`: the fewest that do each row
    within L, knowing the trace, in a world where moves and starts are free and work can be split."""

    success_rate: float
    mean_executors: float


def target_of(sla: Sla, safety_margin: float, alert_ms: float, interval_ms: float) -> LatencyTarget:
    """As the policies and the judge take it."""
    return LatencyTarget(
        latency_us=sla.latency_s * 1e6,
        window_us=round(sla.window_s * 1e6),
        alert_us=min(alert_ms * 1e3, sla.latency_s * 1e6),
        safety_margin=safety_margin,
        interval_us=round(interval_ms * 1e3),
    )


# --- the stock exchange -------------------------------------------------------------------------------


@lru_cache(maxsize=5)
def _day(seed: int) -> NDArray[np.int64]:
    return stock_exchange.draw(seed).orders


def _orders(seed: int, hours: float) -> NDArray[np.int64]:
    """The day's first hours, [slots, substreams]."""
    return _day(seed)[: round(hours * 3_600_000 / SLOT_MS)]


@lru_cache(maxsize=1)
def stock_parameters() -> StockParameters:
    """The frozen ones."""
    return stock_exchange.read_parameters()


def stock_exchange_trial(trial: Trial) -> dict[Sla, Outcome]:
    """The day under one policy."""
    p = stock_parameters()
    target = target_of(trial.sla, trial.parameter, p.alert_ms, p.interval_ms)
    scope = Scope({OPERATOR: target}, {OPERATOR: TaskLimits(1, p.executors_max)})
    topology = _elastic(p) if trial.policy in ELASTIC else _plain(p, p.executors_at_start)
    result = _run(
        topology, _orders(trial.seed, trial.hours), POLICIES[trial.policy](scope), target, trial.seed
    )
    return {trial.sla: outcome_of(result, result.operators[OPERATOR].success)}


def stock_exchange_static(
    executors: int, slas: tuple[Sla, ...], seed: int, hours: float = HOURS
) -> dict[Sla, Outcome]:
    """The day on a fixed number of executors, judged by each of `slas`: the run is the same."""
    p = stock_parameters()
    orders = _orders(seed, hours)
    target = target_of(slas[0], 0.0, p.alert_ms, p.interval_ms)
    topology = _plain(p, executors)
    result = _run(topology, orders, None, target, seed)
    of = result.operators[OPERATOR]
    return {
        sla: outcome_of(
            result,
            success_after(
                of,
                orders.astype(np.float64),
                SLOT_US,
                target_of(sla, 0.0, p.alert_ms, p.interval_ms),
            ),
        )
        for sla in slas
    }


def bounds(sla: Sla, seed: int, hours: float = HOURS) -> Bounds:
    """What nobody can better on the stock exchange's day."""
    p = stock_parameters()
    found = clairvoyant(
        _matching(p, (InitialExecutor(OPERATOR),)),
        Arrivals(SLOT_US, {OPERATOR: _orders(seed, hours)}),
        target_of(sla, 0.0, p.alert_ms, p.interval_ms),
        executors_max=p.executors_max,
    )
    return Bounds(float(found.success_max.mean()), found.mean_executors)


def _plain(p: StockParameters, executors: int) -> SimulatedTopology:
    """Executors of one task each; where they run does not matter."""
    return SimulatedTopology(
        (_matching(p, tuple(InitialExecutor(f"{OPERATOR}-{n}") for n in range(executors))),)
    )


def _elastic(p: StockParameters) -> SimulatedTopology:
    """One executor a node, with tasks that come and go, also on other nodes."""
    executors = tuple(
        InitialExecutor(f"{OPERATOR}-{n}", p.executors_at_start // p.elastic_executors, f"node-{n % p.nodes}")
        for n in range(p.elastic_executors)
    )
    return SimulatedTopology(
        (_matching(p, executors),),
        nodes={f"node-{n}": p.node_cores for n in range(p.nodes)},
        bandwidth_bytes_per_s=p.network_bytes_per_s,
    )


def _matching(p: StockParameters, executors: tuple[InitialExecutor, ...]) -> SimulatedOperator:
    return SimulatedOperator(
        name=OPERATOR,
        shards=p.substreams,
        service_us=1e6 / p.service_per_s,
        executors=executors,
        service=Service.EXPONENTIAL if p.service_scv == 1.0 else Service.DETERMINISTIC,
        start_delay_us=round(p.start_up_ms * 1e3),
        task_start_delay_us=round(p.task_start_up_ms * 1e3),
        switching=Switching(
            fixed_us=p.switching_ms * 1e3,
            us_per_byte=1e6 / p.network_bytes_per_s,
            pauses=Pauses.EXECUTORS,
            task_us_per_shard=p.task_switching_ms * 1e3,
        ),
        state_bytes=p.state_bytes_per_substream,
        bytes_in=p.order_bytes,
    )


# --- common to all workloads --------------------------------------------------------------------------


def _run(
    topology: SimulatedTopology,
    rows: NDArray[np.int64],
    policy: Policy | None,
    target: LatencyTarget,
    seed: int,
) -> Run:
    arrivals = Arrivals(SLOT_US, {topology.operators[0].name: rows})
    random = np.random.default_rng((len(topology.operators), seed))
    return run(topology, arrivals, policy, target, random, keeps_shards=True)


def success_after(
    of: OperatorRun, arrived: NDArray[np.float64], slot_us: int, target: LatencyTarget, warm_up_s: float = 0.0
) -> NDArray[np.float64]:
    """[shards]: the share of windows that kept the SLA, of those that begin after the warm-up."""
    assert of.shard_completed is not None
    assert of.shard_latency_sum_us is not None
    kept = met(arrived, of.shard_completed, of.shard_latency_sum_us, slot_us, target)
    rates: NDArray[np.float64] = kept[round(warm_up_s * 1e6 / slot_us) :].mean(axis=0)
    return rates


def outcome_of(result: Run, success: NDArray[np.float64], warm_up_s: float = 0.0) -> Outcome:
    """Executors and treatments are those after the warm-up too."""
    begin = round(warm_up_s * 1e6 / result.slot_us)
    kinds = Counter(
        decision.treatment.value
        for decision in result.decisions
        if decision.actions and decision.at_us >= warm_up_s * 1e6
    )
    executors = sum(float(of.tasks[begin:].mean()) for of in result.operators.values())
    mixed = sum(float(of.mixed_tasks[begin:].mean()) for of in result.operators.values())
    return Outcome(
        success=tuple(success.tolist()),
        mean_executors=executors,
        treatments=dict(kinds),
        switching_s=sum(
            switch.switching_us / 1e6
            for of in result.operators.values()
            for switch in of.switches
            if switch.asked_us >= warm_up_s * 1e6
        ),
        mixed_share=mixed / executors,
    )


def in_processes(
    jobs: Sequence[Job], what: str, processes: int, journal: Journal | None = None, until_s: float = math.inf
) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...], Any]]:
    """(function, arguments, answer) of each job, as they come, from so many processes. Those in the journal
    are not run again; none begins after `until_s` on the monotonic clock."""
    kept = Journal(None) if journal is None else journal
    there = [job for job in jobs if job in kept]
    for job in there:
        yield (*job, kept[job])
    todo = deque(job for job in jobs if job not in kept)
    screen = Screen(1)
    with (
        screen.step(f"{what}, {len(todo)} runs, {len(there)} are there"),
        ProcessPoolExecutor(processes) as pool,
    ):
        running: dict[Future[Any], Job] = {}
        done = 0
        while running or (todo and time.monotonic() < until_s):
            while todo and len(running) < processes and time.monotonic() < until_s:
                function, arguments = todo.popleft()
                running[pool.submit(function, *arguments)] = (function, arguments)
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                job = running.pop(future)
                kept[job] = future.result()
                done += 1
                screen.tell(f"{done} done")
                yield (*job, kept[job])
