"""Brings a mirror up to date by lists of all of its kinds: what a watch lost is found so.

Neighbours: `mirror` takes the lists, `reconcile` and `followed_namespace` say when.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import ClusterApi

RELIST_S = 60.0
_WORK_SHARE = 0.25
"""Of its time, who lists without haste works for so much."""
_REST_MAX_S = 0.1
"""A list's pages are to be had for five minutes."""


async def rest_after(took_s: float) -> None:
    """Let others go on for a while, after a step of a list that nobody waits for: reading ten thousand
    objects takes a second or two, and turns that a change has woken take twice as long meanwhile."""
    await asyncio.sleep(min(_REST_MAX_S, took_s * (1 / _WORK_SHARE - 1)))


async def list_anew(cluster: ClusterApi, mirror: Mirror, *, in_haste: bool = True) -> None:
    """In short steps, between which others go on; not `in_haste` it rests there. Raises what `list` of the
    cluster raises."""
    clock_s = asyncio.get_running_loop().time
    for kind in mirror.kinds:
        between = None if in_haste else rest_after
        listing = await cluster.list(kind, keep=partial(mirror.kept, kind), between=between)
        began_s = clock_s()
        for _ in mirror.relisting(kind, listing):
            await (asyncio.sleep(0) if in_haste else rest_after(clock_s() - began_s))
            began_s = clock_s()
