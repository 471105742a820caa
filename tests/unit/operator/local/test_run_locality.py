"""Routing tables of a run: one of earlier times is gone on with, and taken back where none is asked for."""

from __future__ import annotations

from penstock.control.locality.greedy_partitioner import greedy_partition
from penstock.control.locality.locality_decision import LocalityDecision
from penstock.dataflow.routing_table import RoutingTable, encode_table, next_table
from penstock.dataflow.wire_keys import wire_router
from penstock.locality.loop import LocalityLoop
from penstock.locality.record import TablesBrought
from penstock.locality.routed_plan import routed_plan
from penstock.store.codec import pack
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, PutTable, TableVersions
from penstock_operator.local.run_locality import tables_in
from penstock_operator.local.run_state import Result
from processes.orders_plan import KEYED_SHARDS, PARTITIONS, expected_names, orders_plan
from unit.operator.local.test_local_run import RECORDS, Scene

HASHED = wire_router(["string"], KEYED_SHARDS)


class Nobody:
    """Keeps the port `TableDecisionKeeper`; there is nothing to decide."""

    def tables_decided(self, decision: LocalityDecision, *, dry_run: bool) -> int:
        raise AssertionError(decision)

    def tables_brought(self, outcome: TablesBrought) -> None:
        raise AssertionError(outcome)


def table_of_names() -> RoutingTable:
    """Each third name one shard further than its hash says."""
    names = expected_names(RECORDS)[::3]
    keys = {pack((name,)): (HASHED((name,)) + 1) % KEYED_SHARDS for name in names}
    by_hash = {pack((name,)): HASHED((name,)) for name in names}
    return next_table(None, keys, by_hash.__getitem__, [f"orders/{n}" for n in range(PARTITIONS)])


def test_a_table_of_who_asks_for_none_any_more_is_taken_back_and_every_row_counts_once() -> None:
    node, table = MemoryNode(), table_of_names()
    store = MemoryStore(node, "t", Bounds())
    store.call(PutTable("count", 1, encode_table(table)))
    assert tables_in(store, ["count", "orders"]) == {"count": table}
    loop = LocalityLoop(
        routed_plan(orders_plan(RECORDS), {"count"}),
        greedy_partition,
        Nobody(),
        unrouted=frozenset({"count"}),
    )
    loop.recorded("count", table)
    scene = Scene(node, locality=loop)
    summary = scene.run.run()
    assert summary.result is Result.FINISHED
    assert sorted(scene.printed()) == expected_names(RECORDS)
    assert scene.store.call(TableVersions("count")) == (3,)
    assert tables_in(scene.store, ["count"])["count"].is_bare
    assert "keys of count go back to where their hash says" in scene.output.events
    assert "keys of count are back where their hash says" in scene.output.events
    assert loop.version("count") == 3


def test_a_run_without_tables_asks_for_none() -> None:
    asked: list[str] = []
    scene = Scene()
    pipeline = scene.store.pipeline

    def noting(calls: object) -> object:
        asked.extend(type(call).__name__ for call in calls)  # type: ignore[attr-defined]
        return pipeline(calls)  # type: ignore[arg-type]

    scene.store.pipeline = noting  # type: ignore[assignment, method-assign]
    assert scene.run.run().result is Result.FINISHED
    assert not {"ReadPairs", "TableVersions", "PutTable"} & set(asked)
