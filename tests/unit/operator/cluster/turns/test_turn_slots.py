"""How many turns are under way at once, and who is next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from clocks.running import run
from penstock_operator.cluster.turns.turn_slots import TurnSlots

LONG_S = 100.0


class Turns:
    """Turns through slots, which end when they are told to."""

    def __init__(self, slots: TurnSlots) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, is_urgent: Callable[[], bool] = lambda: False) -> None:
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._take(name, is_urgent))
        await settled()

    async def _take(self, name: str, is_urgent: Callable[[], bool]) -> None:
        async with self.slots.one(is_urgent):
            self.begun.append(name)
            await self.ends[name].wait()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_no_more_turns_are_under_way_than_there_are_slots_and_the_next_is_who_asked_first() -> None:
    async def story() -> None:
        turns = Turns(TurnSlots(2, LONG_S))
        for name in ("a", "b", "c", "d"):
            await turns.ask(name)
        assert turns.begun == ["a", "b"]
        await turns.end("b")
        assert turns.begun == ["a", "b", "c"]
        await turns.end("a")
        assert turns.begun == ["a", "b", "c", "d"]
        for name in ("c", "d"):
            await turns.end(name)
        await turns.ask("e")
        assert turns.begun[-1] == "e"
        await turns.end("e")

    run(story())


def test_who_became_urgent_meanwhile_goes_first_but_each_fourth_time() -> None:
    async def story() -> None:
        turns, urgent = Turns(TurnSlots(1, LONG_S)), set[str]()
        names = "abcdefghij"
        for name in names:
            await turns.ask(name, lambda name=name: name in urgent)
        urgent |= set("defghij")
        order = ["a"]
        for _ in names[1:]:
            await turns.end(order[-1])
            order.append(turns.begun[-1])
        assert "".join(order) == "adefbghicj"
        await turns.end("j")

    run(story())


def test_where_urgent_ones_never_end_who_can_wait_is_served_all_the_same() -> None:
    async def story() -> None:
        turns = Turns(TurnSlots(1, LONG_S))
        await turns.ask("0")
        for name in ("can wait", "can wait too"):
            await turns.ask(name)
        order = ["0"]
        for number in range(1, 10):  # one more change each time
            await turns.ask(str(number), lambda: True)
            await turns.end(order[-1])
            order.append(turns.begun[-1])
        assert order == ["0", "1", "2", "3", "can wait", "4", "5", "6", "can wait too", "7"]
        for name in ("7", "8", "9"):
            await turns.end(name)

    run(story())


def test_a_turn_that_hangs_gives_its_slot_back_once() -> None:
    async def story() -> None:
        turns = Turns(TurnSlots(1, 0.3))
        await turns.ask("hangs")
        await turns.ask("next")
        assert turns.begun == ["hangs"]
        while turns.begun != ["hangs", "next"]:
            await asyncio.sleep(0.001)
        await turns.end("next")
        await turns.end("hangs")
        # There is one slot, and no second one.
        await turns.ask("a")
        await turns.ask("b")
        assert turns.begun[2:] == ["a"]
        await turns.end("a")
        await turns.end("b")

    run(story())


def test_a_turn_keeps_its_slot_while_it_is_this_loop_that_is_busy() -> None:
    async def story() -> None:
        turns = Turns(TurnSlots(1, 0.1))
        await turns.ask("waits")
        await turns.ask("next")
        threading.Event().wait(0.5)  # the loop is in one long step
        await settled()
        assert turns.begun == ["waits"]
        while turns.begun != ["waits", "next"]:
            await asyncio.sleep(0.001)
        await turns.end("next")
        await turns.end("waits")

    run(story())


def test_who_is_cancelled_while_it_waits_or_as_it_is_given_a_slot_keeps_none() -> None:
    async def story() -> None:
        turns = Turns(TurnSlots(1, LONG_S))
        for name in ("a", "b", "c", "d"):
            await turns.ask(name)
        turns.tasks["b"].cancel()
        turns.ends["a"].set()
        await asyncio.sleep(0)  # now c has it, and does not know yet
        turns.tasks["c"].cancel()
        await settled()
        assert turns.begun == ["a", "d"]
        await turns.ask("e")
        assert turns.begun == ["a", "d"]
        await turns.end("d")
        assert turns.begun == ["a", "d", "e"]
        await turns.end("e")

    run(story())
