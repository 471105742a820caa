"""Says on a Topology that what it lost may begin anew: what `penstock accept-loss` does.

The operator tells in the status what is lost, each loss with an id; here ids of it are written into the
annotation that the operator reads. Neighbours: `decisions.losses` finds losses and carries out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock.errors import PermanentError
from penstock_operator.cluster.asked.reached import topology_named
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_ACCEPT_LOSS
from penstock_operator.cluster.kubernetes_api.port import TOPOLOGIES, ClusterApi


@dataclass(frozen=True, slots=True)
class ToldLoss:
    """A loss as the Topology's status has it."""

    id: str
    operator: str
    shards: int
    parts: str
    why: str

    def __str__(self) -> str:
        return f"{self.id}: the state of {self.shards} shards of {self.operator} ({self.parts}): {self.why}"


async def told_losses(cluster: ClusterApi, topology: str) -> tuple[ToldLoss, ...]:
    """What the Topology says that it has lost. PermanentError: there is no such Topology."""
    found = await topology_named(cluster, topology)
    status: dict[str, Any] = found.get("status") or {}
    return tuple(
        ToldLoss(one["id"], one["operator"], one["shards"], one["parts"], one["why"])
        for one in status.get("lost") or ()
    )


async def accept_losses(cluster: ClusterApi, topology: str, ids: Collection[str]) -> tuple[ToldLoss, ...]:
    """Accept those of its losses that have these ids; what they are. PermanentError: it has no such loss."""
    losses = {loss.id: loss for loss in await told_losses(cluster, topology)}
    unknown = sorted(set(ids) - losses.keys())
    if unknown:
        has = (
            f"it has {', '.join(sorted(losses))}" if losses else "it has lost nothing, as far as is known now"
        )
        raise PermanentError(f"Topology {topology} has no loss {', '.join(unknown)}; {has}")
    text = ",".join(sorted(set(ids)))
    await cluster.apply(
        TOPOLOGIES,
        {
            "apiVersion": TOPOLOGIES.api_version,
            "kind": TOPOLOGIES.kind,
            "metadata": {
                "name": topology,
                "namespace": cluster.namespace,
                "annotations": {ANNOTATION_ACCEPT_LOSS: text},
            },
        },
    )
    return tuple(losses[one] for one in sorted(set(ids)))
