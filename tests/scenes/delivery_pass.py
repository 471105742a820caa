"""One pass of deliveries over all that waits in a store."""

from __future__ import annotations

from dataclasses import replace

from penstock.store.port import NodeStore, Outgoing
from penstock.store.sender import Delivered, HomeOf, Refused, deliver_pairs


def deliver_once(
    source: NodeStore,
    home_of: HomeOf,
    *,
    pairs_max: int = 10_000,
    bytes_max: int = 64 << 10,
    refused: Refused | None = None,
) -> Delivered:
    """About `bytes_max` bytes of each pair. Raises StoreUnreachable when `source` is away."""
    pairs = source.call(Outgoing(pairs_max))
    delivered = deliver_pairs(source, home_of, pairs, bytes_max=bytes_max, refused=refused)
    return replace(delivered, more=delivered.more or len(pairs) == pairs_max)
