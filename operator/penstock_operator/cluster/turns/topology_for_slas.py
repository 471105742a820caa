"""A topology's own loop, as the loop of its LatencySLAs knows it.

Neighbours: `sla.keeper` asks it, `topology_turn` leaves what it answers, `reconcile` puts the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from penstock.schedule.record import StorePlace
from penstock.sla.standing import SlaLine
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.kubernetes_api.port import LATENCY_SLAS, TOPOLOGIES, uid_of
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.observing.observed import TopologyKey
from penstock_operator.cluster.sla.objects import AskedOfTopology, ObservedSla, observe_sla, topology_of
from penstock_operator.cluster.turns.served_namespace import ServedNamespace
from penstock_operator.cluster.turns.work import Work

_LEEWAY_AGE_S = 15.0
"""What a topology's loop has left to its SLAs holds no longer without another turn."""


@dataclass(slots=True)
class TopologyForSlas:
    """Keeps the protocol `TopologyLoop` of `sla.keeper`. `works` are the loops of all topologies, `served` is
    this one's namespace."""

    key: TopologyKey
    works: Mapping[TopologyKey, Work]
    served: ServedNamespace
    picture: ClusterPicture
    monotonic_s: Callable[[], float]
    metrics: OperatorMetrics
    read: dict[str, tuple[str, ObservedSla]] = field(default_factory=dict)
    """LatencySLA's uid -> (generation, what it means)."""

    def asked(self) -> AskedOfTopology:
        mirror = self.served.mirror
        work, manifest = self.works.get(self.key), mirror.get(TOPOLOGIES, self.key.name)
        slas = [one for one in mirror.all(LATENCY_SLAS) if topology_of(one) == self.key.name]
        read: dict[str, tuple[str, ObservedSla]] = {}
        for one in slas:
            version, known = str(one["metadata"].get("generation", 0)), self.read.get(uid_of(one))
            meaning = known[1] if known is not None and known[0] == version else observe_sla(one)
            read[uid_of(one)] = (version, replace(meaning, manifest=one))
        self.read = read
        return AskedOfTopology(
            topology=self.served.picture.parse(work.look, manifest) if work and manifest else None,
            names=tuple(key.name for key in self.works if key.namespace == self.key.namespace),
            slas=tuple(meaning for _, meaning in read.values()),
        )

    def leeway(self) -> SlaLeeway:
        work = self.works.get(self.key)
        if work is None:
            return SlaLeeway()
        if self.monotonic_s() - work.turned_s > _LEEWAY_AGE_S:
            return SlaLeeway(held="the operator has not looked at the topology for a while")
        return work.leeway

    def ready_stores(self) -> Mapping[str, StorePlace]:
        return {
            store.id: StorePlace(store.id, store.node, store.address)
            for store in self.picture.stores()
            if store.ready
        }

    def unread(self, store: str) -> None:
        self.metrics.unread(store)

    def measured(self, sla: str, line: SlaLine | None, cores: float) -> None:
        self.metrics.slas.show(self.key, sla, line, cores, self.monotonic_s())

    def wake(self) -> None:
        work = self.works.get(self.key)
        if work is not None:
            work.wake.set()
