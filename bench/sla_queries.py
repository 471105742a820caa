"""StreamSwitch's other experiments: NEXMark's Q8, Q2, Q5 (sections 6.3 to 6.5) and word count (6.6).

All under Switch(0.2), (L, T) = (1 s, 1 s) unless said otherwise. One result a workload, with a row a setting;
means over the seeds. Neighbours: `bench.workloads` has loads and parameters, `bench.sla` calls this.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.screen import paper
from bench.sla_trials import Outcome, Sla, in_processes, outcome_of, success_after, target_of
from bench.workloads import nexmark, word_count
from bench.workloads.nexmark import Query
from bench.workloads.sinusoid import SLOT_MS
from rich.table import Table

from penstock.control.decision import PolicyDecision
from penstock.control.snapshot import TopologySnapshot
from penstock.control.streamswitch.policy import StreamSwitch
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.simulation.queueing.model import (
    Arrivals,
    Edge,
    InitialExecutor,
    Pauses,
    Service,
    SimulatedOperator,
    SimulatedTopology,
    SpeedMix,
    Switching,
)
from penstock.simulation.queueing.replay import run
from penstock.simulation.queueing.success import path_met

SEEDS = 2
"""So many of the seeds, one in the short run; the paper has 10 to 20 runs of each setting."""
SHORT = ("nexmark-q5",)
"""The queries of the short run, beside word count: the others take hours of virtual time, or 20 ms slots."""
MARGIN = 0.2
DEFAULT_MS = 100
SLA = Sla(1, 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: the experiment, what is varied in it, and how."""

    workload: str
    varied: str
    value: str
    query: Query
    alert_ms: int = DEFAULT_MS
    interval_ms: int = DEFAULT_MS


def settings(*, full: bool) -> list[Setting]:
    """Those of figures 10 to 15, or of the short run."""
    return [setting for setting in _settings() if full or setting.workload in SHORT]


def _settings() -> Iterator[Setting]:
    for ms in nexmark.Q8_MS:
        yield Setting("nexmark-q8", "l", f"{ms} ms", nexmark.q8(), alert_ms=ms)
    for ms in nexmark.Q8_MS:
        if ms != DEFAULT_MS:
            yield Setting("nexmark-q8", "delta", f"{ms} ms", nexmark.q8(), interval_ms=ms)
    for alpha in nexmark.Q2_ALPHAS:
        for beta in nexmark.Q2_BETAS:
            query = nexmark.q2(alpha, beta)
            yield Setting("nexmark-q2", "alpha, beta", f"{alpha:g}, {beta:g}", query)
    for amplitude, period in nexmark.Q5_LOADS:
        query = nexmark.q5(amplitude, period)
        yield Setting("nexmark-q5", "amplitude, period", f"{amplitude // 1000}K, {period} s", query)
    for added_ms in nexmark.Q5_ADDED_MS[1:]:
        query = nexmark.q5(*nexmark.Q5_LOADS[0], added_ms)
        yield Setting("nexmark-q5", "added delay", f"{added_ms / 1000:g} s", query)


def measure(seeds: Sequence[int], processes: int, *, full: bool) -> list[dict[str, Any]]:
    """All settings under the first of `seeds`; shows tables and answers one result a workload."""
    seeds = seeds[: SEEDS if full else 1]
    chosen = settings(full=full)
    jobs: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    for seed in seeds:
        jobs += [(query_trial, (setting, seed)) for setting in chosen]
        jobs += [(word_count_trial, (split, seed)) for split in word_count.SPLITS_MS]
    outcomes: dict[Setting, list[Outcome]] = defaultdict(list)
    paths: dict[tuple[int, int], list[tuple[float, float, float, float]]] = defaultdict(list)
    for function, arguments, answer in in_processes(jobs, "NEXMark and word count", processes):
        if function is query_trial:
            outcomes[arguments[0]].append(answer)
        else:
            paths[arguments[0]].append(answer)
    names = dict.fromkeys(setting.workload for setting in chosen)
    results = [
        _query_result(
            name, {setting: outcomes[setting] for setting in chosen if setting.workload == name}, seeds
        )
        for name in names
    ]
    return [*results, _word_count_result(paths, seeds)]


