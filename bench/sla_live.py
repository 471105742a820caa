"""`make bench-sla-live`: a LatencySLA kept live on this machine, against static numbers of executors.

A real topology under `penstock run --sla` serves bursts that are drawn from a seed: `--seed N` on the command
line. A record's service time is waited, not computed, so that two cores can host eight executors of 200
records a second each. StreamSwitch runs first; Static(mean) then has as many executors as StreamSwitch had on
average (rounded up), Static(max) as many as it had at most. Static runs are dry runs of the same SLA: judged
by the same code, and nothing is moved. The SLA is (250 ms, 1 s); its alert threshold is a tenth of the bound,
as in the paper, its safety margin half of the default: each record takes the same time. Beside them stands an
oracle, that has at each moment just the executors that the rate of that moment takes.

Neighbours: `topologies/waiting.yaml` and `waiting.py` are what runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from bench import machine
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from rich.table import Table

HERE = Path(__file__).parent
SECONDS = 75.0
TASK_RATE_PER_S = 200.0
TASKS_MAX = 8
STEP_S = 0.5
"""Of the trace: a rate holds so long."""
START_AND_STOP_S = 90.0
BASE_PER_S = (60.0, 120.0)
PEAK_PER_S = (350.0, 750.0)
QUIET_S = (8.0, 16.0)
RISE_S = (8.0, 14.0)
HOLD_S = (4.0, 8.0)
FALL_S = (4.0, 8.0)
"""What bursts are drawn from, each evenly between the two."""
SLA = """
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {name: live}
spec:
  topology: waiting
  operator: wait
  latency: 250ms
  window: 1s
  alertThreshold: 25ms
  safetyMargin: 0.1
  policy: StreamSwitch
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's run. Success is the mean over shards of the share of their windows that kept the bound."""

    success_rate: float
    worst_shard: float
    mean_executors: float
    executors_max: int
    records: int
    decisions: dict[str, int]


