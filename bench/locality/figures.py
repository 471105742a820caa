"""The pictures of `make bench-locality`, numbered as in the paper. Neighbour: `comparison` has the points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from bench.locality.drift import HASH, OFFLINE, ONLINE, WeekFigures
from bench.locality.reconfiguration import BUCKET_S, Reconfigured
from bench.locality.sweep import Condition, Point
from bench.locality.synthetic import TABLE, WORST
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = {
    TABLE: "#1b6ca8", ONLINE: "#1b6ca8", HASH: "#d9822b", OFFLINE: "#63b3ed", WORST: "#888888",
}  # fmt: skip
DPI = 140


def throughput(path: Path, points: Sequence[Point], hosts: int, seen: Condition) -> None:
    """Figures 7 to 9: records a second by hosts, by locality and by padding, each around one point. Dashed:
    what links allow."""
    figure, panes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained", sharey=True)
    _curves(panes[0], "hosts", [one for one in points if one.condition == seen], lambda p: p.hosts)
    panes[0].set_title(f"by hosts: {seen.padding_bytes} B, locality {seen.locality:.0%}", fontsize=10)
    same = [one for one in points if one.hosts == hosts]
    by_locality = [one for one in same if one.condition.padding_bytes == seen.padding_bytes]
    _curves(panes[1], "locality, %", by_locality, lambda p: 100 * p.condition.locality)
    panes[1].set_title(f"by locality: {hosts} hosts, {seen.padding_bytes} B", fontsize=10)
    by_padding = [one for one in same if one.condition.locality == seen.locality]
    _curves(panes[2], "padding, kB", by_padding, lambda p: p.condition.padding_bytes / 1000)
    panes[2].set_title(f"by padding: {hosts} hosts, locality {seen.locality:.0%}", fontsize=10)
    panes[0].set_ylabel("records a second; dashed: allowed")
    # Behind all curves: a limit that is set ends the search for the others, of all panes that share it.
    panes[0].set_ylim(bottom=0)
    panes[0].legend(fontsize=8)
    _save(figure, path)


def _curves(axes: Axes, label: str, points: Sequence[Point], at: Callable[[Point], float]) -> None:
    for way in (TABLE, HASH, WORST):
        mine = sorted((at(one), one.records_per_s, one.allowed_per_s) for one in points if one.way == way)
        if mine:
            x, per_s, allowed = zip(*mine, strict=True)
            axes.plot(x, per_s, ".-", color=COLORS[way], label=way)
            axes.plot(x, allowed, "--", color=COLORS[way], linewidth=0.8)
    axes.set_xlabel(label)
    _bare(axes)


def drift(path: Path, weeks: Mapping[str, Sequence[WeekFigures]]) -> None:
    """Figure 11: locality and imbalance by week."""
    figure, (shares, loads) = plt.subplots(2, 1, figsize=(9, 6), layout="constrained", sharex=True)
    for mode, figures in weeks.items():
        shares.plot([100 * one.locality for one in figures], ".-", color=COLORS[mode], label=mode)
        loads.plot([100 * one.imbalance for one in figures], ".-", color=COLORS[mode])
    shares.set_ylabel("records that stay on their host, %")
    loads.set_ylabel("fullest host above the mean, %")
    loads.set_xlabel("week")
    shares.legend(fontsize=8)
    for axes in (shares, loads):
        axes.set_ylim(bottom=0)
        _bare(axes)
    _save(figure, path)


def pairs_kept(path: Path, found: Mapping[int, Sequence[tuple[int, float]]]) -> None:
    """Figure 12: locality of the next week by how many pairs are known of this one."""
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    for hosts, points in found.items():
        axes.plot(
            *zip(*((size, 100 * share) for size, share in points), strict=True), ".-", label=f"{hosts} hosts"
        )
    axes.set_xscale("log")
    axes.set_xlabel("pairs kept, the most frequent ones")
    axes.set_ylabel("records that stay on their host, %")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    _bare(axes)
    _save(figure, path)


def reconfigurations(path: Path, runs: Sequence[Reconfigured]) -> None:
    """Figures 13 and 14: throughput over time across a change, a pane for each run."""
    figure, panes = plt.subplots(
        len(runs), 1, figsize=(9, 1.8 * len(runs)), layout="constrained", squeeze=False
    )
    for axes, run in zip(panes[:, 0], runs, strict=True):
        at_s = [(number + 0.5) * BUCKET_S - run.change_s for number in range(len(run.per_s))]
        axes.plot(at_s, run.per_s, color=COLORS[TABLE], linewidth=1.0)
        axes.axvspan(0.0, run.took_s, color="#d9822b", alpha=0.3, linewidth=0)
        title = f"{run.hosts} hosts, {run.load.bits_per_s / 1e6:g} Mb/s, padding {run.load.padding_bytes} B"
        axes.set_title(title, fontsize=8, loc="left")
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=7)
        _bare(axes)
    panes[-1, 0].set_xlabel("seconds since the change began; records a second, by buckets of half a second")
    _save(figure, path)


def _bare(axes: Axes) -> None:
    axes.grid(visible=True, linewidth=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
