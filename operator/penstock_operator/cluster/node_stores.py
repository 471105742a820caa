"""Which nodes have a store: one StatefulSet for each schedulable node that fits the selector.

A node that is cordoned or gone loses its store only when no Schedule names it any more: until then it holds
state. Neighbours: `manifests.node_store` builds the object.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.actions import StoresDecision
from penstock_operator.cluster.observed import ObservedNode, ObservedStore


def decide_stores(
    config: OperatorConfig,
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    named: Collection[str] | None,
) -> StoresDecision:
    """`named` are the ids of all stores that any Schedule of the namespace names; None while the Schedules
    could not be listed completely: then none is removed."""
    raise NotImplementedError
