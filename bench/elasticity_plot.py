"""The picture of `bench.elasticity`: figures 6, 7 and 19 of Elasticutor's paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

COLORS = {
    "static": "#666666",
    "resource-centric": "#c0392b",
    "naive-EC": "#d9822b",
    "Elasticutor": "#2e8b57",
}


def draw(
    path: Path,
    by_omega: Mapping[str, Sequence[tuple[float, float, float]]],
    per_second: Mapping[str, Sequence[float]],
    stock: Mapping[str, tuple[float, float]],
) -> None:
    """`by_omega` has (omega, throughput a second, mean latency in ms); `per_second` the throughput of each
    second at one omega; `stock` (throughput a second, 99th percentile in ms)."""
    figure, panes = plt.subplots(1, 4, figsize=(16, 4), layout="constrained")
    for name, points in by_omega.items():
        omegas, throughputs, latencies_ms = zip(*points, strict=True)
        panes[0].plot(omegas, [t / 1000 for t in throughputs], ".-", color=COLORS[name], label=name)
        panes[1].plot(omegas, latencies_ms, ".-", color=COLORS[name], label=name)
    panes[1].set_yscale("log")
    for pane, title in zip(panes, ("thousand a second", "mean latency, ms"), strict=False):
        pane.set_title(title, fontsize=10)
        pane.set_xlabel("omega, shuffles a minute")
    panes[0].legend(fontsize=7)
    for name, series in per_second.items():
        panes[2].plot(range(len(series)), [each / 1000 for each in series], color=COLORS[name], linewidth=1)
    panes[2].set_title("thousand in each second, omega = 2", fontsize=10)
    panes[2].set_xlabel("seconds")
    for name, (throughput, p99_ms) in stock.items():
        panes[3].scatter(throughput / 1000, p99_ms, color=COLORS[name])
        panes[3].annotate(
            name, (throughput / 1000, p99_ms), fontsize=7, xytext=(3, 3), textcoords="offset points"
        )
    panes[3].set_yscale("log")
    panes[3].set_title("stock exchange: 99% latency, ms", fontsize=10)
    panes[3].set_xlabel("thousand orders a second")
    for pane in panes:
        pane.grid(visible=True, linewidth=0.3)
    figure.savefig(path, dpi=140)
    plt.close(figure)
