"""`penstock accept-loss` writes the ids of losses that the status tells, and of no others."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import PermanentError
from penstock_operator.cluster.accept_loss import accept_losses, told_losses
from penstock_operator.cluster.decisions.losses import accepted
from penstock_operator.cluster.kubernetes_api.port import TOPOLOGIES
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds.cluster_world import manifest

LOST = [
    {"operator": "count", "shards": 2, "parts": "0-1", "why": "node a is gone", "id": "count-1"},
    {"operator": "lines", "shards": 1, "parts": "a.txt", "why": "node a is gone", "id": "lines-2"},
]


async def with_losses() -> MemoryCluster:
    cluster = MemoryCluster(lambda: 0.0, "streams")
    document = manifest()
    del document["metadata"]["uid"]
    await cluster.create(TOPOLOGIES, document)
    status = {"lost": LOST, "phase": "Running"}
    head = {"apiVersion": TOPOLOGIES.api_version, "kind": TOPOLOGIES.kind}
    await cluster.apply_status(TOPOLOGIES, {**head, "metadata": {"name": "words"}, "status": status})
    return cluster


def test_what_is_accepted_stands_on_the_topology_and_all_else_stays() -> None:
    async def play() -> None:
        cluster = await with_losses()
        before = await cluster.get(TOPOLOGIES, "words")
        assert [loss.id for loss in await told_losses(cluster, "words")] == ["count-1", "lines-2"]
        done = await accept_losses(cluster, "words", ["count-1"])
        assert [str(loss) for loss in done] == [
            "count-1: the state of 2 shards of count (0-1): node a is gone"
        ]
        after = await cluster.get(TOPOLOGIES, "words")
        assert before is not None
        assert after is not None
        assert accepted(after) == {"count-1"}
        assert (after["spec"], after["status"]) == (before["spec"], before["status"])
        await accept_losses(cluster, "words", ["lines-2", "count-1"])
        after = await cluster.get(TOPOLOGIES, "words")
        assert after is not None
        assert accepted(after) == {"count-1", "lines-2"}

    asyncio.run(play())


def test_an_id_that_the_status_does_not_tell_is_refused_with_those_that_it_does() -> None:
    async def play() -> None:
        cluster = await with_losses()
        with pytest.raises(PermanentError, match=r"has no loss count-9; it has count-1, lines-2"):
            await accept_losses(cluster, "words", ["count-9", "count-1"])
        after = await cluster.get(TOPOLOGIES, "words")
        assert after is not None
        assert accepted(after) == frozenset()

    asyncio.run(play())


def test_a_topology_that_is_not_there_is_told_of() -> None:
    async def play() -> None:
        with pytest.raises(PermanentError, match="there is no Topology tally in namespace streams"):
            await told_losses(MemoryCluster(lambda: 0.0, "streams"), "tally")

    asyncio.run(play())
