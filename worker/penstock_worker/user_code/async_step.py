"""`async def` code of a map: several rows' calls at once, each with a time limit and tries, results in order.

All calls of a part of work are done before its commit is made, so what they gave counts once; a call itself
may be made again, after a crash or a try that failed. The event loop is the task's own, for its whole life:
what a call leaves open (a client's connections) is there for the next one. Neighbours: `stages.steps` calls,
`running` words what is raised.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.dataflow.plan import Calls


def is_async(function: Any) -> bool:
    """Whether calling it gives what has to be awaited: a coroutine, or an async generator."""
    code = function.func if isinstance(function, partial) else function
    if not inspect.isroutine(code):
        code = getattr(type(code), "__call__", None)  # noqa: B004 - whether that is async
    return inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)


class CallFailed(Exception):
    """A call was given up. `place` is the row's, `error` what it raised last."""

    def __init__(self, place: int, error: BaseException) -> None:
        super().__init__(str(error))
        self.place = place
        self.error = error


class AsyncCalls:
    """Calls `function`, of which `is_async` holds, for rows, or for what else it takes. What it raises of
    `for_good` is no failure of a call, which another try might mend."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        calls: Calls,
        for_good: tuple[type[Exception], ...] = (),
    ) -> None:
        self._function = function
        self._calls = calls
        self._for_good = for_good

    def results(self, rows: Sequence[Any]) -> list[Any]:
        """What the function gave for each row, in their order; of an async generator the list of its rows.
        Raises CallFailed, as soon as one call is given up: the others are cancelled."""
        found = self.outcomes(rows, lambda _: True)
        for one in found:
            if isinstance(one, CallFailed):
                raise one
        return found

    def outcomes(self, rows: Sequence[Any], stops: Callable[[BaseException], bool]) -> list[Any]:
        """The same, with a CallFailed in the place of a row whose call was given up. Where what it raised
        `stops`, the others are cancelled, and what they gave is None."""
        return task_loop().run(self._all(rows, stops))

    async def _all(self, rows: Sequence[Any], stops: Callable[[BaseException], bool]) -> list[Any]:
        found: list[Any] = [None] * len(rows)
        waiting = iter(enumerate(rows))
        has_stopped = False

        async def work() -> None:
            nonlocal has_stopped
            for place, row in waiting:
                try:
                    found[place] = await self._tried(row)
                except BaseException as error:  # noqa: BLE001 - user code may raise anything
                    if has_stopped:
                        return
                    found[place] = CallFailed(place, error)
                    if stops(error):
                        has_stopped = True
                        for other in tasks:
                            if other is not asyncio.current_task():
                                other.cancel()
                        return

        tasks = [asyncio.create_task(work()) for _ in range(min(self._calls.concurrent, len(rows)))]
        await asyncio.gather(*tasks, return_exceptions=True)
        return found

    async def _tried(self, row: Any) -> Any:
        """The call, and again as often as it may be."""
        calls = self._calls
        for number in range(1, calls.retries + 1):
            try:
                return await self._once(row)
            except self._for_good:
                raise
            except Exception:  # noqa: BLE001 - whatever the user's call met
                await asyncio.sleep(calls.pause_ms(number) / 1000)
        return await self._once(row)

    async def _once(self, row: Any) -> Any:
        limit = asyncio.timeout(self._calls.timeout_ms / 1000)
        try:
            async with limit:
                called = self._function(row)
                if inspect.isasyncgen(called):
                    return [made async for made in called]
                return await called
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"was not done within {self._calls.timeout_ms} ms") from None


_LOOPS = threading.local()


def task_loop() -> asyncio.Runner:
    """The event loop of this thread, for its whole life: all async code of a task runs in one."""
    loop: asyncio.Runner | None = getattr(_LOOPS, "runner", None)
    if loop is None:
        loop = _LOOPS.runner = asyncio.Runner()
    return loop
