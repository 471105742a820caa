"""`make bench-sla`: StreamSwitch's experiments in virtual time (StreamSwitch, section 6).

The stock exchange first: success rate against mean executors, as curves over the safety margin (and over n
for Static), under (1 s, 1 s), (1 s, 5 s) and (5 s, 1 s), over several days drawn from seeds, with the worst
of the 64 substreams. Beside it stand two bounds: the fewest executors that a clairvoyant would need, and the
success of each substream alone on an executor. Then NEXMark and word count. Parameters are in
`bench.workloads`, one set for everything; `docs/papers.md` sets the papers' figures beside ours.

All curves over five days are hours of processor time. They can be had in pieces: answers are kept
(`bench.journal`), the jobs that matter most come first, and with `--minutes` no job begins after that many;
the tables then show the days that are there.

The last line is the stock exchange's at (1 s, 1 s). StreamSwitch's figure there is Switch(0.2); of the others
it is that of the parameter whose executors come closest to Switch(0.2)'s, as the paper chooses for its figure
5.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from bench import machine, sla_plot, sla_queries
from bench.journal import Job, Journal
from bench.screen import RESULTS, paper, show
from bench.sla_trials import (
    HOURS,
    POLICIES,
    STATIC,
    Bounds,
    Outcome,
    Sla,
    Trial,
    bounds,
    in_processes,
    stock_exchange_static,
    stock_exchange_trial,
)
from rich.table import Table

BASELINE = Sla(1, 1)
SLAS = (BASELINE, Sla(1, 5), Sla(5, 1))
SEEDS = (1, 2, 3, 4, 5)
SEEDS_SHORT = (1, 2)
EPSILONS = (0.0, 0.1, 0.2, 0.3, 0.4)
"""Figure 5 has 20 experiments, 5 of each kind; of the margins 0.2 and 0.4 are named."""
COMPARED = {
    "streamswitch": 0.2,
    "streamswitch_unit": 0.2,
    "drs": 0.4,
    "drs_lb": 0.4,
    "elasticutor": 0.2,
    "naive_ec": 0.2,
    "hybrid": 0.2,
}
"""The margins of the short run: the paper's for StreamSwitch and DRS, for the others StreamSwitch's."""
STATICS = (5, 6, 7, 8, 9, 10)
SWITCH = "streamswitch"
BESIDE = ("streamswitch_unit", "naive_ec")
"""One unit strategy at a time, as the paper has it, beside StreamSwitch, and naive-EC beside Elasticutor: at
the margin compared, no curve."""
TITLES = {
    "streamswitch": "StreamSwitch",
    "streamswitch_unit": "StreamSwitch by units",
    "drs": "DRS",
    "drs_lb": "DRS-LB",
    "static": "Static",
    "elasticutor": "Elasticutor",
    "naive_ec": "naive-EC",
    "hybrid": "Hybrid",
}
PUBLISHED = {("streamswitch", 0.2): "96.28% at 8.40"}
"""On Samza; on Flink it is 95.24% at 8.39."""
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Point:
    """One policy under one parameter, over the seeds. `of_shards` is each substream's mean, `worst_shard` the
    least of any substream under any seed."""

    policy: str
    parameter: float
    success_rate: float
    success_rate_min: float
    worst_shard: float
    of_shards: tuple[float, ...]
    mean_executors: float
    treatments: float
    seeds: int

    @property
    def title(self) -> str:
        """As the paper writes it: Switch(0.2), Static(8)."""
        return f"{TITLES[self.policy]}({self.parameter:g})"


def main() -> None:
    """Run all trials, show tables and plots, print the stock exchange's line last."""
    options = read_options()
    stock = _stock_exchange(options)
    if not options.stock_only:
        for result in sla_queries.measure(options.seeds, options.processes, full=options.full):
            sys.stdout.write(json.dumps(result, allow_nan=False) + "\n")
    table, result = stock
    show(table, result)


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Those of the command line, if none are given; SystemExit with a sentence where they are wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, action="append", dest="seeds", help="may be given several times")
    parser.add_argument("--stock-only", action="store_true", help="leave NEXMark and word count out")
    parser.add_argument(
        "--full",
        action="store_true",
        default=bool(os.environ.get("BENCH_FULL")),
        help="all margins and SLAs, five days; also by BENCH_FULL=1",
    )
    parser.add_argument(
        "--policy",
        action="append",
        dest="policies",
        choices=[name for name in POLICIES if name != SWITCH],
        help="beside StreamSwitch and Static; may be given several times; all if not given",
    )
    parser.add_argument(
        "--margin",
        type=float,
        action="append",
        dest="margins",
        help="of curves, beside the one compared; may be given several times; with --full all if not given",
    )
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no run begins after so many")
    parser.add_argument("--hours", type=float, default=HOURS, help="of the day, from its beginning")
    options = parser.parse_args(arguments)
    options.policies = (SWITCH, *(options.policies or [name for name in POLICIES if name != SWITCH]))
    options.margins = tuple(options.margins or (EPSILONS if options.full else ()))
    if not all(0 <= margin < 1 for margin in options.margins):
        parser.error("a safety margin is a share of the service rate: 0 or more, and less than 1")
    options.seeds = tuple(options.seeds or (SEEDS if options.full else SEEDS_SHORT))
    return options


