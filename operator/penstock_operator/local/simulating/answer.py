"""What `penstock simulate` shows: a table of ways to run it, how load, tasks and latency went, and a picture.

matplotlib is in the `dev` extra alone; without it there is no picture. Neighbour: `simulate` has the figures.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from penstock.simulation.queueing.model import FloatArray, OperatorRun, Run
from penstock_operator.local.simulating.simulate import Answer, Candidate
from penstock_operator.words import figure_words

_LINE_POINTS_MIN, _LINE_POINTS_MAX = 8, 56
_BESIDE_A_LINE = 24
"""Characters of a line's name and its highest value."""
_COLUMNS = ("", "tasks", "most", "kept", "worst", "mean", "p99", "changes")
_UNBOUNDED = 1_000
_GIVE_WAY = ("changes", "mean", "worst", "most")
"""Columns that are left out, in this order, where a terminal is too narrow for all: no figure is ever cut."""


def show(answer: Answer, console: Console) -> None:
    """The answer for people."""
    promise = answer.request.promise
    about = promise.operator or "end to end"
    bound = figure_words.latency(promise.latency_us / 1000)
    window = figure_words.latency(promise.window_us / 1000)
    chosen = answer.candidates[0]
    length = figure_words.duration(chosen.run.duration_us / 1e6)
    # Above the table and no part of it: a title makes a narrow table as wide as itself.
    console.print(f"{promise.name}: {about}, {bound} over {window}, {length} of load", highlight=False)
    _print_whole(answer, console)
    console.print(f"The rows' work alone keeps {answer.work_tasks:.2f} tasks busy.")
    if answer.infeasible:
        console.print(f"At times the SLA cannot be kept: {answer.infeasible}.")
    points = max(_LINE_POINTS_MIN, min(_LINE_POINTS_MAX, console.width - _BESIDE_A_LINE))
    arrived, latency_us, tasks = series(chosen.run, points)
    for name, values, last in (
        ("rows/s", arrived, figure_words.rate(_highest(arrived))),
        ("latency", latency_us, figure_words.latency(_highest(latency_us) / 1000)),
        ("tasks", tasks, f"{_highest(tasks):.1f}"),
    ):
        known = [None if math.isnan(value) else value for value in values.tolist()]
        console.print(f"{name:8}{figure_words.sparkline(known, len(known))} up to {last}", highlight=False)


def _print_whole(answer: Answer, console: Console) -> None:
    """The table of candidates: with all columns where no terminal bounds it, else with those that fit."""
    columns, table = list(_COLUMNS), _table(answer, _COLUMNS)
    unbounded = console.options.update(width=_UNBOUNDED)
    if not console.is_terminal:
        console.width = max(console.width, console.measure(table, options=unbounded).maximum)
    for leaves in _GIVE_WAY:
        if console.measure(table, options=unbounded).maximum <= console.width:
            break
        columns.remove(leaves)
        table = _table(answer, columns)
    console.print(table)
    if len(columns) < len(_COLUMNS):
        left_out = ", ".join(name for name in _COLUMNS if name not in columns)
        console.print(f"Not shown in {console.width} columns: {left_out} (--json has all).", highlight=False)


def _table(answer: Answer, columns: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in columns:
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=bool(heading))
    for candidate in answer.candidates:
        cells = dict(zip(_COLUMNS, _row(candidate), strict=True))
        table.add_row(*(cells[heading] for heading in columns))
    return table


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
        figure_words.latency(_ms(slowest.mean_latency_us)),
        figure_words.latency(_ms(slowest.latency_quantile_us(0.99))),
        str(candidate.changes),
    )


def _slowest(run: Run) -> OperatorRun:
    """The operator whose rows take longest, of those that had any."""
    return max(run.operators.values(), key=lambda of: np.nan_to_num(of.mean_latency_us, nan=-1.0))


def _ms(latency_us: float) -> float | None:
    return None if math.isnan(latency_us) else round(latency_us / 1000, 3)


def _highest(values: FloatArray) -> float:
    return float(np.nan_to_num(np.fmax.reduce(values)))
