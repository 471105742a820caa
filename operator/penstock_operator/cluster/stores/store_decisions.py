"""`decide_stores`, asked again only when something that it follows from is another.

Pods that come, go and are resized change what is requested on nodes several times a second; nodes' stores do
not follow from that, and to decide about them makes a manifest for each of hundreds. Neighbours:
`node_stores` decides, `stores_turn` asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.decisions.actions import StoresDecision
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.stores.homeless import Homeless
from penstock_operator.cluster.stores.node_stores import decide_stores


class StoreDecisions:
    """Keeps the last one."""

    def __init__(self, config: OperatorConfig) -> None:
        self._config = config
        self._last: tuple[object, StoresDecision] | None = None
        """What it followed from, and the decision."""

    def about(
        self,
        nodes: Sequence[ObservedNode],
        stores: Sequence[ObservedStore],
        named: Collection[str] | None,
        homeless: Homeless,
    ) -> StoresDecision:
        """As `decide_stores` answers."""
        of_nodes = [_but_for_requests(node) for node in nodes]
        basis = (of_nodes, tuple(stores), None if named is None else frozenset(named), homeless)
        if self._last is None or self._last[0] != basis:
            self._last = (basis, decide_stores(self._config, nodes, stores, named, homeless))
        return self._last[1]


def _but_for_requests(node: ObservedNode) -> tuple[object, ...]:
    return (node.name, node.ready, node.schedulable, node.labels, node.taints, node.hostname)