# --- the stock exchange -------------------------------------------------------------------------------


def _stock_exchange(options: argparse.Namespace) -> tuple[Table, dict[str, Any]]:
    todo = list(jobs(options))
    outcomes: dict[tuple[Sla, str, float], list[Outcome]] = defaultdict(list)
    limits: dict[Sla, list[Bounds]] = defaultdict(list)
    journal, until_s = Journal.of("sla"), time.monotonic() + 60 * options.minutes
    answered = 0
    for function, arguments, answer in in_processes(
        todo, "stock exchange", options.processes, journal, until_s
    ):
        answered += 1
        if function is bounds:
            limits[arguments[0]].append(answer)
            continue
        key = (STATIC, float(arguments[0])) if function is stock_exchange_static else _key(arguments[0])
        for sla, outcome in answer.items():
            outcomes[sla, *key].append(outcome)
    if not limits[BASELINE] or (BASELINE, SWITCH, COMPARED[SWITCH]) not in outcomes:
        sys.exit(
            f"{answered} of {len(todo)} runs are there, and the tables need the bounds and Switch(0.2) under "
            f"{BASELINE}: give it more --minutes"
        )
    shown = [sla for sla in SLAS if limits[sla]]
    points = {
        sla: [
            _point(policy, parameter, of)
            for (at, policy, parameter), of in sorted(outcomes.items())
            if at == sla
        ]
        for sla in shown
    }
    limit = {
        sla: {
            "success_rate": float(np.mean([each.success_rate for each in limits[sla]])),
            "mean_executors": float(np.mean([each.mean_executors for each in limits[sla]])),
        }
        for sla in shown
    }
    RESULTS.mkdir(exist_ok=True)
    chosen = _chosen(points[BASELINE])
    sla_plot.stock_exchange(
        RESULTS / "sla.png",
        {
            str(sla): {TITLES[p]: _curve(points[sla], p) for p in TITLES if _curve(points[sla], p)}
            for sla in shown
        },
        {str(sla): (b["mean_executors"], b["success_rate"]) for sla, b in limit.items()},
        {point.title: point.of_shards for point in chosen.values()},
    )
    for sla in shown[1:]:
        paper().print(_table(sla, points[sla], limit[sla]))
    return _table(BASELINE, points[BASELINE], limit[BASELINE]), {
        "bench": "sla",
        "workload": "stock-exchange",
        "sla": {"latency_s": BASELINE.latency_s, "window_s": BASELINE.window_s},
        "seeds": list(options.seeds),
        "hours": options.hours,
        "policies": {name: _figures(point) for name, point in chosen.items()},
        "clairvoyant": _rounded(limit[BASELINE]),
        "curves": {str(sla): [_figures(point, name=True) for point in points[sla]] for sla in shown},
        "bounds": {str(sla): _rounded(limit[sla]) for sla in shown},
        "runs_missing": len(todo) - answered,
        "machine": machine.description(),
    }


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """All of them when asked for, else those compared under (1 s, 1 s). One SLA after the other; under each,
    what is compared comes first, over all days, then the rest of the curves."""
    for seed in options.seeds:
        yield from ((stock_exchange_static, (n, SLAS, seed, options.hours)) for n in STATICS)
        yield from ((bounds, (sla, seed, options.hours)) for sla in SLAS)
    for sla in SLAS if options.full else SLAS[:1]:
        for policy in options.policies:
            for seed in options.seeds:
                trial = Trial(policy, COMPARED[policy], sla, seed, options.hours)
                yield stock_exchange_trial, (trial,)
        for epsilon in options.margins:
            for policy in options.policies:
                if epsilon != COMPARED[policy] and policy not in BESIDE:
                    for seed in options.seeds:
                        yield stock_exchange_trial, (Trial(policy, epsilon, sla, seed, options.hours),)


