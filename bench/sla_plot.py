"""The pictures of `bench.sla`: curves of success over executors, and the substreams of the points
compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

COLORS = {
    "StreamSwitch": "#1b6ca8",
    "StreamSwitch by units": "#8ab6d6",
    "DRS": "#c0392b",
    "DRS-LB": "#d9822b",
    "Static": "#666666",
    "Elasticutor": "#2e8b57",
    "naive-EC": "#8fbc8f",
    "Hybrid": "#7d3c98",
}


def stock_exchange(
    path: Path,
    curves: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]],
    bounds: Mapping[str, tuple[float, float]],
    substreams: Mapping[str, Sequence[float]],
) -> None:
    """One pane an SLA with its curves, (executors, success, parameter) each, and its bounds, (fewest
    executors, highest success); then one with the success rates of all substreams of the points compared
    (figure 5)."""
    figure, panes = plt.subplots(
        1, len(curves) + 1, figsize=(4.2 * (len(curves) + 1), 4.4), layout="constrained"
    )
    for pane, (sla, of_policy) in zip(panes, curves.items(), strict=False):
        for name, points in of_policy.items():
            executors, success, parameters = zip(*sorted(points), strict=True)
            pane.plot(
                executors, [100 * s for s in success], ".-", color=COLORS.get(name), label=name, linewidth=1
            )
            for x, y, parameter in zip(executors, success, parameters, strict=True):
                pane.annotate(
                    f"{parameter:g}", (x, 100 * y), fontsize=6, xytext=(2, 2), textcoords="offset points"
                )
        fewest, highest = bounds[sla]
        pane.axvline(fewest, color="#999999", linewidth=0.8, linestyle=":")
        pane.axhline(100 * highest, color="#999999", linewidth=0.8, linestyle=":")
        pane.set_title(f"(L, T) = {sla}", fontsize=10)
        pane.set_xlabel("mean executors")
        pane.set_ylabel("success rate, %")
        pane.grid(visible=True, linewidth=0.3)
    panes[0].legend(loc="lower right", fontsize=7)
    _boxes(panes[-1], substreams)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def _boxes(pane: plt.Axes, substreams: Mapping[str, Sequence[float]]) -> None:
    pane.boxplot([[100 * rate for rate in rates] for rates in substreams.values()], widths=0.5)
    pane.set_xticks(range(1, len(substreams) + 1), list(substreams), rotation=30, fontsize=7, ha="right")
    pane.set_title("success rates of the substreams, %", fontsize=10)
    pane.grid(visible=True, axis="y", linewidth=0.3)
