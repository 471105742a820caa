"""One turn of the node stores' loop: which there are to be, and which of them is made anew.

Neighbours: `reconcile` says when; `node_stores` and `store_renewal` decide, `apply` writes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.carrying_out.events import event_object
from penstock_operator.cluster.decisions.actions import Event, StoresDecision
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    EVENTS,
    SCHEDULES,
    STATEFUL_SETS,
    ClusterApi,
    Object,
)
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.stores.node_stores import decide_stores
from penstock_operator.cluster.stores.store_renewal import RenewalMemory, decide_renewal
from penstock_operator.cluster.turns.work import Clocks, Leadership

_LOG = logging.getLogger(__name__)


class StoresTurns:
    """`wake_topologies`: another node is to be emptied for its store's renewal, or none any more."""

    def __init__(
        self,
        cluster: ClusterApi,
        mirror: Mirror,
        picture: ClusterPicture,
        applier: Applier,
        config: OperatorConfig,
        leadership: Leadership,
        clocks: Clocks,
        *,
        wake_topologies: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._picture = picture
        self._applier = applier
        self._config = config
        self._leadership = leadership
        self._clocks = clocks
        self._wake_topologies = wake_topologies
        self._renewal = RenewalMemory()
        self._told: dict[str, Event] = {}

    @property
    def renewing(self) -> str:
        """The node whose store is being renewed; "" for none."""
        return self._renewal.node

    async def turn(self) -> float:
        """One look at the stores and what follows; seconds to the next one."""
        named = self._named()
        decision: StoresDecision = decide_stores(
            self._config,
            self._picture.nodes(""),
            self._picture.stores(),
            named if self._mirror.is_complete() else None,
        )
        await self._applier.carry_out(decision.actions)
        await self._renew(named if self._mirror.is_complete() else None)
        return math.inf

    async def _renew(self, named: set[str] | None) -> None:
        """Bring stores to their newest template, one after the other."""
        renewal = decide_renewal(
            self._picture.nodes(""),
            self._picture.stores(),
            named,
            self._renewal,
            self._clocks.monotonic_s(),
        )
        if renewal.memory.node != self._renewal.node:
            _LOG.info("the store that is being renewed is %s", renewal.memory.node or "none")
            self._wake_topologies()
        self._renewal = renewal.memory
        if renewal.restart is not None:
            await self._applier.carry_out([renewal.restart])
        for name, event in renewal.notices:
            held = self._mirror.get(STATEFUL_SETS, name)
            if held is not None and self._told.get(name) != event:
                _LOG.info("%s", event.message)
                regarding = {"apiVersion": STATEFUL_SETS.api_version, "kind": STATEFUL_SETS.kind, **held}
                told = event_object(event, regarding, self._clocks.now(), self._leadership.reporter)
                await self._cluster.create(EVENTS, told)
        self._told = dict(renewal.notices)

    def _named(self) -> set[str]:
        """Stores that a Schedule names."""
        return {store for one in self._mirror.all(SCHEDULES) for store in _stores_named(one)}


def _stores_named(schedule: Object) -> set[str]:
    spec = schedule["spec"]
    return {str(one["id"]) for one in spec.get("stores") or ()} | {
        str(one["home"]) for one in spec.get("shards") or ()
    }
