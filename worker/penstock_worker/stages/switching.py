"""How a shard that puts out rows goes from one version of a routing table to the next: with one commit.

The version that a shard routes by is counted in its record, so the commit that counts it is the switch: what
was committed before was routed by the version before, what comes after by the new one, whoever owns the
shard, and an owner learns it from its claim. The same commit leaves a mark in the inboxes of all shards that
lose or gain keys. Versions are gone through one by one. Neighbours: `table_shelf` has the tables,
`routed_stage` asks before each batch, `receiving` is what marks are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from penstock.dataflow.routing import Key, Router
from penstock.dataflow.routing_table import RoutingTable, routed_count
from penstock.dataflow.wire_keys import routing_keys
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Output
from penstock_worker.outputs.edges import EdgeRunner
from penstock_worker.process.clock import Clock
from penstock_worker.stages.control_entries import Mark, encode
from penstock_worker.stages.part_size import fill_of
from penstock_worker.stages.table_shelf import TableShelf
from penstock_worker.stages.work import Work

_DECODER = msgspec.msgpack.Decoder(tuple)


@dataclass(frozen=True, slots=True)
class Switch:
    """A shard is to route rows for `operator` by `table`."""

    operator: str
    table: RoutingTable


class Switching:
    """Of one task; `edges` are those that have tables."""

    def __init__(self, edges: Sequence[EdgeRunner], shelf: TableShelf, bounds: Bounds, clock: Clock) -> None:
        self._edges = edges
        self._edge_counts = [routed_count(edge.edge.operator) for edge in edges]
        self._counts = {edge.edge.operator: routed_count(edge.edge.operator) for edge in edges}
        self._shelf = shelf
        self._bounds = bounds
        self._clock = clock
        self._routes: dict[tuple[int, int], Callable[[Key], int]] = {
            (number, 0): Router(edge.types, edge.edge.shards).route for number, edge in enumerate(edges)
        }

    def due(self, owned: OwnedShard) -> Switch | None:
        """What the shard is to switch to next, as far as is known."""
        for operator, name in self._counts.items():
            table = self._shelf.after(operator, owned.counted_so_far(name))
            if table is not None:
                return Switch(operator, table)
        return None

    def work(self, owned: OwnedShard, switch: Switch, *, in_hand: bool, again: bool) -> Work:
        """The commit that is the switch, and nothing else."""
        operator, table = switch.operator, switch.table
        name = routed_count(operator)
        mark = encode(Mark(table.version, owned.shard))
        outputs = tuple(Output(f"{operator}/{shard}", mark, 0) for shard in table.changed_shards())
        commit = owned.commit(
            self._clock.now_us(),
            counted={name: table.version - owned.counted_so_far(name)},
            in_hand=in_hand,
            again=again,
            outputs=outputs,
        )
        fill = fill_of(self._bounds, len(outputs), len(mark) * len(outputs))
        return Work(commit, (), {}, 0, 0, large=fill > 1)

    def route_as(self, owned: OwnedShard) -> bool:
        """Have the edges route as the shard does; False where the store lacks its table."""
        for number, edge in enumerate(self._edges):
            version = owned.counted_so_far(self._edge_counts[number])
            route = self._routes.get((number, version))
            if route is None:
                table = self._shelf.table(edge.edge.operator, version)
                if table is None:
                    return False
                route = self._routes[number, version] = self._routing(edge, table)
                for key in [k for k in self._routes if k[0] == number and 0 < k[1] < version - 1]:
                    del self._routes[key]
            edge.route = route
        return True

    @staticmethod
    def _routing(edge: EdgeRunner, table: RoutingTable) -> Callable[[Key], int]:
        columns = range(len(edge.types))
        keys = routing_keys(columns, edge.types)([_DECODER.decode(packed) for packed, _ in table.keys])
        overrides = {key: shard for key, (_, shard) in zip(keys, table.keys, strict=True)}
        return Router(edge.types, edge.edge.shards, overrides, table.version).route
