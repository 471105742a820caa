"""A namespace whose Topologies are carried out, as turns work in it. Values.

Neighbours: `reconcile` makes one for each, `namespace_loops` and `stores_turn` are given them.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import ClusterApi
from penstock_operator.cluster.observing.namespace_picture import NamespacePicture
from penstock_operator.cluster.stores.schedule_index import ScheduleIndex


@dataclass(slots=True)
class ServedNamespace:
    """`cluster`, `mirror` and the others are of this namespace alone. All but `is_open` stays as it is: that
    says whether the operator may work in it now."""

    name: str
    cluster: ClusterApi
    mirror: Mirror
    picture: NamespacePicture
    applier: Applier
    index: ScheduleIndex
    is_open: bool = False