def _key(trial: Trial) -> tuple[str, float]:
    return trial.policy, trial.parameter


def _point(policy: str, parameter: float, outcomes: Sequence[Outcome]) -> Point:
    return Point(
        policy=policy,
        parameter=parameter,
        success_rate=float(np.mean([outcome.success_rate for outcome in outcomes])),
        success_rate_min=min(outcome.success_rate for outcome in outcomes),
        worst_shard=min(outcome.worst_shard for outcome in outcomes),
        of_shards=tuple(np.mean([outcome.success for outcome in outcomes], axis=0).tolist()),
        mean_executors=float(np.mean([outcome.mean_executors for outcome in outcomes])),
        treatments=float(np.mean([sum(outcome.treatments.values()) for outcome in outcomes])),
        seeds=len(outcomes),
    )


def _chosen(points: Sequence[Point]) -> dict[str, Point]:
    """Switch(0.2), and of each other policy the point with the executors closest to its."""
    baseline = next(point for point in points if (point.policy, point.parameter) == (SWITCH, 0.2))
    chosen = {SWITCH: baseline}
    for policy in TITLES:
        mine = [p for p in points if p.policy == policy]
        if policy != SWITCH and mine:
            chosen[policy] = min(mine, key=lambda p: abs(p.mean_executors - baseline.mean_executors))
    return chosen


def _curve(points: Sequence[Point], policy: str) -> list[tuple[float, float, float]]:
    """(mean executors, success rate, parameter)."""
    return [(p.mean_executors, p.success_rate, p.parameter) for p in points if p.policy == policy]


def _figures(point: Point, *, name: bool = False) -> dict[str, Any]:
    figures: dict[str, Any] = {"policy": point.policy} if name else {}
    return figures | {
        "success_rate": round(point.success_rate, 5),
        "mean_executors": round(point.mean_executors, 3),
        "parameter": point.parameter,
        "success_rate_min": round(point.success_rate_min, 5),
        "worst_shard": round(point.worst_shard, 5),
        "treatments": round(point.treatments, 1),
        "seeds": point.seeds,
    }


def _rounded(bound: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in bound.items()}


def _table(sla: Sla, points: Sequence[Point], bound: dict[str, float]) -> Table:
    table = Table(title=f"stock exchange, (L, T) = {sla}", title_justify="left")
    for heading in (
        "solution",
        "success",
        "worst day",
        "worst shard",
        "executors",
        "treatments",
        "days",
        "paper",
    ):
        justify: Literal["left", "right"] = "left" if heading in ("solution", "paper") else "right"
        table.add_column(heading, justify=justify, no_wrap=justify == "left")
    for point in sorted(points, key=lambda point: point.mean_executors):
        table.add_row(
            point.title,
            f"{point.success_rate:.2%}",
            f"{point.success_rate_min:.2%}",
            f"{point.worst_shard:.2%}",
            f"{point.mean_executors:.2f}",
            f"{point.treatments:.0f}",
            str(point.seeds),
            PUBLISHED.get((point.policy, point.parameter), "") if sla == BASELINE else "",
        )
    table.add_row("no fewer executors", "", "", "", f"{bound['mean_executors']:.2f}", "", "", "")
    table.add_row("no higher success", f"{bound['success_rate']:.2%}", "", "", "", "", "", "")
    return table


if __name__ == "__main__":
    main()
