"""`make bench-omega`: Elasticutor's dynamic workload on this machine (SIGMOD 2019, section 5.1, figures 6
and 7), throughput and latency while keys are shuffled omega times a minute.

A zipf generator, a relay and a calculator under `penstock run` in two workers; the same records under every
policy. A record's service time is waited, and only by who holds one of eight tokens: that is the budget of
cores, for every policy the same. Elasticutor: an executor in each worker, which share the tokens out by load
and balance shards over their tasks. Static: eight executors of a task each. Resource-centric: so too, with
the key space repartitioned by the policy of `baselines.resource_centric`: the relay is paused, queues are
worked off, shards go to their executors, which load their state, and the relay goes on. Rows are seen from
outside as they arrive in the sink's files, and every record must come out once.

Neighbours: `waiting` and `topologies/shuffling.yaml` are what runs, `repartitioning` carries the pauses out,
`step_figures` and `sink_watch` see the rows, `elasticity` is the same in virtual time.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench import machine, penstock_side, plots, step_figures
from bench.repartitioning import TOLD
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.sink_watch import SinkWatch
from bench.step_figures import Rows
from rich.table import Table

from penstock.dataflow.rate_trace import RateTrace, parse_rate_trace

SECONDS = 28.0
"""Measured of each run, after the warm-up. A shuffle of two a minute is in it."""
WARM_UP_S = 10.0
EASE_S = 5.0
"""Of the warm-up: tasks start one after the other, and what had piled up by then would last."""
TOKENS = 8
TASK_PER_S = 100.0
OFFERED_PER_S = 0.75 * TOKENS * TASK_PER_S
"""Of what all tokens can serve; Elasticutor's balance lets a task have 1.2 times the mean."""
EASE_PER_S = OFFERED_PER_S / 10
OMEGAS = (0, 2, 16)
OMEGA_SHOWN = 2
START_AND_STOP_S = 120.0
ELASTICUTOR, STATIC, RESOURCE_CENTRIC = "elasticutor", "static", "resource_centric"
SLA = f"""
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {{name: shuffled}}
spec:
  topology: shuffling
  operator: calculator
  latency: 250ms
  window: 1s
  alertThreshold: 25ms
  safetyMargin: 0
  bounds: {{tasks: {{min: {TOKENS}, max: {TOKENS}}}}}
"""


@dataclass(frozen=True, slots=True)
class Side:
    """A way to run it. `policy` goes behind the SLA; `command` stands in for `penstock`."""

    title: str
    policy: str
    command: tuple[str, ...] = ()


