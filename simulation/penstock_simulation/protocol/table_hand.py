"""The operator's hand where it is about routing tables: makes them, and has them put into the stores.

A table comes into each store at a time of its own, as agents put it there; a store that lost it has it again.
One that would overlap with another that is not carried out is refused. Neighbours: `chaos` asks for tables,
`table_workload` looks where keys are in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.dataflow.routing import Router
from penstock.dataflow.routing_table import (
    RoutingTable,
    encode_table,
    is_carried_out,
    next_table,
)
from penstock.store.codec import decode_counts
from penstock.store.port import TABLES_KEPT, PutTable, StoreFull, TableVersions
from penstock_simulation.protocol.table_workload import Rerouted
from penstock_simulation.protocol.workload import CLASSES, KEYS, SHARDS
from penstock_worker.state.encoding import pack

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

_PRODUCERS = {"mid": SHARDS.src, "end": SHARDS.mid}
_KEYS = {"mid": KEYS, "end": CLASSES}
_SHARDS = {"mid": SHARDS.mid, "end": SHARDS.end}


class TableHand:
    """Of one run. `refused` counts tables that would have overlapped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made: dict[str, list[RoutingTable]] = {operator: [] for operator in _KEYS}
        self.refused = 0

    def propose(self) -> None:
        """Another table for one operator, with some keys on shards by lot; unless one is under way."""
        rng = self._world.rng
        operator = "mid" if rng.random() < 0.7 else "end"
        made, shards = self._made[operator], _SHARDS[operator]
        if self._overlaps():
            self.refused += 1
            return
        keys = {
            pack((key,)): int(rng.random() * len(shards)) for key in _KEYS[operator] if rng.random() < 0.6
        }
        router = Router(["int"], len(shards))
        by_hash = {pack((key,)): router.route((key,)) for key in _KEYS[operator]}
        producers = list(_PRODUCERS[operator])
        if rng.random() < 0.5 and not any(there.is_full for there in self._world.nodes.values()):
            # Who has never been claimed is as if it were born later: every store has the table before.
            producers = [shard for shard in producers if self._is_begun(shard)]
        table = next_table(made[-1] if made else None, keys, by_hash.__getitem__, producers)
        made.append(table)
        cast("Rerouted", self._world.workload).tables[operator] = table
        self._world.trace.event("tables", f"{operator} has version {table.version}: {table.moves}")
        if len(producers) < len(_PRODUCERS[operator]):
            for node in self._world.nodes:
                self._put(node)
        else:
            self.put_somewhere()

    def _is_begun(self, shard: str) -> bool:
        """Whether anybody has ever had it."""
        return any(
            record.epoch > 0
            for node in self._world.nodes.values()
            for name, record in node.records()
            if name == shard
        )

    def _overlaps(self) -> bool:
        """Whether any table of the topology is under way. Not one of this operator alone: a key that goes
        from one shard to another, of which one routes by the next operator's new table, would overtake
        itself."""
        return not all(map(self._is_carried_out, self._made))

    def put_somewhere(self) -> None:
        """One store gets what it lacks."""
        nodes = list(self._world.nodes)
        self._put(nodes[int(self._world.rng.random() * len(nodes))])

    def left_over(self) -> str:
        """What of the tables is not carried out, once every store has them; "" for nothing."""
        for node in self._world.nodes:
            self._put(node)
        for operator, made in self._made.items():
            if not self._is_carried_out(operator):
                return f"version {made[-1].version} of the table of {operator} is not carried out"
        return ""

    def _put(self, name: str) -> None:
        node = self._world.nodes[name]
        for operator, made in self._made.items():
            there = node.store.call(TableVersions(operator))
            for table in made[-TABLES_KEPT:]:
                if table.version not in there:
                    try:
                        node.store.call(PutTable(operator, table.version, encode_table(table)))
                    except StoreFull:
                        continue
                    node.note_seen(node.log_length)
                    self._world.trace.event(f"store {name}", f"has version {table.version} of {operator}")

    def _is_carried_out(self, operator: str) -> bool:
        made = self._made[operator]
        if not made:
            return True
        counts: dict[str, dict[str, int]] = {}
        for node in self._world.nodes.values():
            for shard, record in node.records():
                for name, number in decode_counts(record.counts).items():
                    known = counts.setdefault(shard, {})
                    known[name] = max(known.get(name, 0), number)
        return is_carried_out(operator, made[-1], counts)
