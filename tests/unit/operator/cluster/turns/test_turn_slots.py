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

    async def ask(self, name: str, due_s: Callable[[], float] = lambda: 0.0) -> None:
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._take(name, due_s))
        await settled()

    async def _take(self, name: str, due_s: Callable[[], float]) -> None:
        async with self.slots.one(due_s):
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


def test_the_next_is_who_was_due_first_also_who_became_so_while_it_waited() -> None:
    async def story() -> None:
        turns = Turns(TurnSlots(1, LONG_S))
        due_s = {"a": 0.0, "b": 8.0, "c": 9.0, "d": 15.0, "e": 16.0, "f": 10.0}
        for name in due_s:
            await turns.ask(name, lambda name=name: due_s[name])
        due_s |= {"e": 3.0, "d": 4.0}  # a change woke them
        order = ["a"]
        for _ in range(5):
            await turns.end(order[-1])
            order.append(turns.begun[-1])
        assert order == ["a", "e", "d", "b", "c", "f"]
        await turns.end("f")

    run(story())


def test_who_can_wait_is_not_overtaken_for_ever() -> None:
    async def story() -> None:
        turns = Turns(TurnSlots(1, LONG_S))
        await turns.ask("first")
        await turns.ask("can wait", lambda: 5.0)
        order = ["first"]
        for second in range(1, 8):  # one more change each second
            await turns.ask(str(second), lambda second=second: float(second))
            await turns.end(order[-1])
            order.append(turns.begun[-1])
        assert order == ["first", "1", "2", "3", "4", "can wait", "5", "6"]
        await turns.end("6")
        await turns.end("7")

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
