"""Tables that are kept: counts are read, a table follows another one, and what they bring is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pytest

from penstock.control.locality.greedy_partitioner import greedy_partition
from penstock.control.locality.locality_decision import LocalityDecision
from penstock.control.locality.pair_summary import Pair, PairSummary
from penstock.control.locality.pairs_row import PairsRow, pack_row, row_name
from penstock.control.locality.summary_wire import pack_summary
from penstock.control.locality.tables import TableRules
from penstock.dataflow.routing_table import RoutingTable, content_of, content_text, decode_table
from penstock.locality.counted import GONE_US, STALE_US, counts_of
from penstock.locality.loop import LocalityLoop, LoopRules, TableToRecord
from penstock.locality.record import TablesBrought
from penstock.locality.routed_plan import RoutedOperator, RoutedPlan
from penstock.locality.seen import LocalitySeen

S = 1_000_000
RULES = LoopRules(tables=TableRules(records_min=100), every_s=10, rest_s=300, measure_s=60, growth=1.0)
LEARNING = replace(RULES, tables=TableRules(records_min=1000), growth=0.02)
SHARDS = 4
TAGS = RoutedOperator("tags", ("bigint",), SHARDS, ("posts",))
LANDS = RoutedOperator("lands", ("bigint",), SHARDS, ("tags",))
PLAN = RoutedPlan((TAGS, LANDS), (("tags", "lands"),))
KEYS = range(12)


@dataclass
class Kept:
    """Decisions that were kept. Keeps the port `TableDecisionKeeper`."""

    decided: list[tuple[LocalityDecision, bool]] = field(default_factory=list)
    brought: list[TablesBrought] = field(default_factory=list)

    def tables_decided(self, decision: LocalityDecision, *, dry_run: bool) -> int:
        self.decided.append((decision, dry_run))
        return len(self.decided)

    def tables_brought(self, outcome: TablesBrought) -> None:
        self.brought.append(outcome)


class World:
    """A topology whose key k of `tags` sends to key k of `lands` alone. Shards are on two `nodes`, those of
    one number of `tags` and `lands` never on the same; what shards have carried out is in `counts`."""

    def __init__(
        self,
        plan: RoutedPlan = PLAN,
        unrouted: frozenset[str] = frozenset(),
        rules: LoopRules = RULES,
    ) -> None:
        self.kept = Kept()
        self.loop = LocalityLoop(plan, greedy_partition, self.kept, unrouted=unrouted, rules=rules)
        self.at_us = 100 * S
        self.nodes = "ab"
        self.counts: dict[str, dict[str, int]] = {}
        self.tables: dict[str, RoutingTable] = {}
        self.local_share = 0.0
        self.tasks = 1
        self.rows_per_task = 1200
        self.keys_named = len(KEYS)
        self.held = ""
        self.records: list[TableToRecord] = []

    def homes(self) -> dict[str, dict[str, str]]:
        return {
            name: {f"{name}/{at}": self.nodes[(at + (name == "lands")) % 2] for at in range(SHARDS)}
            for name in ("posts", "tags", "lands")
        }

    def row(self, task: int = 0, versions: tuple[int, int] | None = None, at_us: int = 0) -> PairsRow:
        pairs: dict[Pair, int] = {((key,), (key,)): 100 for key in KEYS[: self.keys_named]}
        seen = np.array(list(pairs.values()), np.int64)
        summary = PairSummary(self.rows_per_task, 0, tuple(pairs), seen, 0 * seen)
        local = int(self.local_share * 1000)
        now = (self.loop.version("tags"), self.loop.version("lands")) if versions is None else versions
        return PairsRow(
            "tags", "lands", "tags-w0", task, at_us or self.at_us, (at_us or self.at_us) - S, 1.0, now,
            self.rows_per_task, 100 * self.rows_per_task, ((0, 1, local), (0, 0, 1000 - local)),
            pack_summary(summary),
        )  # fmt: skip

    def rows(self) -> dict[str, bytes]:
        return {
            row_name("tags", "lands", "tags-w0", task): pack_row(self.row(task)) for task in range(self.tasks)
        }

    def seen(self, rows: Mapping[str, bytes] | None = None) -> LocalitySeen:
        return LocalitySeen(
            at_us=self.at_us,
            rows=self.rows() if rows is None else rows,
            tasks={"tags": {"tags-w0": self.tasks}},
            homes=self.homes(),
            counts=self.counts,
            capacity={"a": 1.0, "b": 1.0},
            state_bytes={},
            held=self.held,
        )

    def turn(self, after_s: float = 10.0, rows: Mapping[str, bytes] | None = None) -> TableToRecord | None:
        """A look, and its table on record."""
        self.at_us += int(after_s * S)
        assert self.loop.due(self.at_us)
        table = self.loop.turn(self.seen(rows)).table
        if table is not None:
            self.records.append(table)
            self.tables[table.operator] = table.table
            self.loop.recorded(table.operator, table.table)
        return table

    def carry_out(self, operator: str) -> None:
        """Everybody is through with the operator's newest table."""
        table = self.tables[operator]
        for shard in table.producers:
            self.counts.setdefault(shard, {})[f"{operator}/table"] = table.version
        for number in table.changed_shards():
            self.counts.setdefault(f"{operator}/{number}", {})[f"{operator}/moved"] = table.version


