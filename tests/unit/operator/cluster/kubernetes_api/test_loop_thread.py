"""The Lease in a thread of its own: what happens to it while the loop that works is busy."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime

import pytest

from clocks.running import run
from penstock_operator.cluster.kubernetes_api.lease import Elector, LeaseLost, LeaseTimes
from penstock_operator.cluster.kubernetes_api.loop_thread import LoopThread
from penstock_operator.cluster.kubernetes_api.port import LEASES, Kind
from penstock_simulation.twins.memory_cluster import MemoryCluster

TIMES = LeaseTimes(duration_s=30.0, renew_deadline_s=20.0, retry_s=0.01)


async def nobody() -> int:
    return 0


def test_the_lease_is_renewed_while_the_loop_that_works_is_in_one_long_step() -> None:
    cluster = MemoryCluster(clock_s=time.time)
    renewals = 0
    often = threading.Event()

    def count(kind: Kind, change: str, _: object) -> None:
        nonlocal renewals
        renewals += (kind, change) == (LEASES, "MODIFIED")
        if renewals >= 5:
            often.set()

    cluster.subscribe(count)
    thread = LoopThread("lease")
    elector = Elector(cluster, "lease", "one", nobody, time.monotonic, lambda: datetime.now(UTC), TIMES)

    async def story() -> None:
        assert await thread.run(elector.acquire()) == 1
        holding = asyncio.create_task(thread.run(elector.hold()))
        await asyncio.sleep(0)
        # Nothing else runs in this loop meanwhile.
        assert often.wait(10)
        assert elector.may_act()
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        await thread.run(elector.release())

    try:
        run(story())
    finally:
        thread.stop()
    assert elector.renewals >= 4


def test_an_error_in_the_thread_comes_to_who_waits_for_it() -> None:
    thread = LoopThread("lease")

    async def fails() -> None:
        raise LeaseLost("gone")

    async def story() -> None:
        with pytest.raises(LeaseLost, match="gone"):
            await thread.run(fails())

    try:
        run(story())
    finally:
        thread.stop()
