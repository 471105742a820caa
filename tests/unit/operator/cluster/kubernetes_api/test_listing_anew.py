"""Lists of all objects: what a watch lost is found, and who is in no haste lets others go on."""

from __future__ import annotations

import asyncio

import pytest

from clocks.running import run
from penstock_operator.cluster.kubernetes_api import listing_anew
from penstock_operator.cluster.kubernetes_api.listing_anew import list_anew, rest_after
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import PODS
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects

MANY = 1_200


@pytest.fixture
def rests_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long it was rested."""
    rested: list[float] = []
    sleep = asyncio.sleep

    async def slept(pause_s: float) -> None:
        rested.append(pause_s)
        await sleep(0)

    monkeypatch.setattr(listing_anew.asyncio, "sleep", slept)
    return rested


@pytest.mark.parametrize("in_haste", [True, False])
def test_all_objects_are_found_and_only_who_is_in_no_haste_rests(
    in_haste: bool, rests_s: list[float]
) -> None:
    async def story() -> None:
        cluster = MemoryCluster(clock_s=lambda: 0.0)
        for number in range(MANY):
            cluster.put(PODS, objects.pod(f"a{number}"))
        mirror = Mirror(lambda *_: None, (PODS,))
        await list_anew(cluster, mirror, in_haste=in_haste)
        assert mirror.is_complete()
        assert len(mirror.all(PODS)) == MANY

    run(story())
    assert len(rests_s) == 2
    assert all((rest_s == 0) is in_haste for rest_s in rests_s)


def test_a_rest_is_three_times_as_long_as_the_step_and_no_longer_than_a_tenth_of_a_second(
    rests_s: list[float],
) -> None:
    run(rest_after(0.01))
    run(rest_after(60.0))
    assert rests_s == pytest.approx([0.03, 0.1])
