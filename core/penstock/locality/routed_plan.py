"""What of a plan goes by routing tables: operators whose keys tables may place, and edges whose pairs are
counted.

Neighbours: `api.locality` says what may be asked for, `loop` decides with this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import msgspec

from penstock.dataflow.plan import Fanout, KeyedEdge, Plan, Processor
from penstock.dataflow.routing import Key
from penstock.dataflow.routing_table import RoutingTable
from penstock.dataflow.wire_keys import wire_router

_decode_key = msgspec.msgpack.Decoder(tuple).decode


@dataclass(frozen=True, slots=True)
class RoutedOperator:
    """A keyed operator whose keys may be placed by a table. `producers` are the operators of the stages that
    put out rows for it."""

    operator: str
    types: tuple[str, ...]
    shards: int
    producers: tuple[str, ...]

    def hashed(self) -> Callable[[Key], int]:
        """Key of wire values -> the number of its shard by hash. Each has a memory of its own."""
        return wire_router(self.types, self.shards)

    def shard(self, number: int) -> str:
        return f"{self.operator}/{number}"

    def fits(self, table: RoutingTable) -> bool:
        """Whether a table can be one of this operator: of keys with its columns, on its shards."""
        try:
            keys = [_decode_key(packed) for packed, _ in table.keys]
        except msgspec.DecodeError:
            return False
        shards = [shard for _, shard in table.keys]
        shards += [shard for move in table.moves for shard in (move.source, move.target)]
        return all(len(key) == len(self.types) for key in keys) and all(
            0 <= shard < self.shards for shard in shards
        )


@dataclass(frozen=True, slots=True)
class RoutedPlan:
    """`operators` in the order of the graph; `edges` are (from, to), counted by pairs of keys."""

    operators: tuple[RoutedOperator, ...]
    edges: tuple[tuple[str, str], ...]
    dry_run: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.operator for each in self.operators)


def routed_plan(plan: Plan, also: Collection[str] = ()) -> RoutedPlan:
    """Nothing is in it where no operator asks for tables. `also` are operators that ask for none and have
    one, of earlier times: nothing is counted of them."""
    heads = {
        stage.operator: stage.head
        for stage in plan.stages
        if isinstance(stage.head, Processor) and (stage.head.locality or stage.operator in also)
    }
    producers: dict[str, dict[str, None]] = {name: {} for name in heads}
    edges: dict[tuple[str, str], None] = {}
    for stage in plan.stages:
        for edge in _keyed_edges(stage.out):
            if edge.operator not in heads:
                continue
            producers[edge.operator][stage.operator] = None
            if edge.locality and stage.operator in heads and heads[stage.operator].locality:
                edges[stage.operator, edge.operator] = None
    operators = tuple(
        RoutedOperator(
            name,
            head.key_types,
            head.shards,
            tuple(producers[name]),
        )
        for name, head in heads.items()
    )
    return RoutedPlan(operators, tuple(edges), plan.locality_dry_run)


def keyed_operators(plan: Plan) -> tuple[str, ...]:
    """Those that could have a table, asked for or not."""
    return tuple(
        stage.operator
        for stage in plan.stages
        if isinstance(stage.head, Processor) and stage.head.key_columns
    )


def _keyed_edges(fanout: Fanout) -> Iterator[KeyedEdge]:
    """The edges behind a stage, whatever steps are before them."""
    yield from fanout.edges
    for step in fanout.steps:
        yield from _keyed_edges(step.out)
