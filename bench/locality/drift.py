"""Figures 11 and 12 of the paper: locality and evenness over drifting weeks, and by how many pairs are known.

Penstock's own counters, rows of counts, loop and tables work on the weeks of `drift_stream`; only that rows
come out of a generator, and a table is carried out at once. Each host has a task that counts the pairs of the
locations that are there, by lot and in its 1 MiB, as tasks do. A week stands for the ten minutes that a table
is reckoned to last: online has the loop decide at the end of each, offline after the first one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec
import numpy as np
from bench.locality.drift_stream import DriftShape, DriftStream, Numbers, Week
from bench.locality.topology import FIRST, SECOND, SHARDS_EACH, SOURCE, STRINGS, locality_plan

from penstock.control.locality.batch_sampling import BatchSampling
from penstock.control.locality.key_graph import CountedEdge
from penstock.control.locality.locality_decision import LocalityDecision
from penstock.control.locality.pair_counter import PairCounter
from penstock.control.locality.pair_summary import PairSummary
from penstock.control.locality.pairs_row import PairsRow, pack_row, row_name
from penstock.control.locality.scene import OperatorHomes
from penstock.control.locality.summary_wire import pack_summary
from penstock.control.locality.tables import LocalityLook, TableRules, decide_tables
from penstock.dataflow.routing_table import begun_count, moved_count, routed_count
from penstock.dataflow.wire_keys import wire_router
from penstock.locality.loop import LocalityLoop, LoopRules
from penstock.locality.record import TablesBrought
from penstock.locality.routed_plan import routed_plan
from penstock.locality.seen import LocalitySeen
from penstock_operator.partitioning.choice import installed_partitioner
from penstock_worker.stages.pair_counts import SHARE

WEEK_S = 600.0
RECORD_BYTES = 1000.0
"""A tweet with what is around it."""
STATE_BYTES = 64.0
"""A key's count, with its name."""
BATCH_ROWS = 64
HASH, OFFLINE, ONLINE = "hash", "offline", "online"
MODES = (HASH, OFFLINE, ONLINE)
_RULES = LoopRules(every_s=0.0, rest_s=0.0, measure_s=0.0, growth=1.0)

_decode_key = msgspec.msgpack.Decoder(tuple[str]).decode


@dataclass(frozen=True, slots=True)
class WeekFigures:
    """`imbalance` is how much more than the mean the fullest host gets of an operator's records; `expected`
    what the table that was in use promised when it was made, NaN for none; `keys` how many it has."""

    locality: float
    imbalance: float
    expected: float
    keys: int


@dataclass
class _Decisions:
    """Keeps the port `TableDecisionKeeper`."""

    made: list[LocalityDecision] = field(default_factory=list)

    def tables_decided(self, decision: LocalityDecision, *, dry_run: bool) -> int:
        self.made.append(decision)
        return len(self.made)

    def tables_brought(self, outcome: TablesBrought) -> None:
        """Figures are measured apart."""


class Names:
    """Locations and tags of all weeks as keys, with their shards by hash."""

    def __init__(self, weeks: Sequence[Week], hosts: int) -> None:
        self.keys = {
            FIRST: [(f"place-{n}",) for n in range(1 + max(int(week.location.max()) for week in weeks))],
            SECOND: [(f"tag-{n}",) for n in range(1 + max(int(week.tag.max()) for week in weeks))],
        }
        self.hashed = {
            operator: np.array(list(map(wire_router(("string",), hosts * SHARDS_EACH), keys)), np.int64)
            for operator, keys in self.keys.items()
        }


