"""`make bench-locality`: the experiments of Locality-Aware Routing (Middleware'16, section 4) on Penstock.

Hosts are network namespaces with links of so many bits (`hosts`); on each a store, an agent and a worker
(`system`). Throughput by hosts, padding and locality under hash, the worst table and the right one (`sweep`);
drifting weeks (`drift`); a table that is made and carried out while rows flow (`reconfiguration`), what
single keys feel of it (`pauses`), and what counting costs (`counting_cost`). Links are scaled to what two
cores fill. BENCH_FULL=1 has all points, BENCH_SECONDS is how long one is measured. `--only` takes some of the
parts.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench import cpu, machine
from bench.locality import counting_cost, drift, figures
from bench.locality.drift_stream import FITTED
from bench.locality.hosts import NoHostsError
from bench.locality.pauses import pauses
from bench.locality.reconfiguration import Load, Reconfigured, quantile, reconfigured
from bench.locality.sweep import Condition, Point, Setting, bound, sweep
from bench.locality.synthetic import HASH, TABLE, WAYS
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.two_nodes import NodesFailedError
from rich.table import Table

SECONDS = 5.0
HOSTS = 6
BITS_PER_S = 4_000_000
FAST_BITS_PER_S = 16_000_000
RATE_PER_S = 400.0
"""Of a host's source at most: a sixth of what two cores do in all, since here hosts share them."""
SEEN = Condition(12_000, 0.8)
"""What the paper's figures 8 and 9 have in common."""
DEFAULT = (
    SEEN,
    Condition(12_000, 0.6),
    Condition(12_000, 1.0),
    Condition(4_000, 0.8),
    Condition(20_000, 0.8),
)
FULL_PADDINGS = (0, 4_000, 8_000, 12_000, 16_000, 20_000)
FULL_LOCALITIES = (0.6, 0.7, 0.8, 0.9, 1.0)
DEFAULT_HOSTS, FULL_HOSTS = (2, 4), (1, 2, 3, 4, 5)
"""Beside `HOSTS`."""
WEEKS, FULL_WEEKS = 12, 30
KEPT = (10, 100, 1_000, 10_000, 100_000)
PARALLELISMS, FULL_PARALLELISMS = (2, 4, 6), (2, 3, 4, 5, 6)
RECONFIGURED_PADDING, RECONFIGURED_S = 4_000, 14.0
SLOWER, FULL_SLOWER = (3,), (2, 3, 4, 5)
"""Beside `HOSTS`, on the slower links."""
PAUSE_LOAD = Load(FAST_BITS_PER_S, 200, 300.0, 4.0, 0)
CHANGES, FULL_CHANGES = 6, 30
TURNS, FULL_TURNS = 5, 20
COST_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of it is run."""

    is_full: bool
    seed: int
    seconds: float
    parts: Sequence[str]


def _throughput(wanted: Wanted, screen: Screen) -> dict[str, Any]:
    setting = Setting(BITS_PER_S, RATE_PER_S, wanted.seconds, wanted.seed)
    conditions = [*DEFAULT]
    if wanted.is_full:
        conditions = list(
            dict.fromkeys(
                [SEEN]
                + [Condition(SEEN.padding_bytes, one) for one in FULL_LOCALITIES]
                + [Condition(one, SEEN.locality) for one in FULL_PADDINGS]
            )
        )
    points: list[Point] = []
    for hosts in (*(FULL_HOSTS if wanted.is_full else DEFAULT_HOSTS), HOSTS):
        some = conditions if wanted.is_full or hosts == HOSTS else [SEEN]
        with screen.step(f"throughput, {hosts} hosts"), scratch("locality") as folder:
            points += sweep(hosts, some, setting, folder, screen)
    RESULTS.mkdir(exist_ok=True)
    figures.throughput(RESULTS / "locality_throughput.png", points, HOSTS, SEEN)
    off = [abs(one.bytes_off) for one in points if one.bytes_off is not None]
    return {
        "servers": servers_of(points),
        "points": [_flat(one) for one in points],
        "bytes_off_max": round(max(off), 4),
        "rows_checked": sum(one.rows for one in points),
        "lost": 0,
    }


def servers_of(points: Sequence[Point]) -> dict[str, Any]:
    """Hosts -> way -> figures at the point that is looked at, with what links allow (`bound`)."""
    servers: dict[str, Any] = {}
    for hosts in sorted({one.hosts for one in points}):
        at = {one.way: one for one in points if (one.hosts, one.condition) == (hosts, SEEN)}
        servers[str(hosts)] = {
            way: {
                "records_per_s": round(one.records_per_s, 1),
                "allowed_per_s": round(one.allowed_per_s, 1),
                "locality": round(one.local_share, 3),
            }
            for way, one in at.items()
        }
        servers[str(hosts)]["bound"] = round(bound(points, hosts, TABLE, SEEN), 3)
        times = at[TABLE].records_per_s / at[HASH].records_per_s
        servers[str(hosts)]["table_over_hash"] = round(times, 3)
        servers[str(hosts)]["of_bound"] = round(times / servers[str(hosts)]["bound"], 3)
    return servers


def _flat(point: Point) -> dict[str, Any]:
    off = point.bytes_off
    return {
        "hosts": point.hosts,
        "way": point.way,
        "padding_bytes": point.condition.padding_bytes,
        "locality_of_data": point.condition.locality,
        "records_per_s": round(point.records_per_s, 1),
        "allowed_per_s": round(point.allowed_per_s, 1),
        "locality": round(point.local_share, 3),
        "bytes_off": None if off is None else round(off, 4),
    }


def _drift(wanted: Wanted, screen: Screen) -> dict[str, Any]:
    with screen.step("drifting weeks"):
        weeks = drift.over_weeks(FITTED, FULL_WEEKS if wanted.is_full else WEEKS, HOSTS, wanted.seed)
    with screen.step("pairs kept"):
        hosts = FULL_PARALLELISMS if wanted.is_full else PARALLELISMS
        kept = drift.by_pairs_kept(FITTED, KEPT, hosts, wanted.seed)
    RESULTS.mkdir(exist_ok=True)
    figures.drift(RESULTS / "locality_drift.png", weeks)
    figures.pairs_kept(RESULTS / "locality_pairs.png", kept)
    found: dict[str, Any] = {}
    for mode, all_figures in weeks.items():
        behind = all_figures[1:]
        late = behind[len(behind) // 2 :]
        found[mode] = {
            "locality": round(float(np.mean([one.locality for one in behind])), 3),
            "imbalance": round(float(np.mean([one.imbalance for one in behind])), 3),
            "first_week": round(behind[0].locality, 3),
            "last_weeks": round(float(np.mean([one.locality for one in late])), 3),
            "expected": None if mode == HASH else round(float(np.mean([one.expected for one in behind])), 3),
            "keys": behind[-1].keys,
        }
    by_pairs = {
        str(hosts): {str(size): round(share, 3) for size, share in points} for hosts, points in kept.items()
    }
    return {"drift": found, "pairs_kept": by_pairs}


def _reconfiguration(wanted: Wanted, screen: Screen) -> dict[str, Any]:
    speeds = [(HOSTS, BITS_PER_S), (HOSTS, FAST_BITS_PER_S)]
    others = [(hosts, BITS_PER_S) for hosts in (FULL_SLOWER if wanted.is_full else SLOWER)]
    runs: list[Reconfigured] = []
    for hosts, bits_per_s in (*speeds, *others):
        load = Load(bits_per_s, RECONFIGURED_PADDING, RATE_PER_S, RECONFIGURED_S, wanted.seed)
        what = f"reconfiguration, {hosts} hosts, {bits_per_s / 1e6:g} Mb/s"
        with screen.step(what), scratch("locality") as folder:
            runs.append(reconfigured(hosts, load, folder))
            screen.note(f"{runs[-1].before_per_s:,.0f}/s, then {runs[-1].behind_per_s:,.0f}/s")
    with screen.step("pauses of keys"), scratch("locality") as folder:
        paused = pauses(HOSTS, PAUSE_LOAD, FULL_CHANGES if wanted.is_full else CHANGES, folder)
    RESULTS.mkdir(exist_ok=True)
    figures.reconfigurations(RESULTS / "locality_reconfiguration.png", runs)
    return {
        "reconfiguration": [_told(one) for one in runs],
        "reconfiguration_gap_ms": {
            **_quantiles(paused.gaps_ms),
            "without_p99": _quantiles(paused.gaps_before_ms).get("p99"),
            "changes": len(paused.took_s),
            "keys_moved": paused.keys_moved,
            "took_s": round(float(np.median(paused.took_s)), 3),
        },
    }


def _quantiles(gaps_ms: Sequence[float]) -> dict[str, float]:
    if not gaps_ms:
        return {}
    found = {name: quantile(gaps_ms, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}
    return {name: round(value, 1) for name, value in found.items()}


def _told(run: Reconfigured) -> dict[str, Any]:
    return {
        "hosts": run.hosts,
        "mbit_per_s": run.load.bits_per_s / 1e6,
        "padding_bytes": run.load.padding_bytes,
        "before_per_s": round(run.before_per_s, 1),
        "behind_per_s": round(run.behind_per_s, 1),
        "local_before": round(run.local_before, 3),
        "local_behind": round(run.local_behind, 3),
        "promised": round(run.promised, 3),
        "took_s": round(run.took_s, 2),
        "keys_moved": run.keys_moved,
        "gap_ms": _quantiles(run.gaps_ms),
        "gap_before_ms": _quantiles(run.gaps_before_ms),
        "rows_checked": run.rows,
    }


def _counting(wanted: Wanted, screen: Screen) -> dict[str, Any]:
    turns = FULL_TURNS if wanted.is_full else TURNS
    with screen.step("what counting costs"), scratch("locality") as folder:
        found = counting_cost.compared(folder, turns, COST_ROUNDS, 0, wanted.seed)
    return {
        "counting": {
            "off_us": round(found.off.record_us, 2),
            "auto_us": round(found.auto.record_us, 2),
            "within_us": round(found.auto.counting_us, 2),
            "within": round(found.within, 4),
            "rise": round(found.rise, 4),
            "middle_half": [round(found.low, 4), round(found.high, 4)],
            "turns": found.turns,
        }
    }


PARTS: Mapping[str, Callable[[Wanted, Screen], dict[str, Any]]] = {
    "throughput": _throughput,
    "drift": _drift,
    "reconfiguration": _reconfiguration,
    "counting": _counting,
}


def _steps(part: str, *, is_full: bool) -> int:
    """How many a part has."""
    hosts = FULL_HOSTS if is_full else DEFAULT_HOSTS
    slower = FULL_SLOWER if is_full else SLOWER
    return {"throughput": len(hosts) + 1, "drift": 2, "reconfiguration": len(slower) + 3, "counting": 1}[part]


def _table(result: Mapping[str, Any]) -> Table:
    table = Table(title="Keys that meet on one host")
    for column in ("what", "hash", "worst", "table", "of what links allow"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for hosts, at in result.get("servers", {}).items():
        told = [f"{at[way]['records_per_s']:,.0f}/s" for way in WAYS]
        of_bound = f"{at['table_over_hash']:.2f} of {at['bound']:.2f} times: {at['of_bound']:.0%}"
        table.add_row(f"{hosts} hosts, 12 kB, locality 80%", *told, of_bound)
    for mode, at in result.get("drift", {}).items():
        table.add_row(f"drift, {mode}", "", "", f"{at['locality']:.1%}", f"imbalance {at['imbalance']:.0%}")
    for run in result.get("reconfiguration", []):
        what = f"change, {run['hosts']} hosts, {run['mbit_per_s']:g} Mb/s"
        gap = (
            f"gap p99 {run['gap_ms'].get('p99', 0):,.0f} ms, before {run['gap_before_ms'].get('p99', 0):,.0f}"
        )
        table.add_row(what, f"{run['before_per_s']:,.0f}/s", "", f"{run['behind_per_s']:,.0f}/s", gap)
    if gap_ms := result.get("reconfiguration_gap_ms"):
        told__ = f"p99 {gap_ms['p99']:.0f} ms, without {gap_ms['without_p99']:.0f} ms"
        table.add_row("pauses of keys", "", "", told__, "")
    if counting := result.get("counting"):
        table.add_row(
            "counting, us a record",
            f"{counting['off_us']}",
            "",
            f"{counting['auto_us']}",
            f"{counting['rise']:+.1%}, {counting['within']:.1%} within it",
        )
    return table


def main() -> None:
    """Measure, show, and print the result as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    wanted = Wanted(
        os.environ.get("BENCH_FULL") == "1", arguments.seed, seconds_per_figure(SECONDS), arguments.only
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cpu.adopt_orphans()
    about = machine.description()
    screen = Screen(sum(_steps(part, is_full=wanted.is_full) for part in wanted.parts))
    result: dict[str, Any] = {"bench": "locality", "seed": wanted.seed}
    try:
        for part in wanted.parts:
            result |= PARTS[part](wanted, screen)
    except (NoHostsError, NodesFailedError) as error:
        raise SystemExit(f"bench-locality: {error}") from error
    result["machine"] = about
    show(_table(result), result)


if __name__ == "__main__":
    main()
