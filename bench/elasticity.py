"""`make bench-elasticity`: Elasticutor's experiments in virtual time (SIGMOD 2019, sections 5.1 and 5.4).

A generator that never rests and a calculator whose keys change their frequencies omega times a minute
(figures 6 and 7), with the size and cost of tuples, the size of state and the skew of keys varied (8 to 10),
and the number of executors upstream (12a); then the stock exchange of twelve operators (figure 19, table 2).
Static, resource-centric, naive-EC and Elasticutor on the same cluster. Parameters are in
`bench.workloads.shuffled_keys` and `market_clearing`; `docs/papers.md` sets the paper's figures beside ours.

By default on 8 nodes and with few values of each; BENCH_FULL=1 takes the paper's 32 nodes and all values.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from bench import elasticity_plot, machine
from bench.elasticity_trials import (
    ELASTICUTOR,
    NAIVE,
    POLICIES,
    RESOURCE_CENTRIC,
    STATIC,
    Outcome,
    micro_trial,
    stock_exchange_trial,
)
from bench.screen import RESULTS, paper, show
from bench.sla_trials import in_processes
from bench.workloads.shuffled_keys import Setting
from rich.table import Table

TITLES = {
    STATIC: "static",
    RESOURCE_CENTRIC: "resource-centric",
    NAIVE: "naive-EC",
    ELASTICUTOR: "Elasticutor",
}
COMPARED = (STATIC, RESOURCE_CENTRIC, ELASTICUTOR)
"""Of the micro-benchmark in the paper's figures 8 to 10; naive-EC is in its stock exchange alone, and beside
the others over omega here."""
NODES, NODES_FULL = 8, 32
SECONDS, SECONDS_FULL = 30.0, 60.0
STOCK_SECONDS, STOCK_SECONDS_FULL = 60.0, 120.0
OMEGA_SHOWN = 2.0
"""Figure 7's."""
PROCESSES = 2
KIB, MIB = 1024.0, 1024.0**2


@dataclass(frozen=True, slots=True)
class Experiment:
    """`values` are (what it is called, setting) in the short run and in the full one."""

    name: str
    varied: str
    short: tuple[tuple[str, Setting], ...]
    full: tuple[tuple[str, Setting], ...]
    policies: tuple[str, ...] = COMPARED

    def settings(self, *, full: bool) -> tuple[tuple[str, Setting], ...]:
        """Those of the run."""
        return self.full if full else self.short


def experiments(nodes: int) -> tuple[Experiment, ...]:
    """Figures 6 and 7, then 8, 9, 10, 12a."""
    usual = Setting(nodes=nodes, upstream=nodes)

    def varied(name: str, what: str, short: Mapping[str, Setting], full: Mapping[str, Setting]) -> Experiment:
        policies = tuple(POLICIES) if name == "omega" else COMPARED
        return Experiment(name, what, tuple(short.items()), tuple((short | full).items()), policies)

    def omegas(*values: float) -> dict[str, Setting]:
        return {f"{value:g}": replace(usual, shuffles_per_min=value) for value in values}

    def tuples(*values: tuple[float, float]) -> dict[str, Setting]:
        return {
            f"{cost_ms:g} ms, {_size(size)}": replace(usual, cost_ms=cost_ms, tuple_bytes=size)
            for cost_ms, size in values
        }

    def states(*values: float) -> dict[str, Setting]:
        return {_size(size): replace(usual, shard_bytes=size) for size in values}

    def skews(*values: float) -> dict[str, Setting]:
        return {f"{value:g}": replace(usual, skew=value) for value in values}

    def upstreams(*values: int) -> dict[str, Setting]:
        return {f"{value}": replace(usual, upstream=value) for value in values}

    return (
        varied("omega", "shuffles a minute", omegas(0, 2, 16), omegas(1, 4, 8)),
        varied(
            "tuples",
            "cost and size of a tuple",
            tuples((1, 128), (0.1, 2 * KIB)),
            tuples((0.01, 128), (0.1, 128), (0.01, 2 * KIB), (1, 2 * KIB), (1, 8 * KIB)),
        ),
        varied("state", "state of a shard", states(32 * KIB, 32 * MIB), states(256 * KIB, 2 * MIB)),
        varied("skew", "zipf exponent", skews(0.5, 0.8), skews(0, 0.2, 0.4, 0.6, 0.7)),
        varied("upstream", "executors upstream", upstreams(1, 256), upstreams(16, 64)),
    )


