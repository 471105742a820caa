"""Async processors under faults: their calls wait among each other, fail after they have changed state, and
are made again; every promise holds all the same, whatever is killed, fenced and moved meanwhile."""

# ruff: noqa: N802, N803 - pyspark's own names

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from penstock.dataflow.plan import Calls
from penstock_simulation.protocol.world import Parts, simulate
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.user_code.key_calls import KeyCall, KeyCalls
from penstock_worker.user_code.running import ProcessorRunner

CALLS = Calls(concurrent=3, retries=12, retry_after_ms=0)
KINDS = {"still": Parts(), "moving": Parts(moves=True), "full": Parts(pressure=True)}
SEEDS = 30


class NestedLoop:
    """Stands for a task's loop: all tasks are in one thread here, and others act within one's calls of the
    store."""

    def __init__(self) -> None:
        self._free: list[asyncio.Runner] = []

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        outside = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(None)
        runner = self._free.pop() if self._free else asyncio.Runner()
        try:
            return runner.run(coroutine)
        finally:
            self._free.append(runner)
            asyncio.events._set_running_loop(outside)


@pytest.fixture(autouse=True)
def nested_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = NestedLoop()
    monkeypatch.setattr("penstock_worker.user_code.async_step.task_loop", lambda: loop)


class Waiting:
    """A processor whose rows come with waits between them, and which fails now and then behind them."""

    def __init__(self, processor: Any, lot: random.Random) -> None:
        self._processor = processor
        self._lot = lot

    async def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> AsyncIterator[Any]:
        for made in self._processor.handleInputRows(key, rows, timerValues):
            for _ in range(self._lot.randrange(3)):
                await asyncio.sleep(0)
            yield made
        if self._lot.random() < 0.2:
            raise ConnectionError("away for a moment")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)


class AsyncStage(KeyedStage):
    """A keyed stage whose code is async."""

    calls: type[KeyCalls] = KeyCalls

    def __init__(self, operator: str, head: Any, runner: ProcessorRunner, *others: Any, **named: Any) -> None:
        waiting: Any = copy(runner)
        waiting._processor = Waiting(runner._processor, random.Random(operator))
        waiting._key_calls = self.calls(runner._cursor, CALLS)
        waiting._ahead = {}
        assert waiting.concurrent == CALLS.concurrent
        super().__init__(operator, head, waiting, *others, **named)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_wait_among_each_other_lose_double_and_mix_nothing(kind: str) -> None:
    parts = replace(KINDS[kind], keyed=AsyncStage)
    broken = [one for one in (simulate(seed, parts) for seed in range(SEEDS)) if one.broken]
    assert not broken, "\n".join(f"seed {one.seed}, turn {one.turns}: {one.broken}" for one in broken[:10])


class NothingIsUndone(KeyCalls):
    """What a call that failed did to its key's state stays."""

    async def _call(self, call: KeyCall) -> list[tuple[Any, ...]]:
        return await super()._call(replace(call, state=_Kept(call.state)))


class _Kept:
    def __init__(self, state: Any) -> None:
        self._state = state

    def undo(self, saved: Any) -> None:
        """Nothing is."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


class KeysAreMixed(KeyCalls):
    """The key that was at hand last is at hand still when a call goes on."""

    async def _call(self, call: KeyCall) -> list[tuple[Any, ...]]:
        self._cursor.at(call.state, call.state.begin(call.key))
        return call.read([made async for made in call.begin()])


@pytest.mark.parametrize("calls", [NothingIsUndone, KeysAreMixed])
def test_a_planted_bug_is_caught(calls: type[KeyCalls]) -> None:
    class Planted(AsyncStage):
        pass

    Planted.calls = calls
    parts = Parts(keyed=Planted)
    assert any(simulate(seed, parts).broken for seed in range(SEEDS))