class _Run:
    """One system on `hosts` hosts."""

    def __init__(self, hosts: int, names: Names, seed: int) -> None:
        self.hosts = hosts
        self._names = names
        self._decisions = _Decisions()
        plan = locality_plan(hosts, STRINGS, sink=False)
        self._loop = LocalityLoop(
            routed_plan(plan), installed_partitioner(), self._decisions, rules=_RULES, seed=seed
        )
        self._counters = [PairCounter() for _ in range(hosts)]
        self._lots = [BatchSampling(SHARE, Random(f"{seed}.{host}")) for host in range(hosts)]
        self.shards = dict(names.hashed)
        self.expected = float("nan")
        self._at_us = 0

    @property
    def keys(self) -> int:
        return sum(len(table.keys) for table in self._loop.tables().values())

    def figures(self, week: Week) -> WeekFigures:
        here, there = self._shards_of(week)
        return WeekFigures(
            *measured(here % self.hosts, there % self.hosts, self.hosts), self.expected, self.keys
        )

    def count_and_decide(self, week: Week) -> None:
        """Counts begin anew with each week, as with each table."""
        since_us, self._at_us = self._at_us, self._at_us + int(WEEK_S * 1e6)
        rows = self._counted(week, since_us)
        decided = len(self._decisions.made)
        while (turn := self._loop.turn(self._seen(rows))).table is not None:
            self._loop.recorded(turn.table.operator, turn.table.table)
            self._at_us += 1
        for operator, table in self._loop.tables().items():
            found = self._names.hashed[operator].copy()
            for packed, shard in table.keys:
                found[int(_decode_key(packed)[0].split("-")[1])] = shard
            self.shards[operator] = found
        for decision in self._decisions.made[decided:]:
            if decision.action is not None and decision.expected is not None:
                self.expected = decision.expected.local_share

    def _shards_of(self, week: Week) -> tuple[Numbers, Numbers]:
        return self.shards[FIRST][week.location], self.shards[SECOND][week.tag]

    def _counted(self, week: Week, since_us: int) -> dict[str, bytes]:
        """The rows that tasks leave."""
        here, there = self._shards_of(week)
        versions = (self._loop.version(FIRST), self._loop.version(SECOND))
        rows = {}
        for host, counter in enumerate(self._counters):
            counter.reset()
            mine = np.flatnonzero(here % self.hosts == host)
            batches = [mine[at : at + BATCH_ROWS] for at in range(0, len(mine), BATCH_ROWS)]
            taken = np.concatenate([batch for batch in batches if self._lots[host].is_due()])
            for at in range(0, len(taken), BATCH_ROWS):
                batch = taken[at : at + BATCH_ROWS]
                counter.count(
                    [self._names.keys[FIRST][n] for n in week.location[batch].tolist()],
                    [self._names.keys[SECOND][n] for n in week.tag[batch].tolist()],
                )
            shards = self.hosts * SHARDS_EACH
            pairs, counts = np.unique(here[taken] * shards + there[taken], return_counts=True)
            executor = f"{FIRST}-w{host}"
            row = PairsRow(
                upstream=FIRST,
                downstream=SECOND,
                executor=executor,
                task=0,
                at_us=self._at_us,
                since_us=since_us,
                share=SHARE,
                versions=versions,
                rows=len(taken),
                sent_bytes=int(len(taken) * RECORD_BYTES),
                flows=tuple(
                    (pair // shards, pair % shards, count)
                    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True)
                ),
                summary=pack_summary(counter.summary()),
            )
            rows[row_name(FIRST, SECOND, executor, 0)] = pack_row(row)
        return rows

    def _seen(self, rows: dict[str, bytes]) -> LocalitySeen:
        tables = self._loop.tables()
        carried_out = {
            name(operator): table.version
            for operator, table in tables.items()
            for name in (routed_count, begun_count, moved_count)
        }
        homes = {
            operator: {f"{operator}/{shard}": f"n{shard % self.hosts}" for shard in range(shards)}
            for operator, shards in (
                (SOURCE, self.hosts),
                (FIRST, self.hosts * SHARDS_EACH),
                (SECOND, self.hosts * SHARDS_EACH),
            )
        }
        return LocalitySeen(
            at_us=self._at_us,
            rows=rows,
            tasks={FIRST: {f"{FIRST}-w{host}": 1 for host in range(self.hosts)}},
            homes=homes,
            counts={shard: carried_out for shards in homes.values() for shard in shards},
            capacity={f"n{host}": 1.0 for host in range(self.hosts)},
            state_bytes={name: len(keys) * STATE_BYTES for name, keys in self._names.keys.items()},
        )


def measured(here: Numbers, there: Numbers, hosts: int) -> tuple[float, float]:
    """(locality, imbalance) of records by their hosts at both operators."""
    loads = [np.bincount(at, minlength=hosts) for at in (here, there)]
    return float((here == there).mean()), max(float(load.max() / load.mean()) for load in loads) - 1


def over_weeks(shape: DriftShape, weeks: int, hosts: int, seed: int) -> dict[str, list[WeekFigures]]:
    """Figure 11: figures of each week, by mode."""
    drawn = list(DriftStream(shape, seed).weeks(weeks))
    names = Names(drawn, hosts)
    found = {}
    for mode in MODES:
        run = _Run(hosts, names, seed)
        figures = []
        for number, week in enumerate(drawn):
            figures.append(run.figures(week))
            if mode == ONLINE or (mode == OFFLINE and number == 0):
                run.count_and_decide(week)
        found[mode] = figures
    return found


def by_pairs_kept(
    shape: DriftShape, kept: Sequence[int], hosts: Sequence[int], seed: int
) -> dict[int, list[tuple[int, float]]]:
    """Figure 12: hosts -> (pairs kept, locality of the week behind), with the most frequent pairs of a week
    counted exactly, as the paper has it. The last point has all pairs."""
    first, second = DriftStream(shape, seed).weeks(2)
    found: dict[int, list[tuple[int, float]]] = {}
    for count in hosts:
        names = Names((first, second), count)
        tags = len(names.keys[SECOND])
        pairs, counts = np.unique(first.location * tags + first.tag, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        pairs, counts = pairs[order], counts[order]
        for size in (*(one for one in kept if one < len(pairs)), len(pairs)):
            summary = PairSummary(
                records=len(first.tag),
                floor=int(counts[size]) if size < len(pairs) else 0,
                pairs=tuple(
                    (names.keys[FIRST][pair // tags], names.keys[SECOND][pair % tags])
                    for pair in pairs[:size].tolist()
                ),
                counts=counts[:size],
                errors=np.zeros(size, np.int64),
            )
            found.setdefault(count, []).append((size, _after(summary, names, count, second, seed)))
    return found


def _after(summary: PairSummary, names: Names, hosts: int, week: Week, seed: int) -> float:
    """Locality of a week with tables that were made of a summary."""
    homes = {
        operator: OperatorHomes(
            operator,
            [f"n{shard % hosts}" for shard in range(hosts * SHARDS_EACH)],
            wire_router(("string",), hosts * SHARDS_EACH),
            {},
            STATE_BYTES,
        )
        for operator in (FIRST, SECOND)
    }
    edge = CountedEdge(FIRST, SECOND, summary, summary.records / WEEK_S, RECORD_BYTES)
    look = LocalityLook(0, (edge,), homes, {f"n{host}": 1.0 for host in range(hosts)})
    decision = decide_tables(look, installed_partitioner(), TableRules(), seed)
    shards = {operator: found.copy() for operator, found in names.hashed.items()}
    for operator, table in (decision.action.tables if decision.action is not None else {}).items():
        for key, shard in table.items():
            shards[operator][int(str(key[0]).split("-")[1])] = shard
    return measured(shards[FIRST][week.location] % hosts, shards[SECOND][week.tag] % hosts, hosts)[0]
