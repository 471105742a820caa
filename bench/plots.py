"""The pictures in `results/`: latency distributions, throughput bars, what followed a load step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from penstock.metrics.latency import LatencyHistogram, value_of

Floats = NDArray[np.float64]
Pair = tuple[float | None, float | None]
COLOR_OURS, COLOR_PEER = "#1b6ca8", "#d9822b"
COLORS = {
    "Penstock, Process": COLOR_OURS,
    "Penstock, Disk": "#63b3ed",
    "Spark, micro-batch": COLOR_PEER,
}
STYLES = ("-", "--")


def latency(path: Path, curves: Mapping[int, Mapping[str, LatencyHistogram]]) -> None:
    """One curve for each rate and system: the share of records that are at most so old."""
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for style, (rate_per_s, systems) in zip(STYLES, sorted(curves.items()), strict=False):
        for system, histogram in systems.items():
            if histogram.total == 0:
                continue
            ages_ms, shares, seen = [], [], 0
            for bucket in sorted(histogram.counts):
                seen += histogram.counts[bucket]
                ages_ms.append(value_of(bucket) / 1000)
                shares.append(seen / histogram.total)
            label = f"{system}, {rate_per_s:,}/s"
            axes.step(ages_ms, shares, style, where="post", color=COLORS.get(system), label=label)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds from source timestamp to sink")
    axes.set_ylabel("share of records")
    axes.set_ylim(0, 1.01)
    axes.axhline(0.99, color="#999999", linewidth=0.6)
    axes.grid(visible=True, which="both", axis="x", linewidth=0.3)
    axes.legend(loc="center right", fontsize=8)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def throughput(path: Path, per_cpu_s: Mapping[str, float], per_s: Mapping[str, float]) -> None:
    """Two groups of bars: what a CPU-second yields, and what the machine holds."""
    figure, panes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    titles = ("records per CPU-second", "records per second held")
    for pane, title, values in zip(panes, titles, (per_cpu_s, per_s), strict=True):
        bars = pane.bar(list(values), list(values.values()), color=[COLORS.get(n, "#888888") for n in values])
        pane.bar_label(bars, fmt="{:,.0f}", fontsize=8)
        pane.set_title(title, fontsize=10)
        pane.tick_params(axis="x", labelsize=8)
        pane.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def load_step(path: Path, curves: Mapping[str, tuple[Floats, Floats, Floats]], bound_ms: float) -> None:
    """Two panes over the seconds since the step: mean age of the rows of the last second, and rows a second.

    A curve is (seconds, ages in ms, rows a second).
    """
    figure, (ages, rates) = plt.subplots(2, 1, figsize=(9, 6), layout="constrained", sharex=True)
    for title, (at_s, ages_ms, per_s) in curves.items():
        ages.plot(at_s, ages_ms, linewidth=1.2, label=title)
        rates.plot(at_s, per_s, linewidth=1.0)
    ages.axhline(bound_ms, color="#999999", linewidth=0.8, linestyle="--")
    ages.set_yscale("log")
    ages.set_ylabel("mean age over 1 s, ms")
    rates.set_ylabel("rows a second")
    rates.set_xlabel("seconds since the load step")
    ages.legend(fontsize=8)
    for pane in (ages, rates):
        pane.axvline(0.0, color="#999999", linewidth=0.6)
        pane.grid(visible=True, axis="y", linewidth=0.3)
        pane.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def moves(path: Path, gaps_ms: Mapping[str, Sequence[float]], restart_ms: float) -> None:
    """A row of points for each kind of move: how long the shard committed nothing."""
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    names = {"task": "between tasks", "same_node": "between workers of a node"}
    labels = [names.get(kind, f"between nodes, {kind}") for kind in gaps_ms]
    for row, gaps in enumerate(gaps_ms.values()):
        spread = [row + 0.3 * (number / max(1, len(gaps) - 1) - 0.5) for number in range(len(gaps))]
        axes.plot(gaps, spread, ".", color=COLOR_OURS, markersize=4)
    axes.axvline(restart_ms, color=COLOR_PEER, label="stop and restart, p50")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds without commits of the moved shard")
    axes.grid(visible=True, which="both", axis="x", linewidth=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def migrations(path: Path, curves: Mapping[str, Sequence[float]], bucket_s: float) -> None:
    """Throughput over time, a pane for each run; 1 is normal."""
    figure, panes = plt.subplots(
        len(curves), 1, figsize=(9, 1.4 * len(curves)), layout="constrained", sharex=True, squeeze=False
    )
    for pane, (name, parts) in zip(panes[:, 0], curves.items(), strict=True):
        pane.plot([number * bucket_s for number in range(len(parts))], parts, color=COLOR_OURS, linewidth=0.8)
        pane.axhline(0.4, color="#d9822b", linewidth=0.6)
        pane.set_ylim(0, 2)
        pane.set_title(name, fontsize=8, loc="left")
        pane.tick_params(labelsize=7)
    panes[-1, 0].set_xlabel("seconds; records in the sink by buckets of 100 ms, as a part of normal")
    figure.savefig(path, dpi=140)
    plt.close(figure)


def shuffled_keys(
    path: Path,
    by_omega: Mapping[str, Sequence[tuple[float, float, float]]],
    per_second: Mapping[str, Sequence[float]],
    omega_shown: float,
) -> None:
    """Three panes: throughput and mean latency in ms over omega, and throughput by seconds at one of them.

    `by_omega` has (omega, throughput a second, mean latency in ms) for each policy.
    """
    figure, (rates, ages, seconds) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for title, points in by_omega.items():
        omegas, throughputs, latencies_ms = zip(*points, strict=True)
        rates.plot(omegas, throughputs, ".-", label=title)
        ages.plot(omegas, latencies_ms, ".-")
    for title, series in per_second.items():
        seconds.plot(range(len(series)), series, linewidth=1.0, label=title)
    rates.set_title("records a second", fontsize=10)
    rates.set_ylim(bottom=0)
    ages.set_title("mean latency, ms", fontsize=10)
    ages.set_yscale("log")
    seconds.set_title(f"records in each second, omega = {omega_shown:g}", fontsize=10)
    seconds.set_xlabel("seconds since the source began")
    rates.legend(fontsize=8)
    for pane in (rates, ages):
        pane.set_xlabel("omega, shuffles a minute")
    for pane in (rates, ages, seconds):
        pane.grid(visible=True, linewidth=0.3)
        pane.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def peers(path: Path, ages_ms: Mapping[str, Mapping[str, Pair]], twice: Mapping[str, int | None]) -> None:
    """A row for each system: p99 quiet (full) and beside spinning processes (open), a pane for each rate, and
    rows that came twice behind a kill.

    `ages_ms` has (quiet, busy) of every system for each pane's title; None is a rate that was not held.
    `twice` has None where there was no kill.
    """
    names = list(twice)
    colors = [COLOR_OURS if name.startswith("Penstock") else COLOR_PEER for name in names]
    figure, panes = plt.subplots(1, len(ages_ms) + 1, figsize=(13, 5), layout="constrained", sharey=True)
    for pane, (title, by_system) in zip(panes[:-1], ages_ms.items(), strict=True):
        for row, (name, color) in enumerate(zip(names, colors, strict=True)):
            for age_ms, fill in zip(by_system[name], (color, "white"), strict=True):
                if age_ms is not None:
                    pane.plot(age_ms, row, "o", color=color, markerfacecolor=fill, markersize=6)
        pane.set_xscale("log")
        pane.set_title(title, fontsize=10)
    for row, (rows, color) in enumerate(zip(twice.values(), colors, strict=True)):
        if rows is not None:
            panes[-1].barh(row, rows + 1, color=color)
            panes[-1].text(rows + 1, row, f" {rows:,}", fontsize=8, va="center")
    panes[-1].set_xscale("log")
    panes[-1].set_xlim(1, 1e6)
    panes[-1].set_title("rows twice behind a kill -9", fontsize=10)
    panes[0].set_yticks(range(len(names)), names, fontsize=8)
    panes[0].invert_yaxis()
    for pane in panes:
        pane.grid(visible=True, axis="x", linewidth=0.3)
        pane.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)
    plt.close(figure)
