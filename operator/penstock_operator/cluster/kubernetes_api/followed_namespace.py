"""A further namespace that the operator serves: its mirror is kept up to date, as long as that is allowed.

It may not be there, or be removed, with the operator's rights in it: then it is asked for less and less
often, and nobody else notices. What was last known of it stays known: nobody has said that it is gone, and
stores may hold its state. Neighbours: `watches` feeds the mirror, `reconcile` is told when it opens and
closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from penstock.errors import PermanentError, RetryError, SkipTickError
from penstock_operator.cluster.kubernetes_api.listing_anew import RELIST_S, list_anew
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import ClusterApi
from penstock_operator.cluster.kubernetes_api.watches import Watch

_LOG = logging.getLogger(__name__)

AGAIN_S_MIN = 1.0
_AGAIN_S_MAX = 60.0


class FollowedNamespace:
    """`told` is called with whether it is open, whenever that is another than before. Belongs to one event
    loop."""

    def __init__(
        self, cluster: ClusterApi, mirror: Mirror, watch: Watch, told: Callable[[bool], None]
    ) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._watch = watch
        self._told = told
        self._is_open: bool | None = None

    async def follow(self) -> None:
        """Until cancelled."""
        pause_s = AGAIN_S_MIN
        while True:
            if await self._is_listed():
                pause_s = AGAIN_S_MIN
                await self._follow_while_open()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_S_MAX)

    async def _follow_while_open(self) -> None:
        failed = asyncio.Event()

        def tell(why: str) -> None:
            _LOG.warning("the watches of namespace %s broke: %s", self._cluster.namespace, why)
            failed.set()

        stop = self._watch(self._mirror, self._cluster.namespace, tell)
        try:
            while not failed.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RELIST_S):
                        await failed.wait()
                if not failed.is_set() and not await self._is_listed():
                    return
        finally:
            stop()

    async def _is_listed(self) -> bool:
        """Whether it may be read. While no answer can be had it is as it was."""
        try:
            await list_anew(self._cluster, self._mirror, in_haste=not self._is_open)
        except (RetryError, SkipTickError) as error:
            _LOG.warning("objects of namespace %s could not be listed: %s", self._cluster.namespace, error)
            return bool(self._is_open)
        except PermanentError as error:
            self._tell(False, str(error))
            return False
        self._tell(True, "")
        return True

    def _tell(self, is_open: bool, why: str) -> None:
        if is_open == self._is_open:
            return
        self._is_open = is_open
        if is_open:
            _LOG.info("namespace %s is served", self._cluster.namespace)
        else:
            _LOG.error(
                "namespace %s cannot be served: %s; its Topologies stay as they are until it can, and stores "
                "keep what they hold of it. Where it is gone, take it out of `namespaces` of the chart",
                self._cluster.namespace,
                why,
            )
        self._told(is_open)