def query_trial(setting: Setting, seed: int) -> Outcome:
    """One query under Switch(0.2)."""
    query = setting.query
    slot_ms = min(SLOT_MS, setting.interval_ms)
    rows = query.rows(seed, slot_ms)
    target = target_of(SLA, MARGIN, setting.alert_ms, setting.interval_ms)
    at_start = math.ceil(query.load.base_per_s / ((1 - MARGIN) * query.service_per_s))
    operator = SimulatedOperator(
        name=query.name,
        shards=nexmark.SHARDS,
        service_us=1e6 / query.service_per_s,
        executors=tuple(InitialExecutor(f"{query.name}-{n}") for n in range(at_start)),
        service=Service.EXPONENTIAL,
        start_delay_us=round(nexmark.START_UP_MS * 1e3),
        speeds=SpeedMix(query.mixed_factor, query.mixed_share),
        switching=Switching(fixed_us=query.switching_ms * 1e3, pauses=Pauses.EXECUTORS),
    )
    policy = StreamSwitch(Scope({query.name: target}, {query.name: TaskLimits(1, nexmark.SHARDS)}))
    arrivals = Arrivals(slot_ms * 1000, {query.name: rows})
    result = run(
        SimulatedTopology((operator,)),
        arrivals,
        policy,
        target,
        np.random.default_rng((1, seed)),
        keeps_shards=True,
    )
    success = success_after(
        result.operators[query.name], rows.astype(np.float64), arrivals.slot_us, target, query.warm_up_s
    )
    return outcome_of(result, success, query.warm_up_s)


def word_count_trial(split_ms: tuple[int, int], seed: int) -> tuple[float, float, float, float]:
    """(success of Split, of Count, of the path, mean executors of both) with L split as `split_ms`."""
    w = word_count
    rows = w.sentences(seed)
    shares = w.word_shares(seed)
    targets = {
        name: target_of(Sla(ms / 1000, w.WINDOW_MS / 1000), MARGIN, DEFAULT_MS, DEFAULT_MS)
        for name, ms in zip(("split", "count"), split_ms, strict=True)
    }
    needed = {"split": 10, "count": 20}
    operators = tuple(
        SimulatedOperator(
            name=name,
            shards=w.SHARDS,
            service_us=1e6 / per_s,
            executors=tuple(InitialExecutor(f"{name}-{n}") for n in range(needed[name])),
            service=Service.EXPONENTIAL,
            start_delay_us=round(w.START_UP_MS * 1e3),
            switching=Switching(fixed_us=w.SWITCHING_MS * 1e3, pauses=Pauses.EXECUTORS),
        )
        for name, per_s in (("split", w.SPLIT_PER_S), ("count", w.COUNT_PER_S))
    )
    edge = Edge("split", "count", float(w.WORDS_PER_SENTENCE), np.tile(shares, (w.SHARDS, 1)))
    policy = _OneEach(targets, TaskLimits(1, w.SHARDS))
    arrivals = Arrivals(SLOT_MS * 1000, {"split": rows})
    result = run(
        SimulatedTopology(operators, (edge,)),
        arrivals,
        policy,
        targets,
        np.random.default_rng((2, seed)),
        keeps_shards=True,
    )
    split, count = result.operators["split"], result.operators["count"]
    # What comes to Count is what Split completes, times words a sentence, by the words' shares.
    words = np.outer(split.completed * w.WORDS_PER_SENTENCE, shares)
    of_split, of_count = (
        float(success_after(of, came, arrivals.slot_us, targets[of.operator], w.WARM_UP_S).mean())
        for of, came in ((split, rows.astype(np.float64)), (count, words))
    )
    sums = [(of.completed, np.nan_to_num(of.latency_mean_us) * of.completed) for of in (split, count)]
    kept = path_met(sums, arrivals.slot_us, w.WINDOW_MS * 1000, w.LATENCY_MS * 1e3)
    begin = round(w.WARM_UP_S * 1000 / SLOT_MS)
    executors = float(split.tasks[begin:].mean() + count.tasks[begin:].mean())
    return of_split, of_count, float(kept[begin:].mean()), executors


