"""Brings a mirror up to date by lists of all of its kinds: what a watch lost is found so.

Neighbours: `mirror` takes the lists, `reconcile` and `followed_namespace` say when.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import ClusterApi

RELIST_S = 60.0


async def list_anew(cluster: ClusterApi, mirror: Mirror) -> None:
    """In short steps, between which others go on. Raises what `list` of the cluster raises."""
    for kind in mirror.kinds:
        listing = await cluster.list(kind, keep=partial(mirror.kept, kind))
        for _ in mirror.relisting(kind, listing):
            await asyncio.sleep(0)
