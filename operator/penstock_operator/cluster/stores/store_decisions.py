"""`decide_stores`, where a store is decided about again only when what it follows from is another.

Pods that come, go and are resized change what is requested on nodes several times a second; nodes' stores do
not follow from that, and to decide about one makes a manifest. Neighbours: `node_stores` decides,
`stores_turn` asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.decisions.actions import StoresDecision
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.stores.homeless import Homeless
from penstock_operator.cluster.stores.node_stores import OneStore, decide_store, decide_stores


class StoreDecisions:
    """Keeps the last one about each store."""

    def __init__(self, config: OperatorConfig) -> None:
        self._config = config
        self._last: dict[str, tuple[object, StoresDecision]] = {}
        """Store id -> (what it followed from, the decision)."""
        self._before: dict[str, tuple[object, StoresDecision]] = {}

    def about(
        self,
        nodes: Sequence[ObservedNode],
        stores: Sequence[ObservedStore],
        named: Collection[str] | None,
        homeless: Homeless,
    ) -> StoresDecision:
        """As `decide_stores` answers."""
        self._before, self._last = self._last, {}
        return decide_stores(self._config, nodes, stores, named, homeless, self._decide)

    def _decide(self, one: OneStore, config: OperatorConfig) -> StoresDecision:
        basis = (_but_for_requests(one.node), one.store, one.is_unnamed, one.may_go, one.may_begin)
        known = self._before.get(one.name)
        if known is None or known[0] != basis:
            known = (basis, decide_store(one, config))
        self._last[one.name] = known
        return known[1]


def _but_for_requests(node: ObservedNode | None) -> tuple[object, ...] | None:
    if node is None:
        return None
    return (
        node.ready,
        node.schedulable,
        node.labels,
        node.taints,
        node.hostname,
        node.cpu_allocatable_millis,
    )