class _OneEach:
    """A StreamSwitch for each operator, which is shown every look by itself: operators share nothing."""

    name = "StreamSwitch"

    def __init__(self, targets: Mapping[str, LatencyTarget], limits: TaskLimits) -> None:
        self._policies = [StreamSwitch(Scope({name: of}, {name: limits})) for name, of in targets.items()]

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        """One decision an operator."""
        return tuple(decision for policy in self._policies for decision in policy.decide(snapshot))


# --- what is shown ------------------------------------------------------------------------------------


def _query_result(
    workload: str, outcomes: dict[Setting, list[Outcome]], seeds: Sequence[int]
) -> dict[str, Any]:
    table = Table(title=f"{workload}, Switch({MARGIN:g}), (L, T) = {SLA}", title_justify="left")
    for heading in (
        "varied",
        "value",
        "success",
        "executors",
        "scale-out",
        "scale-in",
        "load-balance",
        "switching",
        "mixed",
    ):
        table.add_column(heading, justify="left" if heading in ("varied", "value") else "right")
    rows = []
    for setting, of in outcomes.items():
        figures = {
            "success_rate": float(np.mean([o.success_rate for o in of])),
            "mean_executors": float(np.mean([o.mean_executors for o in of])),
            "scale_outs": float(np.mean([o.treatments.get("scale-out", 0) for o in of])),
            "scale_ins": float(np.mean([o.treatments.get("scale-in", 0) for o in of])),
            "load_balances": float(np.mean([o.treatments.get("load-balance", 0) for o in of])),
            "switching_s": float(np.mean([o.switching_s for o in of])),
        }
        if setting.query.mixed_share:
            figures["mixed_share"] = float(np.mean([o.mixed_share for o in of]))
        table.add_row(
            setting.varied,
            setting.value,
            f"{figures['success_rate']:.2%}",
            f"{figures['mean_executors']:.2f}",
            *(f"{figures[name]:.0f}" for name in ("scale_outs", "scale_ins", "load_balances")),
            f"{figures['switching_s']:.0f} s",
            f"{figures['mixed_share']:.0%}" if setting.query.mixed_share else "",
        )
        rounded = {name: round(value, 5) for name, value in figures.items()}
        rows.append({"varied": setting.varied, "value": setting.value, **rounded})
    paper().print(table)
    return {"bench": "sla", "workload": workload, "seeds": list(seeds), "settings": rows}


def _word_count_result(
    paths: dict[tuple[int, int], list[tuple[float, float, float, float]]], seeds: Sequence[int]
) -> dict[str, Any]:
    table = Table(title=f"word count, Switch({MARGIN:g}), 2 s end to end", title_justify="left")
    for heading in ("L of Split", "L of Count", "Split", "Count", "end to end", "executors"):
        table.add_column(heading, justify="right")
    rows = []
    for split_ms in word_count.SPLITS_MS:
        split, count, path, executors = np.mean(paths[split_ms], axis=0).tolist()
        table.add_row(
            *(f"{ms / 1000:g} s" for ms in split_ms),
            *(f"{rate:.2%}" for rate in (split, count, path)),
            f"{executors:.2f}",
        )
        rows.append(
            {
                "latency_s": [ms / 1000 for ms in split_ms],
                "split": round(split, 5),
                "count": round(count, 5),
                "success_rate": round(path, 5),
                "mean_executors": round(executors, 3),
            }
        )
    paper().print(table)
    return {"bench": "sla", "workload": "word-count", "seeds": list(seeds), "settings": rows}
