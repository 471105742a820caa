"""The picture of a run with an SLA: load, latency against the bound, executors and cores over time.

matplotlib is in the `dev` extra alone; without it there is no picture, and the JSON summary holds the same
numbers. Neighbour: `penstock.sla.standing` holds the timeline.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from penstock.sla.standing import SlaSummary, TimelinePoint
from penstock_operator.words.sla_words import share


def draw(path: Path, summary: SlaSummary) -> bool:
    """Write the picture to `path`; False when matplotlib is not there or nothing was seen."""
    points = summary.timeline
    if len(points) < 2 or importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    at_s = [point.at_s for point in points]
    figure, (load, latency, cores) = plt.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
    load.plot(at_s, [point.arrived_per_s for point in points], color="#1b6ca8", label="arrive")
    load.plot(at_s, [point.completed_per_s for point in points], color="#d9822b", label="completed")
    load.set_ylabel("rows a second")
    latency.plot(at_s, [point.worst_ms for point in points], color="#c23b22", label="worst shard")
    latency.plot(at_s, [point.mean_ms for point in points], color="#1b6ca8", label="mean of rows")
    latency.axhline(summary.bound_ms, color="#333333", linestyle="--", linewidth=0.8, label="bound")
    latency.set_yscale("log")
    latency.set_ylabel(f"ms over {summary.window_ms / 1000:g} s")
    cores.step(at_s, [point.tasks for point in points], where="post", color="#1b6ca8", label="tasks")
    executors = [point.executors for point in points]
    cores.step(at_s, executors, where="post", color="#63b3ed", linestyle="--", label="executors")
    cores.plot(at_s, [point.busy_cores for point in points], color="#d9822b", label="cores busy")
    cores.set_ylim(bottom=0)
    cores.set_xlabel("seconds")
    for pane in (load, latency, cores):
        pane.grid(visible=True, linewidth=0.3)
        pane.legend(loc="upper right", fontsize=8)
        pane.spines[["top", "right"]].set_visible(False)
    about = summary.operator or "end to end"
    load.set_title(f"{summary.name}: {about}, {summary.policy}, kept {share(summary.success)}", fontsize=10)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True


def timeline_rows(points: tuple[TimelinePoint, ...]) -> list[dict[str, float | int | None]]:
    """The timeline for machines."""
    return [
        {
            "at_s": round(point.at_s, 3),
            "arrived_per_s": point.arrived_per_s,
            "completed_per_s": point.completed_per_s,
            "mean_ms": point.mean_ms,
            "worst_ms": point.worst_ms,
            "executors": point.executors,
            "tasks": point.tasks,
            "busy_cores": point.busy_cores,
            "kept": point.kept,
            "judged": point.judged,
        }
        for point in points
    ]
