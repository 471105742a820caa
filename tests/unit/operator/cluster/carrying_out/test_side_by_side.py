"""Writes that are begun together."""

from __future__ import annotations

import asyncio

import pytest

from clocks.running import run
from penstock_operator.cluster.carrying_out.side_by_side import side_by_side
from penstock_operator.cluster.kubernetes_api.lease import LeaseLost
from penstock_operator.cluster.kubernetes_api.port import ClusterUnreachable


def test_all_are_begun_before_one_has_ended_and_each_answers_in_its_place() -> None:
    async def story() -> list[int]:
        all_begun = asyncio.Barrier(3)

        async def write(number: int) -> int:
            await all_begun.wait()
            return number

        return await side_by_side(*map(write, range(3)))

    assert run(story()) == [0, 1, 2]


def test_a_fault_is_raised_once_all_have_ended_and_a_lost_lease_before_any_other() -> None:
    ended = list[str]()

    async def fail(fault: Exception, *, after: int) -> None:
        for _ in range(after):
            await asyncio.sleep(0)
        ended.append(type(fault).__name__)
        raise fault

    async def story() -> None:
        await side_by_side(
            fail(ClusterUnreachable("away"), after=0), fail(LeaseLost("another one leads"), after=3)
        )

    with pytest.raises(LeaseLost):
        run(story())
    assert ended == ["ClusterUnreachable", "LeaseLost"]
