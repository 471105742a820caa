"""Retained Schedules, whose Topology is gone: their shards leave nodes that are drained, too.

No loop of a topology looks after them; the stores' does. Pure. Neighbours: `stores_turn` carries out,
`decisions.unrun` has the rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from penstock.api.operator_config import OperatorConfig
from penstock.schedule.record import StorePlace
from penstock.supervision.settled import settling
from penstock.supervision.since_when import SinceWhen
from penstock_operator.cluster.decisions.actions import WriteSchedule
from penstock_operator.cluster.decisions.schedule_writing import book_of
from penstock_operator.cluster.decisions.unrun import placement_without_topology, rehomed_schedules, writes
from penstock_operator.cluster.observing.observed import (
    ObservedNode,
    ObservedSchedule,
    ObservedStore,
    stores_there,
)


def retained_homes(
    schedules: Sequence[ObservedSchedule],
    topologies: Collection[str],
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    config: OperatorConfig,
    term: int,
    namespace: str,
) -> tuple[WriteSchedule, ...]:
    """Of one namespace. `topologies` are the names of those that are there; all Schedules of theirs are their
    loops' affair."""
    left = [one for one in schedules if one.topology not in topologies and not one.is_deleting]
    names = sorted({one.topology for one in left})
    of_each = ([one for one in left if one.topology == name] for name in names)
    return tuple(write for own in of_each for write in _of_one(own, nodes, stores, config, term, namespace))


def _of_one(
    own: Sequence[ObservedSchedule],
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    config: OperatorConfig,
    term: int,
    namespace: str,
) -> Iterator[WriteSchedule]:
    ready = stores_there(nodes, stores)

    def is_there(store: StorePlace) -> bool:
        return store.id in ready

    settled = settling(((one.schedule, one.applied) for one in own), is_there, SinceWhen({}, 0.0))
    if not settled.may_change:
        return
    book, rules = book_of(own), placement_without_topology(config, own)
    changes = rehomed_schedules(book, settled, nodes, stores, rules)
    yield from writes(own, book, changes.values(), term, namespace)