class RunFailedError(Exception):
    """`penstock run` did not end well; the text is the end of its output."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, show, and print the result as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="what the bursts are drawn from")
    seed = parser.parse_args(arguments).seed
    seconds = seconds_per_figure(SECONDS)
    trace = bursts(seed, seconds)
    screen = Screen(3)
    with screen.step(f"StreamSwitch, seed {seed}"):
        streamswitch = _measure(trace, None, "streamswitch", seconds)
    screen.note(_words(streamswitch))
    outcomes = {"streamswitch": streamswitch}
    for name, executors in (
        ("static_mean", math.ceil(streamswitch.mean_executors)),
        ("static_max", streamswitch.executors_max),
    ):
        with screen.step(f"Static({executors}), seed {seed}"):
            outcomes[name] = _measure(trace, executors, name, seconds)
        screen.note(_words(outcomes[name]))
    result = {
        "bench": "sla-live",
        "seed": seed,
        "policies": {name: _figures(outcome) for name, outcome in outcomes.items()},
        "oracle_mean_executors": round(oracle_mean_executors(trace), 3),
        "cost_of_static_max": round(streamswitch.mean_executors / outcomes["static_max"].mean_executors, 3),
        "seconds": seconds,
        "machine": machine.description(),
    }
    show(_table(outcomes), result)


def bursts(seed: int, seconds: float) -> list[tuple[float, float]]:
    """(second, rate a second) from which on that rate holds, the last one 0: quiet stretches, and between
    them bursts that rise, hold and fall, as many as there is time for."""
    generator = np.random.default_rng(seed)

    def draw(bounds: tuple[float, float]) -> float:
        return float(generator.uniform(*bounds))

    base = draw(BASE_PER_S)
    corners = [(0.0, base)]
    while True:
        rises_s = corners[-1][0] + draw(QUIET_S)
        risen_s = rises_s + draw(RISE_S)
        falls_s = risen_s + draw(HOLD_S)
        fallen_s = falls_s + draw(FALL_S)
        if fallen_s > seconds:
            break
        peak = draw(PEAK_PER_S)
        corners += [(rises_s, base), (risen_s, peak), (falls_s, peak), (fallen_s, base := draw(BASE_PER_S))]
    steps = np.arange(0.0, seconds, STEP_S)
    rates = np.interp(steps, [at_s for at_s, _ in corners], [rate for _, rate in corners])
    return [*zip(steps.tolist(), rates.round(1).tolist(), strict=True), (seconds, 0.0)]


def oracle_mean_executors(trace: Sequence[tuple[float, float]]) -> float:
    """Executors on average of who knows the rate, is never early or late, and fills each one to the brim: one
    at least, and as many as serve the rate that holds."""
    lasting = [(later - at_s, rate) for (at_s, rate), (later, _) in pairwise(trace)]
    needed = sum(span_s * max(1, math.ceil(rate / TASK_RATE_PER_S)) for span_s, rate in lasting)
    return needed / sum(span_s for span_s, _ in lasting)


def _measure(trace: Sequence[tuple[float, float]], static: int | None, name: str, seconds: float) -> Outcome:
    """Run the trace to its end. `static` executors, or as many as StreamSwitch wants."""
    with scratch("sla-live") as folder:
        shutil.copy(HERE / "topologies" / "waiting.yaml", folder / "topology.yaml")
        shutil.copy(HERE / "waiting.py", folder)
        (folder / "rates.csv").write_text("".join(f"{at_s:g},{rate:g}\n" for at_s, rate in trace))
        (folder / "sla.yaml").write_text(SLA + ("" if static is None else "  dryRun: true\n"))
        sets = () if static is None else ("--set", f"wait.tasks.initial={static}")
        command = [
            str(Path(sys.executable).with_name("penstock")),
            *("run", str(folder / "topology.yaml"), "--sla", str(folder / "sla.yaml"), "--no-live", *sets),
            *("--state-dir", str(folder / "state"), "--json-summary", str(folder / "summary.json")),
        ]
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=dict(os.environ), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                code = process.wait(seconds * 2 + START_AND_STOP_S)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                _end(process)
        told = (folder / "output.txt").read_text(errors="replace")
        if code != 0:
            raise RunFailedError(told[-4000:])
        picture = folder / "state" / "live.png"
        if picture.exists():
            RESULTS.mkdir(exist_ok=True)
            shutil.copy(picture, RESULTS / f"sla_live_{name}.png")
        return _outcome(json.loads((folder / "summary.json").read_text()))


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue


def _outcome(summary: dict[str, Any]) -> Outcome:
    sla = summary["slas"]["live"]
    shards = [share for share in sla["success_rate_of_shards"].values() if share is not None]
    return Outcome(
        success_rate=sla["success_rate"],
        worst_shard=min(shards),
        mean_executors=sla["mean_executors"],
        executors_max=max(point["executors"] for point in sla["timeline"]),
        records=summary["operators"]["wait"]["records"],
        decisions=sla["decisions"],
    )


def _figures(outcome: Outcome) -> dict[str, Any]:
    return {
        "success_rate": round(outcome.success_rate, 4),
        "worst_shard": round(outcome.worst_shard, 4),
        "mean_executors": round(outcome.mean_executors, 3),
        "executors_max": outcome.executors_max,
        "records": outcome.records,
        "decisions": outcome.decisions,
    }


def _words(outcome: Outcome) -> str:
    return f"kept {outcome.success_rate:.2%} with {outcome.mean_executors:.2f} executors: {outcome.decisions}"


def _table(outcomes: dict[str, Outcome]) -> Table:
    table = Table(title="latency kept live: 250 ms over any 1 s, by shard")
    table.add_column("policy")
    for header in ("success", "worst shard", "mean executors", "most", "records", "treatments"):
        table.add_column(header, justify="right")
    for name, outcome in outcomes.items():
        table.add_row(
            name,
            f"{outcome.success_rate:.2%}",
            f"{outcome.worst_shard:.2%}",
            f"{outcome.mean_executors:.2f}",
            str(outcome.executors_max),
            f"{outcome.records:,}",
            str(sum(outcome.decisions.values())) if name == "streamswitch" else "",
        )
    return table


if __name__ == "__main__":
    main()