def places(world: World, operator: str) -> dict[int, int]:
    """Key -> shard, as the newest table and hashes have it."""
    hashed = {"tags": TAGS, "lands": LANDS}[operator].hashed()
    placed = {key: hashed((key,)) for key in KEYS}
    if operator in world.tables:
        packed = {msgspec.msgpack.decode(key)[0]: shard for key, shard in world.tables[operator].keys}
        placed |= packed
    return placed


def settle(world: World) -> None:
    """Carry out one table after the other."""
    for _ in range(4):
        if world.records and world.loop.version(world.records[-1].operator):
            world.carry_out(world.records[-1].operator)
        if world.turn(1.0) is None:
            return
    raise AssertionError("tables without end")


def test_keys_that_meet_come_to_one_node_a_table_at_a_time() -> None:
    world = World()
    first = world.turn()
    assert first is not None
    assert decode_table(first.content) == first.table
    assert content_of(content_text(first.content)) == first.content
    assert world.turn(1.0) is None, "the first is being carried out"
    assert world.loop.under_way == f"version 1 of the table of {first.operator} is being carried out"
    settle(world)
    tags, lands = places(world, "tags"), places(world, "lands")
    assert all(tags[key] % 2 != lands[key] % 2 for key in KEYS)
    operators = [record.operator for record in world.records]
    assert len(operators) == len(set(operators)), "one for each at the most"
    assert sorted(operators, key=["tags", "lands"].index) == operators
    decision, dry_run = world.kept.decided[0]
    assert (decision.rule, dry_run) == ("gain", False)


def test_a_table_names_all_producers_and_waits_for_all_of_them() -> None:
    world = World()
    first = world.turn()
    assert first is not None
    producers = {"tags": "posts", "lands": "tags"}[first.operator]
    assert first.table.producers == tuple(f"{producers}/{number}" for number in range(SHARDS))
    world.carry_out(first.operator)
    world.counts[f"{producers}/3"].clear()
    assert world.turn(1.0) is None
    assert world.loop.under_way


def test_after_a_change_there_is_rest_and_what_came_is_measured() -> None:
    world = World()
    world.turn()
    settle(world)
    world.local_share = 1.0
    assert world.turn(30.0) is None
    assert not world.kept.brought
    assert world.turn(31.0) is None
    (outcome,) = world.kept.brought
    assert outcome.local_share == pytest.approx(1.0)
    assert outcome.words.startswith("100% was promised")
    line = world.loop.lines()[0]
    assert line.local_share == pytest.approx(1.0)
    assert line.versions == (world.loop.version("tags"), world.loop.version("lands"))


