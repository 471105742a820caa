"""Status that is written behind a turn."""

from __future__ import annotations

import asyncio

import pytest

from clocks.running import run
from penstock_operator.cluster.kubernetes_api.port import ClusterUnreachable
from penstock_operator.cluster.turns.telling import Telling


def test_who_is_not_woken_waits_for_the_writing_and_has_its_answer() -> None:
    async def story() -> bool:
        async def write() -> bool:
            for _ in range(5):
                await asyncio.sleep(0)
            return True

        return await Telling().begin(write(), asyncio.Event())

    assert run(story())


@pytest.mark.parametrize("is_woken_before", [True, False])
def test_who_is_woken_goes_on_and_the_next_writing_waits_for_the_one_under_way(
    is_woken_before: bool,
) -> None:
    told = list[str]()

    async def story() -> None:
        telling, woken, may_end = Telling(), asyncio.Event(), asyncio.Event()

        async def write() -> bool:
            if not is_woken_before:
                woken.set()
            await may_end.wait()
            told.append("first")
            return True

        if is_woken_before:
            woken.set()
        told.append(str(await telling.begin(write(), woken)))
        asyncio.get_running_loop().call_soon(may_end.set)
        await telling.ended()
        told.append("second")

    run(story())
    assert told == ["False", "first", "second"]


def test_a_writing_that_has_ended_by_then_is_answered_also_to_who_was_woken() -> None:
    async def story() -> bool:
        async def write() -> bool:
            return True

        woken = asyncio.Event()
        woken.set()
        return await Telling().begin(write(), woken)

    assert run(story())


def test_a_fault_of_a_writing_that_nobody_waited_for_is_raised_to_the_next_turn_and_once() -> None:
    async def story() -> None:
        telling, woken, may_end = Telling(), asyncio.Event(), asyncio.Event()

        async def fail() -> bool:
            woken.set()
            await may_end.wait()
            raise ClusterUnreachable("away")

        assert not await telling.begin(fail(), woken)
        may_end.set()
        with pytest.raises(ClusterUnreachable):
            await telling.ended()
        await telling.ended()

    run(story())


def test_a_writing_ends_with_its_loop() -> None:
    async def story() -> list[str]:
        telling, woken, seen = Telling(), asyncio.Event(), list[str]()

        async def write() -> bool:
            woken.set()
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("ended")
            return True

        await telling.begin(write(), woken)
        telling.cancel()
        await telling.ended()
        await asyncio.sleep(0)
        return seen

    assert run(story()) == ["ended"]