SIDES = {
    ELASTICUTOR: Side("Elasticutor", "  policy: Elasticutor\n"),
    # A policy of single tasks, that moves nothing.
    STATIC: Side("static", "  policy: StreamSwitch\n  dryRun: true\n"),
    RESOURCE_CENTRIC: Side(
        "resource-centric", "  policy: StreamSwitch\n", (sys.executable, "-m", "bench.repartitioned_run")
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of the measured time: rows that came out in it, ages of the records that fell due in it, whenever they
    came out. `per_second` is throughput of each second since the source began; `pauses_ms` are those of the
    whole operator."""

    throughput_per_s: float
    mean_latency_ms: float
    p99_latency_ms: float
    per_second: tuple[float, ...]
    pauses_ms: tuple[int, ...] = ()


def main() -> None:
    """Measure, show, and print the result as the last line."""
    seconds = seconds_per_figure(SECONDS)
    trace = load(seconds)
    screen = Screen(len(OMEGAS) * len(SIDES))
    outcomes: dict[int, dict[str, Outcome]] = {omega: {} for omega in OMEGAS}
    for omega in OMEGAS:
        for name, side in SIDES.items():
            with screen.step(f"{side.title}, omega = {omega}"), scratch(f"omega-{name}") as folder:
                rows, told = _run(side, omega, trace, folder)
            step_figures.check_whole(rows, round(trace.total))
            outcomes[omega][name] = outcome_of(rows, trace, seconds, told)
            screen.note(_words(outcomes[omega][name]))
    RESULTS.mkdir(exist_ok=True)
    plots.shuffled_keys(
        RESULTS / "omega.png",
        {
            side.title: [
                (omega, outcomes[omega][name].throughput_per_s, outcomes[omega][name].mean_latency_ms)
                for omega in OMEGAS
            ]
            for name, side in SIDES.items()
        },
        {side.title: outcomes[OMEGA_SHOWN][name].per_second for name, side in SIDES.items()},
        OMEGA_SHOWN,
    )
    show(_table(outcomes), {**result_of(outcomes), "seconds": seconds, "machine": machine.description()})


def load(seconds: float) -> RateTrace:
    """What is offered: the same rate all the time, but for the beginning of the warm-up."""
    return parse_rate_trace(_trace_text(seconds))


def _trace_text(seconds: float) -> str:
    return f"0,{EASE_PER_S:g}\n{EASE_S:g},{OFFERED_PER_S:g}\n{WARM_UP_S + seconds:g},0\n"


def outcome_of(rows: Rows, trace: RateTrace, seconds: float, told: str = "") -> Outcome:
    """The figures of one run; `told` is what the run said."""
    begin_us = step_figures.begun_us(rows, trace)
    due_us = trace.due_us(rows.numbers.astype(np.float64))
    until_us = (WARM_UP_S + seconds) * 1e6
    since_us = rows.at_us - begin_us
    arrived = (since_us >= WARM_UP_S * 1e6) & (since_us < until_us)
    ages_ms = (since_us - due_us)[due_us >= WARM_UP_S * 1e6] / 1000
    per_second = np.bincount((since_us[since_us < until_us] // 1e6).astype(np.int64))
    return Outcome(
        throughput_per_s=float(arrived.sum()) / seconds,
        mean_latency_ms=float(ages_ms.mean()),
        p99_latency_ms=float(np.quantile(ages_ms, 0.99)),
        per_second=tuple(per_second.astype(np.float64).tolist()),
        pauses_ms=tuple(int(ms) for ms in re.findall(rf"{TOLD}.* paused for (\d+) ms", told)),
    )


def result_of(outcomes: Mapping[int, Mapping[str, Outcome]]) -> dict[str, Any]:
    """The last line."""
    return {
        "bench": "omega",
        "omega": {
            str(omega): {name: _figures(outcome) for name, outcome in by_side.items()}
            for omega, by_side in outcomes.items()
        },
        "repartitionings": {
            str(omega): {
                "count": len(pauses),
                "mean_pause_ms": round(float(np.mean(pauses))) if pauses else 0,
            }
            for omega, by_side in outcomes.items()
            for pauses in (by_side[RESOURCE_CENTRIC].pauses_ms,)
        },
        "offered_per_s": OFFERED_PER_S,
        "tokens": TOKENS,
    }


def _figures(outcome: Outcome) -> dict[str, float]:
    return {
        "throughput_per_s": round(outcome.throughput_per_s, 1),
        "mean_latency_ms": round(outcome.mean_latency_ms, 1),
        "p99_ms": round(outcome.p99_latency_ms, 1),
    }


def _run(side: Side, omega: int, trace: RateTrace, folder: Path) -> tuple[Rows, str]:
    """All rows of one run, and what it told. Raises RunFailedError."""
    seconds = float(trace.starts_us[-1]) / 1e6
    (folder / "rates.csv").write_text(_trace_text(seconds - WARM_UP_S))
    (folder / "sla.yaml").write_text(SLA + side.policy)
    tokens = folder / "tokens"
    tokens.mkdir()
    for number in range(TOKENS):
        (tokens / str(number)).touch()
    sets = (f"records.source.zipf.shufflesPerMinute={omega}",)
    arguments = ("--sla", str(folder / "sla.yaml"))
    with (
        SinkWatch(folder / "out") as watch,
        penstock_side.running(
            "shuffling", sets, folder, "waiting.py", arguments, command=side.command, may_end=True
        ) as run,
    ):
        end_s = time.monotonic() + 2 * seconds + START_AND_STOP_S
        while time.monotonic() < end_s and run.process.poll() is None:
            time.sleep(0.25)
    return watch.rows(), (folder / "output.txt").read_text(errors="replace")


def _words(outcome: Outcome) -> str:
    text = (
        f"{outcome.throughput_per_s:.0f}/s, mean {outcome.mean_latency_ms:,.0f} ms, "
        f"p99 {outcome.p99_latency_ms:,.0f} ms"
    )
    pauses = outcome.pauses_ms
    return f"{text}; {len(pauses)} pauses of {np.mean(pauses):.0f} ms" if pauses else text


def _table(outcomes: Mapping[int, Mapping[str, Outcome]]) -> Table:
    table = Table(
        title=f"{OFFERED_PER_S:g} records/s offered to {TOKENS} cores of {TASK_PER_S:g}/s each, keys shuffled"
    )
    table.add_column("shuffles a minute")
    table.add_column("policy")
    for header in ("records/s", "mean latency, ms", "p99, ms", "pauses", "mean pause, ms"):
        table.add_column(header, justify="right")
    for omega, by_side in outcomes.items():
        for name, outcome in by_side.items():
            pauses = outcome.pauses_ms
            table.add_row(
                str(omega),
                SIDES[name].title,
                f"{outcome.throughput_per_s:,.0f}",
                f"{outcome.mean_latency_ms:,.1f}",
                f"{outcome.p99_latency_ms:,.1f}",
                str(len(pauses)) if pauses else "",
                f"{np.mean(pauses):,.0f}" if pauses else "",
            )
    return table


if __name__ == "__main__":
    main()
