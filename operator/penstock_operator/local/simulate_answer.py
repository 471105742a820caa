"""What `penstock simulate` shows: a table of ways to run it, how load, tasks and latency went, and a picture.

matplotlib is in the `dev` extra alone; without it there is no picture. Neighbour: `simulate` has the figures.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from penstock.simulation.queueing.model import FloatArray, OperatorRun, Run
from penstock_operator import quantities
from penstock_operator.local.simulate import Answer, Candidate

_WIDTH = 56


def show(answer: Answer, console: Console) -> None:
    """The answer for people."""
    promise = answer.request.promise
    about = promise.operator or "end to end"
    bound = quantities.latency(promise.latency_us / 1000)
    window = quantities.latency(promise.window_us / 1000)
    chosen = answer.candidates[0]
    length = quantities.duration(chosen.run.duration_us / 1e6)
    table = Table(
        title=f"{promise.name}: {about}, {bound} over {window}, {length} of load", title_justify="left"
    )
    for heading in ("", "tasks", "most", "kept", "worst shard", "mean", "p99", "changes"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for candidate in answer.candidates:
        table.add_row(*_row(candidate))
    console.print(table)
    console.print(f"The rows' work alone keeps {answer.work_tasks:.2f} tasks busy.")
    if answer.infeasible:
        console.print(f"At times the SLA cannot be kept: {answer.infeasible}.")
    arrived, latency_us, tasks = series(chosen.run, _WIDTH)
    for name, values, last in (
        ("rows/s", arrived, quantities.rate(_highest(arrived))),
        ("latency", latency_us, quantities.latency(_highest(latency_us) / 1000)),
        ("tasks", tasks, f"{_highest(tasks):.1f}"),
    ):
        known = [None if math.isnan(value) else value for value in values.tolist()]
        console.print(f"{name:8}{quantities.sparkline(known, len(known))} up to {last}", highlight=False)


def as_json(answer: Answer) -> dict[str, Any]:
    """The same for machines."""
    return {
        "sla": answer.request.promise.name,
        "duration_s": answer.candidates[0].run.duration_us / 1e6,
        "work_tasks": round(answer.work_tasks, 3),
        "infeasible": answer.infeasible,
        "candidates": [
            {
                "name": candidate.name,
                "mean_tasks": round(candidate.run.mean_tasks, 3),
                "max_tasks": candidate.tasks_max,
                "success_rate": round(candidate.success, 5),
                "worst_shard": round(candidate.worst_shard, 5),
                "mean_latency_ms": _ms(_slowest(candidate.run).mean_latency_us),
                "p99_latency_ms": _ms(_slowest(candidate.run).latency_quantile_us(0.99)),
                "changes": candidate.changes,
            }
            for candidate in answer.candidates
        ],
    }


def draw(path: Path, answer: Answer) -> bool:
    """Write the picture to `path`; False when matplotlib is not there."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    run, promise = answer.candidates[0].run, answer.request.promise
    points = min(1_000, len(next(iter(run.operators.values())).tasks))
    arrived, latency_us, tasks = series(run, points)
    at_s = (np.arange(points) + 0.5) * run.duration_us / 1e6 / points
    figure, (load, latency, cores) = plt.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
    load.plot(at_s, arrived, color="#1b6ca8")
    load.set_ylabel("rows a second")
    latency.plot(at_s, latency_us / 1000, color="#c23b22", label="worst shard")
    latency.axhline(promise.latency_us / 1000, color="#333333", linestyle="--", linewidth=0.8, label="bound")
    latency.set_yscale("log")
    latency.set_ylabel("ms")
    latency.legend(loc="upper right", fontsize=8)
    cores.plot(at_s, tasks, color="#1b6ca8")
    cores.set_ylim(bottom=0)
    cores.set_ylabel("tasks")
    cores.set_xlabel("seconds")
    for pane in (load, latency, cores):
        pane.grid(visible=True, linewidth=0.3)
        pane.spines[["top", "right"]].set_visible(False)
    kept = f"{answer.candidates[0].success:.2%}"
    load.set_title(f"{promise.name}: {promise.policy}, kept {kept}, {run.mean_tasks:.2f} tasks", fontsize=10)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True


def series(run: Run, points: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(rows a second from outside or upstream at the first operator, the worst shard's latency in
    microseconds over all operators, tasks), each of `points` or fewer parts of the run; nan where nothing was
    completed."""
    operators = list(run.operators.values())
    parts = np.array_split(np.arange(len(operators[0].tasks)), min(points, len(operators[0].tasks)))
    worst_us = np.fmax.reduce([operator.latency_max_us for operator in operators])
    tasks = np.sum([operator.tasks for operator in operators], axis=0)
    return (
        np.array([operators[0].arrived[part].mean() * 1e6 / run.slot_us for part in parts]),
        np.array([float(np.fmax.reduce(worst_us[part])) for part in parts]),
        np.array([float(tasks[part].mean()) for part in parts]),
    )


def _row(candidate: Candidate) -> tuple[str, ...]:
    slowest = _slowest(candidate.run)
    return (
        candidate.name,
        f"{candidate.run.mean_tasks:.2f}",
        str(candidate.tasks_max),
        f"{candidate.success:.2%}",
        f"{candidate.worst_shard:.2%}",
        quantities.latency(_ms(slowest.mean_latency_us)),
        quantities.latency(_ms(slowest.latency_quantile_us(0.99))),
        str(candidate.changes),
    )


def _slowest(run: Run) -> OperatorRun:
    """The operator whose rows take longest, of those that had any."""
    return max(run.operators.values(), key=lambda of: np.nan_to_num(of.mean_latency_us, nan=-1.0))


def _ms(latency_us: float) -> float | None:
    return None if math.isnan(latency_us) else round(latency_us / 1000, 3)


def _highest(values: FloatArray) -> float:
    return float(np.nan_to_num(np.fmax.reduce(values)))
