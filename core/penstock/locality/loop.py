"""Keeps the routing tables of one topology: looks at counts, decides, hands out one table after the other,
and measures what that brought.

No I/O, no clock. Who calls (`penstock run`, the cluster's operator) makes looks, records a table that is
handed out and brings it into all stores, and says so by `recorded`; from there on commits switch by
themselves (decision 0053). A table follows only when the one before is carried out everywhere, also that of
another operator. So at most one reconfiguration is under way. Neighbours: `counted` reads counts,
`control.locality.tables` decides, `record` is what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from penstock.control.locality.key_graph import CountedEdge
from penstock.control.locality.locality_decision import (
    ChangeTables,
    LocalityDecision,
    TableTreatment,
    brought,
    promise_words,
)
from penstock.control.locality.partitioner import Partitioner
from penstock.control.locality.scene import OperatorHomes, Table
from penstock.control.locality.tables import LocalityLook, TableRules, decide_tables
from penstock.dataflow.routing_table import (
    CONTENT_TEXT_MAX,
    RoutingTable,
    bare_table,
    content_text,
    encode_table,
    is_carried_out,
    next_table,
)
from penstock.locality.counted import Counts, EdgeCounts, counts_of
from penstock.locality.learning import Learning
from penstock.locality.record import EdgeLine, TableDecisionKeeper, TablesBrought
from penstock.locality.routed_plan import RoutedOperator, RoutedPlan
from penstock.locality.seen import LocalitySeen
from penstock.store.codec import pack

_decode_key = msgspec.msgpack.Decoder(tuple).decode
_FEW = 0.01
"""An edge with less than this part of what was counted does not keep the others waiting."""
_HELPED = 0.5
"""Of the promised gain: less than that, and the next table has to wait for twice as long."""
_REST_TIMES_MAX = 8
_SHOWN_AGAIN_US = 60_000_000
"""A decision that is not carried out is kept when another rule makes it, in a dry run again after so long."""
_KEYS_LEAST = 16
"""Tables are made of half as many keys until they fit; not of fewer than these."""
_MEASURE_TIMES = 10
"""What a change brought is not waited for longer than so many times its time."""


@dataclass(frozen=True, slots=True)
class LoopRules:
    """`every_s`: how often it is decided. `rest_s`: so long after a table was carried out there is no next
    one. `measure_s`: what a change brought is measured over this time. `growth`: of the local share; no table
    is begun while half as many records more promise more than this (`learning`)."""

    tables: TableRules = TableRules()  # noqa: RUF009 - frozen
    every_s: float = 10.0
    rest_s: float = 300.0
    measure_s: float = 60.0
    growth: float = 0.02


@dataclass(frozen=True, slots=True)
class TableToRecord:
    """The next table of an operator, to be recorded and brought into every store."""

    operator: str
    table: RoutingTable
    content: bytes


@dataclass(frozen=True, slots=True)
class LocalityTurn:
    """What came of a look. `events` are sentences for people; rows of counted pairs called `gone` may go."""

    table: TableToRecord | None = None
    events: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(slots=True)
class _Change:
    """One decision as it is carried out: operators that wait for their tables, first things first."""

    decision: LocalityDecision
    number: int
    begun_us: int
    waiting: list[tuple[str, Mapping[bytes, int]]]
    over_us: int | None = None
    """When the last of them was carried out."""


class LocalityLoop:
    """Of one topology. `unrouted` are operators of `plan` that are to go by their hash again: each is done
    with once its table is bare. `seed` says how ties are broken in divisions."""

    def __init__(
        self,
        plan: RoutedPlan,
        partition: Partitioner,
        keeper: TableDecisionKeeper,
        *,
        unrouted: frozenset[str] = frozenset(),
        rules: LoopRules = LoopRules(),
        seed: int = 0,
    ) -> None:
        self._plan = plan
        self._operators = {each.operator: each for each in plan.operators}
        self._hashed = {name: each.hashed() for name, each in self._operators.items()}
        self._partition = partition
        self._keeper = keeper
        self._unrouted = unrouted
        self._rules = rules
        self._learning = Learning(rules.growth, rules.tables.records_min)
        self._seed = seed
        self._tables: dict[str, RoutingTable] = {}
        self._keys: dict[str, Table] = {}
        self._change: _Change | None = None
        self._decided_us: int | None = None
        self._rest_until_us = 0
        self._rest_times = 1
        self._shown: dict[tuple[str, ...], tuple[str, int]] = {}
        """Operators -> rule of the decision about them that was kept last, and when."""
        self._last: LocalityDecision | None = None
        self._lines: dict[tuple[str, str], EdgeLine] = {}
        self._under_way = ""
        self._events: list[str] = []

    @property
    def operators(self) -> tuple[str, ...]:
        """Those that have tables, or may."""
        return tuple(self._operators)

    @property
    def counting(self) -> tuple[str, ...]:
        """The operators whose tasks count."""
        return tuple(dict.fromkeys(upstream for upstream, _ in self._plan.edges))

    @property
    def producers(self) -> tuple[str, ...]:
        """The operators of all shards that it has to know of."""
        named = [name for each in self._plan.operators for name in (*each.producers, each.operator)]
        return tuple(dict.fromkeys(named))

    @property
    def last(self) -> LocalityDecision | None:
        """The last decision, whatever came of it."""
        return self._last

    @property
    def under_way(self) -> str:
        """The table that is being carried out, in words; "" for none, as far as was looked."""
        return self._under_way

    def version(self, operator: str) -> int:
        table = self._tables.get(operator)
        return 0 if table is None else table.version

    def tables(self) -> Mapping[str, RoutingTable]:
        """Operator -> the newest table that is on record, of those that have one."""
        return dict(self._tables)

    def lines(self) -> tuple[EdgeLine, ...]:
        """The edges as people are shown them, as they were last looked at."""
        return tuple(
            self._lines.get(edge)
            or EdgeLine(*edge, None, None, None, (self.version(edge[0]), self.version(edge[1])), False)
            for edge in self._plan.edges
        )

    def recorded(self, operator: str, table: RoutingTable) -> None:
        """A table is on record, and comes into the stores. Also of earlier ones, at the beginning; one that
        does not fit its operator is none of ours, and passed over."""
        known = self._operators.get(operator)
        if known is None or table.version <= self.version(operator) or not known.fits(table):
            return
        self._tables[operator] = table
        self._keys[operator] = {_decode_key(packed): shard for packed, shard in table.keys}
        self._under_way = _carrying_out(operator, table)
        if self._change is not None:
            self._change.waiting = [one for one in self._change.waiting if one[0] != operator]

    def due(self, now_us: int) -> bool:
        """Whether a look is wanted: at intervals, and more often while something is under way."""
        if self._decided_us is None:
            return True
        pause_s = min(1.0, self._rules.every_s) if self._is_busy else self._rules.every_s
        return now_us >= self._decided_us + int(pause_s * 1e6)

    def turn(self, seen: LocalitySeen) -> LocalityTurn:
        """Take a look, and say what is to be done."""
        self._decided_us = seen.at_us
        self._events = []
        versions = {name: self.version(name) for name in self._operators}
        counts = counts_of(seen, self._plan.edges, versions, self._hashed)
        self._under_way = self._unfinished(seen)
        table = None if self._under_way or seen.held else self._next(seen, counts)
        self._look_at_edges(counts)
        return LocalityTurn(table, tuple(self._events), counts.gone)

    # --- what is under way

    @property
    def _is_busy(self) -> bool:
        change = self._change
        return bool(self._under_way) or (change is not None and change.over_us is None)

    def _unfinished(self, seen: LocalitySeen) -> str:
        for name, table in self._tables.items():
            if not is_carried_out(name, table, seen.counts):
                return _carrying_out(name, table)
        return ""

    def _next(self, seen: LocalitySeen, counts: Counts) -> TableToRecord | None:
        """The next table, while none is under way."""
        if (emptied := self._emptied(seen)) is not None:
            return emptied
        change = self._change
        if change is not None and change.over_us is None:
            if (table := self._next_waiting(seen, change)) is not None:
                return table
            change.over_us = seen.at_us
            self._rest(seen.at_us)
            self._events.append(f"tables #{change.number} are carried out")
        if change is not None and change.over_us is not None:
            self._measure(change, seen, counts)
        return self._decide(seen, counts)

    def _emptied(self, seen: LocalitySeen) -> TableToRecord | None:
        """The empty table of an operator that is to have none any more, and the bare one behind it."""
        for name in self._operators:
            table = self._tables.get(name)
            if name not in self._unrouted or table is None or table.is_bare:
                continue
            if table.keys:
                self._events.append(f"keys of {name} go back to where their hash says")
                return self._following(seen, name, {})
            self._events.append(f"keys of {name} are back where their hash says")
            bare = bare_table(table)
            return TableToRecord(name, bare, encode_table(bare))
        return None

    def _following(self, seen: LocalitySeen, name: str, keys: Mapping[bytes, int]) -> TableToRecord | None:
        """The table with `keys` that follows; None where it would be the one that there is."""
        operator, before = self._operators[name], self._tables.get(name)
        if keys == (dict(before.keys) if before is not None else {}):
            return None
        hashed = self._hashed[name]
        table = next_table(
            before,
            keys,
            lambda packed: hashed(_decode_key(packed)),
            seen.shards_of(operator.producers),
        )
        return TableToRecord(name, table, encode_table(table))

    def _rest(self, now_us: int) -> None:
        self._rest_until_us = now_us + int(self._rules.rest_s * self._rest_times * 1e6)

    def _measure(self, change: _Change, seen: LocalitySeen, counts: Counts) -> None:
        """What a change brought, once it was carried out for long enough."""
        if change.over_us is None or seen.at_us < change.over_us + int(self._rules.measure_s * 1e6):
            return
        edges = [
            edge for edge in counts.edges if {edge.upstream, edge.downstream} <= {*change.decision.operators}
        ]
        shares = [
            (edge.local_share, edge.counted.bytes_per_s) for edge in edges if edge.local_share is not None
        ]
        whole = sum(size for _, size in shares)
        if any(edge.missing for edge in edges) or whole <= 0:
            if seen.at_us >= change.over_us + int(_MEASURE_TIMES * self._rules.measure_s * 1e6):
                self._change = None
            return
        outcome = brought(change.decision, sum(share * size for share, size in shares) / whole)
        helped = outcome.share is not None and outcome.share >= _HELPED
        self._rest_times = 1 if helped else min(_REST_TIMES_MAX, 2 * self._rest_times)
        self._rest(change.over_us)
        words = promise_words(outcome)
        took_us = change.over_us - change.begun_us
        self._keeper.tables_brought(
            TablesBrought(change.number, took_us, outcome.local_share, outcome.share, words)
        )
        self._events.append(f"tables #{change.number}: {words}")
        self._change = None

    # --- deciding

    def _decide(self, seen: LocalitySeen, counts: Counts) -> TableToRecord | None:
        is_resting = self._change is not None or seen.at_us < self._rest_until_us
        for edges in _joined(counts.edges):
            names = {name for edge in edges for name in (edge.upstream, edge.downstream)}
            if names & self._unrouted:
                continue
            decision = self._decision(seen, edges)
            self._last = decision
            is_learned = self._learning.is_done(decision)
            if decision.action is None:
                self._show(decision, dry_run=False)
            elif not is_learned:
                why = "with more records it may be a better one"
                self._show(_held_back(decision, "learning", why), dry_run=False)
            elif self._plan.dry_run:
                self._show(decision, dry_run=True)
            elif is_resting:
                self._show(_held_back(decision, "resting", "the last tables are too young"), dry_run=False)
            else:
                return self._begin(seen, decision, decision.action)
        return None

    def _decision(self, seen: LocalitySeen, edges: Sequence[EdgeCounts]) -> LocalityDecision:
        """With tables that are not larger than a content may be."""
        counted = [edge.counted for edge in edges]
        records = sum(edge.summary.records for edge in counted)
        told = [edge for edge in counted if edge.summary.records >= _FEW * records]
        names = dict.fromkeys(name for edge in told for name in (edge.upstream, edge.downstream))
        look = LocalityLook(
            at_us=seen.at_us,
            edges=tuple(told),
            homes={name: self._homes(seen, self._operators[name], told) for name in names},
            capacity=seen.capacity,
            missing=tuple(name for edge in edges for name in edge.missing),
        )
        rules = self._rules.tables
        while True:
            decision = decide_tables(look, self._partition, rules, self._seed)
            if decision.action is None or self._fits(seen, decision.action):
                return decision
            if rules.keys_max < _KEYS_LEAST:
                return _held_back(decision, "too-large", "the tables are too large for a Schedule")
            rules = replace(rules, keys_max=rules.keys_max // 2)

    def _fits(self, seen: LocalitySeen, change: ChangeTables) -> bool:
        """Whether each table's content, with the keys that move, is as small as a Schedule's has to be."""
        tables = (self._following(seen, name, _packed(table)) for name, table in change.tables.items())
        return all(table is None or len(content_text(table.content)) <= CONTENT_TEXT_MAX for table in tables)

    def _homes(
        self, seen: LocalitySeen, operator: RoutedOperator, edges: Sequence[CountedEdge]
    ) -> OperatorHomes:
        name = operator.operator
        homes = seen.homes.get(name, {})
        keys = {
            pair[edge.downstream == name]
            for edge in edges
            if name in (edge.upstream, edge.downstream)
            for pair in edge.summary.pairs
        }
        return OperatorHomes(
            name,
            [homes.get(operator.shard(number), "") for number in range(operator.shards)],
            self._hashed[name],
            self._keys.get(name, {}),
            # At the most: keys that nobody named have state too.
            seen.state_bytes.get(name, 0.0) / max(1, len(keys)),
        )

    def _begin(
        self, seen: LocalitySeen, decision: LocalityDecision, action: ChangeTables
    ) -> TableToRecord | None:
        number = self._keeper.tables_decided(decision, dry_run=False)
        self._events.append(f"tables #{number}: {decision.reason}")
        waiting: list[tuple[str, Mapping[bytes, int]]] = [
            (name, _packed(action.tables[name])) for name in self._operators if name in action.tables
        ]
        self._change = _Change(decision, number, seen.at_us, waiting)
        self._learning.forget()
        return self._next_waiting(seen, self._change)

    def _next_waiting(self, seen: LocalitySeen, change: _Change) -> TableToRecord | None:
        """The next table of a change; those that would be as they are need none."""
        while change.waiting:
            name, keys = change.waiting[0]
            table = self._following(seen, name, keys)
            if table is not None:
                return table
            change.waiting.pop(0)
        return None

    def _show(self, decision: LocalityDecision, *, dry_run: bool) -> None:
        """One that is not carried out: kept when another rule makes it, and now and then."""
        rule, at_us = self._shown.get(decision.operators, ("", 0))
        if rule == decision.rule and not (dry_run and decision.at_us >= at_us + _SHOWN_AGAIN_US):
            return
        self._shown[decision.operators] = decision.rule, decision.at_us
        number = self._keeper.tables_decided(decision, dry_run=dry_run)
        if dry_run:
            self._events.append(f"dry run: tables #{number}: {decision.reason}")

    # --- showing

    def _look_at_edges(self, counts: Counts) -> None:
        by_hash, expected = _shares(self._last, by_hash=True), _shares(self._last, by_hash=False)
        for edge in counts.edges:
            name = f"{edge.upstream} to {edge.downstream}"
            self._lines[edge.upstream, edge.downstream] = EdgeLine(
                edge.upstream,
                edge.downstream,
                edge.local_share,
                by_hash.get(name),
                expected.get(name),
                (self.version(edge.upstream), self.version(edge.downstream)),
                self._is_busy,
            )


def _carrying_out(operator: str, table: RoutingTable) -> str:
    return f"version {table.version} of the table of {operator} is being carried out"


def _packed(table: Table) -> dict[bytes, int]:
    return {pack(key): shard for key, shard in table.items()}


def _held_back(decision: LocalityDecision, rule: str, why: str) -> LocalityDecision:
    """The same, and nothing is done."""
    return replace(
        decision,
        treatment=TableTreatment.HOLD,
        rule=rule,
        reason=f"{decision.reason}; but {why}",
        action=None,
    )


def _shares(decision: LocalityDecision | None, *, by_hash: bool) -> dict[str, float]:
    if decision is None:
        return {}
    prediction = decision.by_hash if by_hash else decision.expected
    return dict(prediction.edges) if prediction is not None else {}


def _joined(edges: Sequence[EdgeCounts]) -> list[list[EdgeCounts]]:
    """Edges that share operators, directly or by others, together."""
    groups: list[tuple[set[str], list[EdgeCounts]]] = []
    for edge in edges:
        names, mine = {edge.upstream, edge.downstream}, [edge]
        apart = []
        for known, others in groups:
            if known & names:
                names |= known
                mine = [*others, *mine]
            else:
                apart.append((known, others))
        groups = [*apart, (names, mine)]
    return [mine for _, mine in groups]