def test_a_change_that_brought_little_makes_the_next_one_wait_for_longer() -> None:
    world = World()
    world.turn()
    settle(world)
    world.turn(61.0)
    assert world.kept.brought[0].share is not None
    assert world.kept.brought[0].share < 0.5
    before = {name: world.loop.version(name) for name in ("tags", "lands")}
    # Loads have gone elsewhere: all keys' shards are on other nodes now.
    world.homes = lambda: {  # type: ignore[method-assign]
        name: {f"{name}/{number}": "ab"[number % 2] for number in range(SHARDS)}
        for name in ("posts", "tags", "lands")
    }
    assert world.turn(400.0) is None, "rest_s is twice as long"
    assert world.kept.decided[-1][0].rule == "resting"
    assert world.turn(300.0) is not None
    assert before != {name: world.loop.version(name) for name in ("tags", "lands")}


def test_no_table_is_begun_while_more_records_name_more_keys() -> None:
    world = World(rules=LEARNING)
    world.keys_named = 6
    assert world.turn() is None
    assert world.kept.decided[-1][0].rule == "learning"
    assert world.turn() is None, "nothing new was counted"
    world.rows_per_task, world.keys_named = 1800, 12
    assert world.turn() is None, "it has grown"
    assert [decision.rule for decision, _ in world.kept.decided] == ["learning"]
    world.rows_per_task = 2000
    assert world.turn() is None, "that is too little more to tell"
    world.rows_per_task = 2700
    assert world.turn() is not None
    settle(world)
    tags, lands = places(world, "tags"), places(world, "lands")
    assert all(tags[key] % 2 != lands[key] % 2 for key in KEYS)


def test_what_was_learned_before_a_table_could_pay_need_not_be_learned_again() -> None:
    world = World(rules=LEARNING)
    world.nodes = "aa"
    for rows in (1200, 1800):
        world.rows_per_task = rows
        assert world.turn() is None
    assert world.kept.decided[-1][0].rule == "one-node"
    world.nodes = "ab"
    world.rows_per_task = 1900
    assert world.turn() is not None


def test_with_very_many_records_nothing_is_waited_for() -> None:
    world = World(rules=LEARNING)
    world.rows_per_task = 20 * LEARNING.tables.records_min
    assert world.turn() is not None


def test_counts_that_begin_anew_are_learned_from_anew() -> None:
    world = World(rules=LEARNING)
    for rows in (1900, 1200):
        world.rows_per_task = rows
        assert world.turn() is None
    world.rows_per_task = 1800
    assert world.turn() is not None


def test_a_dry_run_decides_and_makes_no_table() -> None:
    world = World(replace(PLAN, dry_run=True))
    assert world.turn() is None
    ((decision, dry_run),) = world.kept.decided
    assert dry_run
    assert decision.expected is not None
    assert world.loop.lines()[0].expected == pytest.approx(1.0)
    assert world.loop.version("tags") == world.loop.version("lands") == 0


def test_counts_that_are_missing_hold() -> None:
    world = World()
    world.tasks = 2
    rows = world.rows()
    del rows[row_name("tags", "lands", "tags-w0", 1)]
    assert world.turn(rows=rows) is None
    assert world.kept.decided[-1][0].rule == "missing-counts"
    assert "tags-w0.1" in world.kept.decided[-1][0].reason


@pytest.mark.parametrize("fault", ["stale", "of other tables", "damaged", "of keys that are none"])
def test_a_row_that_tells_nothing_of_now_is_missing(fault: str) -> None:
    world = World()
    name = row_name("tags", "lands", "tags-w0", 0)
    row = world.row(at_us=world.at_us - STALE_US) if fault == "stale" else world.row(versions=(0, 7))
    if fault == "of keys that are none":
        pair = ((("no number",), ("x", "y")),)
        one = np.ones(1, np.int64)
        summary = pack_summary(PairSummary(1, 0, pair, one, 0 * one))
        row = msgspec.structs.replace(world.row(at_us=world.at_us + 10 * S), summary=summary)
    packed = b"junk" if fault == "damaged" else pack_row(row)
    assert world.turn(rows={name: packed}) is None
    assert world.kept.decided[-1][0].rule == "missing-counts"