def main() -> None:
    """Run all, show tables and plots, print the line last."""
    options = _options()
    chosen = experiments(options.nodes)
    jobs: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (micro_trial, (policy, setting, options.seconds, options.seed))
        for policy, setting in _trials(options)
    ]
    jobs += [
        (stock_exchange_trial, (policy, options.nodes, options.stock_seconds, options.seed))
        for policy in POLICIES
    ]
    micro: dict[tuple[str, Setting], Outcome] = {}
    stock: dict[str, Outcome] = {}
    for function, arguments, outcome in in_processes(jobs, "elasticity", options.processes):
        if function is micro_trial:
            micro[arguments[0], arguments[1]] = outcome
        else:
            stock[arguments[0]] = outcome
    figures: dict[str, Any] = {}
    for experiment in chosen:
        of = {
            value: {policy: micro[policy, setting] for policy in experiment.policies}
            for value, setting in experiment.settings(full=options.full)
        }
        paper().print(_micro_table(experiment, of))
        figures[experiment.name] = {
            value: {policy: _figures(outcome) for policy, outcome in outcomes.items()}
            for value, outcomes in of.items()
        }
    omega = dict(chosen[0].settings(full=options.full))
    shown = {policy: micro[policy, omega[f"{OMEGA_SHOWN:g}"]] for policy in POLICIES}
    paper().print(_transients_table(shown))
    RESULTS.mkdir(exist_ok=True)
    elasticity_plot.draw(
        RESULTS / "elasticity.png",
        {
            TITLES[policy]: [
                (
                    float(value),
                    micro[policy, setting].throughput_per_s,
                    micro[policy, setting].mean_latency_ms,
                )
                for value, setting in sorted(omega.items(), key=lambda pair: float(pair[0]))
            ]
            for policy in POLICIES
        },
        {TITLES[policy]: outcome.per_second for policy, outcome in shown.items()},
        {
            TITLES[policy]: (outcome.throughput_per_s, outcome.p99_latency_ms)
            for policy, outcome in stock.items()
        },
    )
    show(
        _stock_table(stock),
        {
            "bench": "elasticity",
            "seed": options.seed,
            "nodes": options.nodes,
            "seconds": options.seconds,
            "stock_seconds": options.stock_seconds,
            **figures,
            "transients_s": {policy: list(outcome.transients_s) for policy, outcome in shown.items()},
            "stock_exchange": {
                policy: {
                    **_figures(stock[policy]),
                    "p99_ms": round(stock[policy].p99_latency_ms, 1),
                    "migration_mb_per_s": round(stock[policy].migrated_mb_per_s, 3),
                    "remote_mb_per_s": round(stock[policy].remote_mb_per_s, 3),
                }
                for policy in POLICIES
            },
            "machine": machine.description(),
        },
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--full",
        action="store_true",
        default=bool(os.environ.get("BENCH_FULL")),
        help="the paper's 32 nodes and all values; also by BENCH_FULL=1",
    )
    parser.add_argument("--nodes", type=int, help="of 8 cores each")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args()
    options.nodes = options.nodes or (NODES_FULL if options.full else NODES)
    options.seconds = SECONDS_FULL if options.full else SECONDS
    options.stock_seconds = STOCK_SECONDS_FULL if options.full else STOCK_SECONDS
    return options


def _trials(options: argparse.Namespace) -> Iterator[tuple[str, Setting]]:
    """Each once, though the usual setting is in several experiments."""
    seen: dict[tuple[str, Setting], None] = {}
    for experiment in experiments(options.nodes):
        for _, setting in experiment.settings(full=options.full):
            seen |= dict.fromkeys((policy, setting) for policy in experiment.policies)
    yield from seen


def _figures(outcome: Outcome) -> dict[str, float]:
    return {
        "throughput": round(outcome.throughput_per_s, 1),
        "mean_latency_ms": round(outcome.mean_latency_ms, 2),
        "switches": outcome.switches,
        "switching_ms": round(outcome.switching_ms, 2),
    }


def _micro_table(experiment: Experiment, outcomes: Mapping[str, Mapping[str, Outcome]]) -> Table:
    table = Table(title=f"micro-benchmark, by {experiment.varied}", title_justify="left")
    _columns(table, (experiment.varied, "policy"), ("thousand a second", "mean latency", "switches", "each"))
    for value, of in outcomes.items():
        for policy, outcome in of.items():
            table.add_row(
                value,
                TITLES[policy],
                f"{outcome.throughput_per_s / 1000:.1f}",
                f"{outcome.mean_latency_ms:.1f} ms",
                str(outcome.switches),
                f"{outcome.switching_ms:.0f} ms" if outcome.switches else "",
            )
    return table


def _transients_table(outcomes: Mapping[str, Outcome]) -> Table:
    title = f"short of throughput after each shuffle, omega = {OMEGA_SHOWN:g}"
    table = Table(title=title, title_justify="left")
    _columns(table, ("policy",), ("seconds", "the paper"))
    published = {RESOURCE_CENTRIC: "10 to 20", ELASTICUTOR: "1 to 3"}
    for policy, outcome in outcomes.items():
        told = ", ".join(f"{seconds:.1f}" for seconds in outcome.transients_s)
        table.add_row(TITLES[policy], told, published.get(policy, ""))
    return table


def _stock_table(outcomes: Mapping[str, Outcome]) -> Table:
    table = Table(title="stock exchange, twelve operators", title_justify="left")
    _columns(
        table,
        ("policy",),
        ("thousand a second", "mean latency", "99%", "migrated MB/s", "remote MB/s", "switches"),
    )
    for policy in POLICIES:
        outcome = outcomes[policy]
        table.add_row(
            TITLES[policy],
            f"{outcome.throughput_per_s / 1000:.1f}",
            f"{outcome.mean_latency_ms:.1f} ms",
            f"{outcome.p99_latency_ms:.0f} ms",
            f"{outcome.migrated_mb_per_s:.2f}",
            f"{outcome.remote_mb_per_s:.2f}",
            str(outcome.switches),
        )
    return table


def _columns(table: Table, left: tuple[str, ...], right: tuple[str, ...]) -> None:
    for heading in (*left, *right):
        justify: Literal["left", "right"] = "left" if heading in left else "right"
        table.add_column(heading, justify=justify)


def _size(size: float) -> str:
    if size >= MIB:
        return f"{size / MIB:g} MiB"
    return f"{size / KIB:g} KiB" if size >= KIB else f"{size:g} B"


if __name__ == "__main__":
    main()
