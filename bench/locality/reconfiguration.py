"""Figures 13 and 14 of the paper: throughput across an online reconfiguration, and pauses of single keys.

The product's loop looks at what tasks have counted and makes tables; they go into Schedules, agents bring
them into stores, commits switch. Behind each run the sink's files tell throughput over time, the longest time
without a row of each key, and that every row is there once. Neighbours: `tags` is the stream, `outputs` reads
files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bench.locality import tags
from bench.locality.hosts import Network
from bench.locality.outputs import Outputs, read_outputs
from bench.locality.system import System, started
from bench.locality.topology import FIRST, SECOND, STRINGS
from bench.two_nodes import NodesFailedError

from penstock.control.locality.locality_decision import LocalityDecision
from penstock.control.locality.tables import TableRules
from penstock.locality.loop import LocalityLoop, LoopRules
from penstock.locality.record import TablesBrought
from penstock.locality.routed_plan import routed_plan
from penstock.locality.seen import LocalitySeen
from penstock_operator.partitioning.choice import installed_partitioner

RULES = LoopRules(tables=TableRules(records_min=500), every_s=1.0, rest_s=3600.0, measure_s=10.0)
"""As in production, but for fewer records and no next change: the paper has a table each ten minutes of a run
of thirty, here it is one in half a minute."""
LOOK_S = 0.25
DECIDED_WITHIN_S = 60.0
BUCKET_S = 0.5
SETTLE_S = 1.0
"""What comes so soon behind a change is of it still."""


@dataclass(frozen=True, slots=True)
class Load:
    """`rate_per_s` is what a host's source makes at most; `seconds` go by before and behind the change."""

    bits_per_s: int
    padding_bytes: int
    rate_per_s: float
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Reconfigured:
    """One run. Rates are records a second over all hosts; `per_s` by buckets of `BUCKET_S`, in which the
    change begins at `change_s` and is carried out after `took_s`. `gaps_ms` are the longest of each key
    during it, `gaps_before_ms` those in as much time before."""

    hosts: int
    load: Load
    before_per_s: float
    behind_per_s: float
    local_before: float
    local_behind: float
    promised: float
    per_s: Sequence[float]
    change_s: float
    took_s: float
    keys_moved: int
    gaps_ms: Sequence[float]
    gaps_before_ms: Sequence[float]
    rows: int


@dataclass
class _Kept:
    """Keeps the port `TableDecisionKeeper`."""

    decided: list[LocalityDecision] = field(default_factory=list)
    brought: list[TablesBrought] = field(default_factory=list)

    def tables_decided(self, decision: LocalityDecision, *, dry_run: bool) -> int:
        self.decided.append(decision)
        return len(self.decided)

    def tables_brought(self, outcome: TablesBrought) -> None:
        self.brought.append(outcome)


def reconfigured(hosts: int, load: Load, folder: Path) -> Reconfigured:
    """One run with one change. Raises NodesFailedError, also for a row that is lost or there twice."""
    kept = _Kept()
    with Network(hosts) as network, System(folder, network.hosts, STRINGS, sink=True) as system:
        loop = LocalityLoop(
            routed_plan(system.plan), installed_partitioner(), kept, rules=RULES, seed=load.seed
        )
        system.set_stream(tags.stream(hosts, load.padding_bytes, load.rate_per_s, load.seed))
        started(system)
        network.throttle(load.bits_per_s)
        time.sleep(load.seconds)
        begun_s, moved = _change(system, loop)
        over_s = time.time()
        time.sleep(max(load.seconds, RULES.measure_s + 12.0))
        end_s = time.time()
        loop.turn(_seen(system, loop))
        local_behind = next(line.local_share for line in loop.lines())
        with system.paused():
            # Sources go on behind this, until all is stopped.
            rows, outputs = system.check_nothing_lost(), read_outputs(folder)
    if outputs.rows() != rows:
        raise NodesFailedError(f"{rows} rows were read, the sink has {outputs.rows()}")
    (decision,) = [one for one in kept.decided if one.action is not None]
    assert decision.without is not None
    assert decision.expected is not None
    gaps, before = gaps_ms(outputs, begun_s, over_s + SETTLE_S, load.seconds / 2)
    start_s = begun_s - load.seconds
    return Reconfigured(
        hosts=hosts,
        load=load,
        before_per_s=float(outputs.per_s(begun_s - load.seconds / 2, begun_s, load.seconds / 2)[0]),
        behind_per_s=float(outputs.per_s(end_s - load.seconds / 2, end_s, load.seconds / 2)[0]),
        local_before=decision.without.local_share,
        local_behind=local_behind if local_behind is not None else float("nan"),
        promised=decision.expected.local_share,
        per_s=outputs.per_s(start_s, end_s, BUCKET_S).tolist(),
        change_s=begun_s - start_s,
        took_s=over_s - begun_s,
        keys_moved=moved,
        gaps_ms=gaps,
        gaps_before_ms=before,
        rows=rows,
    )


def gaps_ms(
    outputs: Outputs, start_s: float, end_s: float, control_s: float = float("inf")
) -> tuple[list[float], list[float]]:
    """The longest gaps of all keys in a time, and in as much time before it, or `control_s` where that is
    less."""
    during = outputs.longest_gaps_ms(start_s, end_s)
    before = outputs.longest_gaps_ms(start_s - min(control_s, end_s - start_s), start_s)
    return list(during.values()), list(before.values())


def _change(system: System, loop: LocalityLoop) -> tuple[float, int]:
    """Look until tables are made, and carry them out: when that began, and how many keys moved."""
    begun_s, moved = 0.0, 0
    until_s = time.monotonic() + DECIDED_WITHIN_S
    while not begun_s or loop.under_way or (loop.version(FIRST) + loop.version(SECOND)) == 0:
        system.nodes.check()
        turn = loop.turn(_seen(system, loop))
        if turn.table is not None:
            begun_s = begun_s or time.time()
            system.put_table(turn.table.operator, turn.table.table)
            loop.recorded(turn.table.operator, turn.table.table)
            moved += len(turn.table.table.moves)
        elif not begun_s and time.monotonic() > until_s:
            reason = loop.last.reason if loop.last is not None else "nothing was looked at"
            raise NodesFailedError(f"no table was made within {DECIDED_WITHIN_S:.0f} s: {reason}")
        time.sleep(LOOK_S if begun_s else RULES.every_s)
    return begun_s, moved


def _seen(system: System, loop: LocalityLoop) -> LocalitySeen:
    return LocalitySeen(
        at_us=time.time_ns() // 1000,
        rows=system.pairs(),
        tasks={
            name: {one.name: one.tasks for one in system.nodes.schedules[name].executors}
            for name in loop.counting
        },
        homes=system.homes(),
        counts=system.nodes.counts(),
        capacity=dict.fromkeys(system.nodes.nodes, 1.0),
        state_bytes=system.state_bytes(),
    )


def quantile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(values, share)) if values else float("nan")