def test_rows_of_tasks_that_are_long_gone_may_go() -> None:
    world = World()
    old = pack_row(world.row(at_us=2 * S))
    world.at_us = 3 * S + GONE_US
    turn = world.loop.turn(world.seen({**world.rows(), "tags:lands:tags-w9:0": old}))
    assert turn.gone == ("tags:lands:tags-w9:0",)


def test_nothing_is_begun_while_it_is_held_or_too_little_was_counted() -> None:
    world = World()
    world.held = "workers are starting"
    assert world.turn() is None
    assert not world.kept.decided
    world.held = ""
    world.rows_per_task = 50
    assert world.turn(rows={}) is None
    assert world.kept.decided[-1][0].rule == "missing-counts"


def test_a_table_that_is_not_on_record_is_proposed_again() -> None:
    world = World()
    first = world.loop.turn(world.seen()).table
    assert first is not None
    world.at_us += S
    again = world.loop.turn(world.seen()).table
    assert again == first
    assert world.loop.version(first.operator) == 0


def test_tables_of_earlier_times_are_gone_on_from() -> None:
    world = World()
    world.loop.recorded("lands", RoutingTable(7, (), (), ()))
    table = world.turn()
    while table is not None and table.operator != "lands":
        world.carry_out(table.operator)
        table = world.turn(1.0)
    assert table is None or table.table.version == 8
    world.loop.recorded("lands", RoutingTable(3, (), (), ()))
    assert world.loop.version("lands") >= 7


def test_keys_of_who_asks_for_tables_no_more_go_back_by_an_empty_one() -> None:
    world = World()
    world.turn()
    settle(world)
    placed = dict(world.tables)
    assert any(table.keys for table in placed.values())
    after = World(RoutedPlan((TAGS, LANDS), ()), unrouted=frozenset({"tags", "lands"}))
    after.counts = world.counts
    for name, table in placed.items():
        after.tables[name] = table
        after.loop.recorded(name, table)
    for name, table in placed.items():
        if table.keys:
            emptied = after.turn(1.0)
            assert emptied is not None
            assert emptied.operator == name
            assert emptied.table.keys == ()
            assert {move.target for move in emptied.table.moves} <= set(range(SHARDS))
            assert after.turn(1.0) is None, "it is not carried out"
            after.carry_out(name)
            bare = after.turn(1.0)
            assert bare is not None
            assert (bare.operator, bare.table.version) == (name, emptied.table.version + 1)
            assert bare.table.is_bare
            assert bare.table.producers == ()
    assert after.turn(1.0) is None
    assert not after.loop.under_way


def test_a_row_that_an_executor_left_on_another_node_is_older_than_its_own() -> None:
    world = World()
    world.at_us += 10 * S
    older = pack_row(world.row(at_us=world.at_us - S, versions=(9, 9)))
    own = pack_row(world.row())
    for rows in ({"a/tags": older, "b/tags": own}, {"a/tags": own, "b/tags": older}):
        counts = counts_of(
            world.seen(rows), PLAN.edges, {}, {one.operator: one.hashed() for one in PLAN.operators}
        )
        assert [edge.missing for edge in counts.edges] == [()]


@pytest.mark.parametrize(
    "table",
    [
        RoutingTable(1, ((msgspec.msgpack.encode((1,)), SHARDS),), (), ()),
        RoutingTable(1, ((msgspec.msgpack.encode((1, 2)), 0),), (), ()),
        RoutingTable(1, ((b"\xc1", 0),), (), ()),
    ],
)
def test_a_table_that_cannot_be_of_its_operator_is_passed_over(table: RoutingTable) -> None:
    world = World()
    world.loop.recorded("lands", table)
    assert world.loop.version("lands") == 0
