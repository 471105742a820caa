"""What can become of a store's volume where another one is configured now.

A StatefulSet's claim cannot be changed: the API server refuses the whole object. So a store that exists keeps
the claim that it was made with in its object, and what differs is done beside it: a volume grows by its own
claim; one of another storage class, or where there was none, takes a new store, once the topologies have
taken their shards off this one. A volume that is larger than configured stays. Pure. Neighbours:
`node_stores` asks, `store_renewal` has the shards moved off.
"""

from __future__ import annotations

from penstock.api.operator_config import OperatorConfig
from penstock.manifest.document import memory_bytes
from penstock_operator.cluster.decisions.actions import Event, GrowVolume
from penstock_operator.cluster.kubernetes_api.quantities import whole
from penstock_operator.cluster.manifests.node_store import claim_name
from penstock_operator.cluster.observing.observed import ObservedStore


def why_another_volume(store: ObservedStore, config: OperatorConfig) -> str:
    """Why a store has to be made anew to be as configured; "" when it has not."""
    wanted = config.store.storage_class_name
    if store.has_pvc != config.store.has_claim:
        has, configured = ("a claim", "none") if store.has_pvc else ("none", "a claim")
        return f"its volume is {has}, and what is configured now is {configured}"
    if store.volume is not None and store.volume.storage_class != wanted:
        kept, configured = _in_words(store.volume.storage_class), _in_words(wanted)
        return f"its volume is of {kept}, and what is configured now is {configured}"
    return ""


def as_it_may_be(store: ObservedStore | None, config: OperatorConfig) -> OperatorConfig:
    """`config` for a store that exists, with the volume that it has. Without one it survives what an emptyDir
    does, whatever is configured."""
    if store is None:
        return config
    if not store.has_pvc:
        kept: dict[str, object] = {"volume": "EmptyDir", "durability": "Process"}
    elif store.volume is None or _is_as_configured(store, config):
        return config
    else:
        kept = {
            "volume": "Claim",
            "storage_class_name": store.volume.storage_class,
            "size": store.volume.size,
        }
    return config.model_copy(update={"store": config.store.model_copy(update=kept)})


def grown_volume(store: ObservedStore, config: OperatorConfig) -> GrowVolume | None:
    """The growth of its volume to what is configured; None where it had that from the beginning."""
    if store.volume is None or memory_bytes(config.store.size) <= whole(store.volume.size):
        return None
    return GrowVolume(claim_name(store.stateful_set), store.stateful_set, config.store.size)


def kept_volume(store: ObservedStore, config: OperatorConfig) -> Event | None:
    """What people are told of a volume that is larger than configured."""
    if store.volume is None or memory_bytes(config.store.size) >= whole(store.volume.size):
        return None
    kept, wanted = store.volume.size, config.store.size
    told = f"the volume keeps its {kept}: volumes do not shrink, and {wanted} is configured"
    return Event("Normal", "StoreVolumeKept", told)


def _in_words(storage_class: str | None) -> str:
    return "the cluster's default class" if storage_class is None else f"class {storage_class}"


def _is_as_configured(store: ObservedStore, config: OperatorConfig) -> bool:
    volume = store.volume
    return (
        config.store.has_claim
        and volume is not None
        and volume.storage_class == config.store.storage_class_name
        and whole(volume.size) == memory_bytes(config.store.size)
    )
