"""Keeps the routing tables of one topology: looks at counts, has the loop decide, and says which table its
Schedules are to carry.

It writes nothing itself. A Schedule that carries a table is written by the topology's own turn, among what
that turn writes and after all that it has written before; so the shards that put out rows when the table was
made are the ones that there are, or it is made again. Agents put a table into their stores before anything
else of its Schedule. All but the objects and the stores may be lost at any time. Neighbours: `pairs_reader`
asks the stores, `penstock.locality.loop` decides, `topology_turn` asks for `view`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.dataflow.plan import Plan
from penstock.dataflow.routing_table import RoutingTable, decode_table
from penstock.locality.carrying import table_place, without_tasks
from penstock.locality.routed_plan import RoutedPlan, keyed_operators, routed_plan
from penstock.locality.seen import LocalitySeen
from penstock.schedule.record import OperatorSchedule, TablePlace
from penstock.store.codec import decode_counts
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.observing.observed import (
    LocalityView,
    ObservedSchedule,
    ObservedTopology,
    StoreReading,
)
from penstock_operator.cluster.observing.pairs_reader import PairsReader

if TYPE_CHECKING:
    from penstock.locality.loop import LocalityLoop, TableToRecord
    from penstock_operator.cluster.locality.decisions import RecentTableDecisions

Readings = Mapping[str, StoreReading | None]


class TablesKeeper:
    """For one topology. `now_us` is a clock that is never set."""

    def __init__(self, reader: PairsReader, now_us: Callable[[], int]) -> None:
        self._reader = reader
        self._now_us = now_us
        self._loop: LocalityLoop | None = None
        self._made_of: RoutedPlan | None = None
        self._decisions: RecentTableDecisions | None = None
        self._asked: TableToRecord | None = None
        self._earlier: dict[str, RoutingTable] | None = None
        """What stores had when this process began to lead; None until all have told."""
        self._places: dict[str, tuple[RoutingTable, TablePlace]] = {}
        self._carried: dict[str, tuple[RoutingTable, TablePlace]] = {}

    async def look(
        self,
        topology: ObservedTopology,
        state_uid: str,
        schedules: Sequence[ObservedSchedule],
        readings: Readings,
        leeway: SlaLeeway,
    ) -> None:
        """One look, where it is time for one. Stores that give no answer are waited for."""
        plan = topology.plan
        by_operator = {one.schedule.operator: one.schedule for one in schedules}
        if plan is None or topology.is_deleting or len(by_operator) < len(plan.stages):
            return
        carried = {name: one.table for name, one in by_operator.items() if one.table is not None}
        tables = {name: self._table(name, place) for name, place in carried.items()}
        asked = routed_plan(plan)
        if not asked.operators and all(table.is_bare for table in tables.values()):
            self._loop = self._made_of = self._asked = None
            return
        addresses = {store.id: store.address for one in by_operator.values() for store in one.stores}
        if self._earlier is None and not await self._look_back(plan, state_uid, addresses):
            return
        for name, table in (self._earlier or {}).items():
            if name not in tables or tables[name].version < table.version:
                tables[name] = table
        loop = self._renewed(plan, asked, topology.manifest, tables)
        for name, table in tables.items():
            loop.recorded(name, table)
        if not loop.due(self._now_us()):
            return
        rows = await self._reader.rows(state_uid, addresses)
        if any(one is None for one in rows.values()):
            return
        seen = self._seen(loop, by_operator, readings, leeway, [one for one in rows.values() if one])
        # It computes for a second or two, and others' turns must not wait for that.
        turn = await asyncio.get_running_loop().run_in_executor(self._reader.threads, loop.turn, seen)
        self._asked = turn.table

    def view(self, schedules: Sequence[ObservedSchedule]) -> LocalityView:
        """What the topology's turn goes by; nothing is awaited here."""
        loop = self._loop
        if loop is None:
            return LocalityView()
        by_operator = {one.schedule.operator: one.schedule for one in schedules}
        tables = {name: self._place(name, table) for name, table in loop.tables().items()}
        asked = self._asked
        if asked is not None and asked.table.version > loop.version(asked.operator):
            producers = self._producers(asked.operator, by_operator)
            if asked.table.is_bare or set(asked.table.producers) == producers:
                tables[asked.operator] = self._place(asked.operator, asked.table)
        return LocalityView(tables, loop.producers, self._status(loop))

    # --- within

    def _place(self, operator: str, table: RoutingTable) -> TablePlace:
        """As a Schedule carries it; made once, since a turn comes often and contents are large."""
        known = self._places.get(operator)
        if known is None or known[0] is not table:
            known = self._places[operator] = (table, table_place(table))
        return known[1]

    def _table(self, operator: str, place: TablePlace) -> RoutingTable:
        """As a Schedule carries it; read once."""
        known = self._carried.get(operator)
        if known is None or known[1] != place:
            known = self._carried[operator] = (decode_table(place.content), place)
        return known[0]

    async def _look_back(self, plan: Plan, state_uid: str, addresses: Mapping[str, str]) -> bool:
        """Whether all stores have told which tables they have."""
        found = await self._reader.tables(state_uid, addresses, keyed_operators(plan))
        earlier: dict[str, RoutingTable] = {}
        for there in found.values():
            if there is None:
                return False
            for name, table in there.items():
                if name not in earlier or earlier[name].version < table.version:
                    earlier[name] = table
        self._earlier = earlier
        return True

    def _renewed(
        self, plan: Plan, asked: RoutedPlan, manifest: Mapping[str, Any], tables: Mapping[str, RoutingTable]
    ) -> LocalityLoop:
        """A loop for what is asked now, and for tables of operators that ask for none any more."""
        # Loaded where there are tables: deciding on them needs numpy, and takes a while.
        from penstock.locality.loop import LocalityLoop, LoopRules
        from penstock_operator.cluster.locality.decisions import RecentTableDecisions
        from penstock_operator.partitioning.choice import installed_partitioner

        known = {name for name, table in tables.items() if not table.is_bare}
        unrouted = frozenset(known.difference(asked.names))
        routed = routed_plan(plan, unrouted) if unrouted else asked
        if self._loop is None or self._made_of != routed:
            if self._decisions is None:
                self._decisions = RecentTableDecisions(manifest.get("status") or {})
            self._loop = LocalityLoop(
                routed, installed_partitioner(), self._decisions, unrouted=unrouted, rules=LoopRules()
            )
            self._made_of, self._asked = routed, None
        return self._loop

    def _seen(
        self,
        loop: LocalityLoop,
        schedules: Mapping[str, OperatorSchedule],
        readings: Readings,
        leeway: SlaLeeway,
        rows: Sequence[Mapping[str, bytes]],
    ) -> LocalitySeen:
        counts: dict[str, dict[str, int]] = {}
        homes: dict[str, dict[str, str]] = {}
        state_bytes: dict[str, float] = {}
        unknown = ""
        for name in loop.producers:
            schedule = schedules[name]
            nodes = {store.id: store.node for store in schedule.stores}
            homes[name] = {shard: nodes[place.home] for shard, place in schedule.shards.items()}
            for shard, place in schedule.shards.items():
                reading = readings.get(place.home)
                counters = reading.shards.get(shard) if reading is not None else None
                if counters is not None:
                    counts[shard] = decode_counts(counters.counts)
                held = reading.held if reading is not None else None
                if held is None:
                    unknown = f"what the store {place.home} holds is not known"
                else:
                    each = held.held_bytes / max(1, held.shards)
                    state_bytes[name] = state_bytes.get(name, 0.0) + each
        capacity: dict[str, float] = {}
        for host in leeway.hosts:
            capacity[host.place.node] = capacity.get(host.place.node, 0.0) + host.tasks + host.room
        return LocalitySeen(
            at_us=self._now_us(),
            rows={f"{number}/{name}": row for number, each in enumerate(rows) for name, row in each.items()},
            tasks={
                name: {place.name: place.tasks for place in schedules[name].executors}
                for name in loop.counting
            },
            homes=homes,
            counts=counts,
            capacity=capacity,
            state_bytes=state_bytes,
            held=leeway.held
            or leeway.busy
            or leeway.outdated
            or without_tasks(loop.producers, schedules)
            or unknown,
        )

    def _producers(self, operator: str, schedules: Mapping[str, OperatorSchedule]) -> set[str]:
        plan = self._made_of
        of = next((one for one in plan.operators if one.operator == operator), None) if plan else None
        return {shard for name in (of.producers if of else ()) for shard in schedules[name].shards}

    def _status(self, loop: LocalityLoop) -> dict[str, Any]:
        """`status.locality` of the Topology."""
        edges = []
        for line in loop.lines():
            entry = {
                "from": line.upstream,
                "to": line.downstream,
                "localShare": _rounded(line.local_share),
                "byHash": _rounded(line.by_hash),
                "expected": _rounded(line.expected),
            }
            edges.append({name: value for name, value in entry.items() if value is not None})
        status: dict[str, Any] = {
            "edges": edges,
            "tables": [
                {"operator": name, "version": table.version, "keys": len(table.keys)}
                for name, table in loop.tables().items()
            ],
            "decisions": self._decisions.entries if self._decisions is not None else [],
        }
        if loop.under_way:
            status["underWay"] = loop.under_way
        return {name: value for name, value in status.items() if value}


def _rounded(share: float | None) -> float | None:
    """To the percent: what moves by less is no news."""
    return None if share is None else round(share, 2)
