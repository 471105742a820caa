"""An async processor's calls: those of several keys at once, each on its own key's state, one a key.

State calls go to the key at hand (`Cursor`). So each time that one call goes on where it waited, its key is
put at hand, and taken away when it waits again. A call that failed, or is to be made again, has done nothing
to its key's state. Neighbours: `async_step` makes the calls, `running` has the processor,
`stages.calls_ahead` says of which keys.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.dataflow.plan import Calls
from penstock_worker.state.cache import Key, Savepoint, ShardState
from penstock_worker.state.clients import Cursor
from penstock_worker.user_code.async_step import AsyncCalls, CallFailed, is_async
from penstock_worker.values.held import Held, TooMuch
from penstock_worker.values.rows import RowMismatch

ASYNC_METHODS = ("handleInputRows", "handleExpiredTimer")
"""Those of a processor that may be async."""
NO_CALLS = (
    f"{{!r}} has no {' or '.join(ASYNC_METHODS)} that is async, so calls says nothing of it; make one async "
    "def, or leave calls out"
)
LOOK_CALLS = 16
"""After so many calls, and then after twice as many, what they put out so far is looked at."""


def is_async_processor(processor: Any) -> bool:
    """Whether some of its calls on keys have to be awaited."""
    return any(is_async(getattr(processor, name, None)) for name in ASYNC_METHODS)


@dataclass(frozen=True, slots=True)
class KeyCall:
    """A call of the processor for `key`. `begin` makes it: it gives what has to be awaited, or the result.
    `read` makes wire rows of the result."""

    state: ShardState
    key: Key
    begin: Callable[[], Any]
    read: Callable[[Any], list[tuple[Any, ...]]]


class KeyCalls:
    """`cursor` is the processor's."""

    def __init__(self, cursor: Cursor, calls: Calls) -> None:
        self._cursor = cursor
        self.concurrent = calls.concurrent
        self._calls = AsyncCalls(self._call, calls, for_good=(CallVoid, RowMismatch, TooMuch))
        self._held: Held | None = None
        self._made: list[Any] = []
        self._done = 0
        self._look_at = LOOK_CALLS

    def alone(self, call: KeyCall) -> list[tuple[Any, ...]]:
        """Make one call. Raises what it raises in the end."""
        (found,) = self._calls.outcomes([call], lambda _: True)
        if isinstance(found, CallFailed):
            raise found.error
        rows: list[tuple[Any, ...]] = found
        return rows

    def together(
        self, calls: Sequence[KeyCall], held: Held, *, spares: bool
    ) -> list[list[tuple[Any, ...]] | BaseException]:
        """Make calls of different keys, so many at once as may be; what came of each, or what it raised in
        the end.

        Unless it `spares` others, one that the user's code failed stops all, and what the others came to is
        an empty list. A CallVoid, or TooMuch of one key, is that key's own. Raises TooMuch where all together
        put out more than `held` says.
        """
        self._held, self._made, self._done, self._look_at = held, [], 0, LOOK_CALLS

        def stops(error: BaseException) -> bool:
            if isinstance(error, CallVoid | TooMuch):
                return isinstance(error, _PutOutTooMuch)
            return not spares

        try:
            outcomes = self._calls.outcomes(calls, stops)
        finally:
            self._held, self._made = None, []
        found: list[list[tuple[Any, ...]] | BaseException] = []
        for one in outcomes:
            if isinstance(one, CallFailed):
                if isinstance(one.error, _PutOutTooMuch):
                    raise TooMuch(str(one.error))
                found.append(one.error)
            else:
                found.append(one or [])
        return found

    async def _call(self, call: KeyCall) -> list[tuple[Any, ...]]:
        state = call.state
        saved = state.savepoint(call.key)
        turns = _Turns(self._cursor, state, call.key, saved)
        try:
            rows: list[tuple[Any, ...]] = await turns.over(_finished(call))
        except BaseException:
            state.undo(saved)
            if state.failure is not None:
                raise CallVoid from state.failure
            raise
        finally:
            turns.end()
        if state.failure is not None:
            raise CallVoid from state.failure
        self._look(rows)
        return rows

    def _look(self, rows: list[tuple[Any, ...]]) -> None:
        if self._held is None:
            return
        self._made += rows
        self._done += 1
        if self._done == self._look_at:
            self._look_at *= 2
            try:
                self._held.check(self._made)
            except TooMuch as much:
                raise _PutOutTooMuch(str(much)) from None


class CallVoid(Exception):
    """The key's state could not be loaded: the state's `failure` says why."""


class _PutOutTooMuch(TooMuch):
    """All calls together, and not a single one."""


async def _finished(call: KeyCall) -> list[tuple[Any, ...]]:
    """The call from its beginning to what came of it."""
    result = call.begin()
    if inspect.isasyncgen(result):
        result = [made async for made in result]
    elif inspect.isawaitable(result):
        result = await result
    return call.read(result)


class _Turns:
    """Runs a coroutine with its key at hand whenever it runs, and not while it waits."""

    def __init__(self, cursor: Cursor, state: ShardState, key: Key, saved: Savepoint) -> None:
        self._cursor = cursor
        self._state = state
        self._record = state.begin(key)
        self._saved = saved
        self._iterators: dict[str, tuple[Any, Iterator[Any]]] = {}

    def over(self, coroutine: Coroutine[Any, Any, Any]) -> _Awaited:
        return _Awaited(coroutine, self._enter, self._leave)

    def _enter(self) -> None:
        self._cursor.at(self._state, self._record)
        self._cursor.iterators = self._iterators
        self._state.resume(self._saved)

    def _leave(self) -> None:
        self._cursor.iterators = {}
        self._cursor.leave()

    def end(self) -> None:
        """The call is over."""
        self._iterators.clear()


class _Awaited:
    """A coroutine that is awaited step by step: before each `enter` is called, behind each `leave`."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], enter: Callable[[], None], leave: Callable[[], None]
    ) -> None:
        self._coroutine = coroutine
        self._enter = enter
        self._leave = leave

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        raised: BaseException | None = None
        while True:
            self._enter()
            try:
                send = self._coroutine.send
                waits_for = send(value) if raised is None else self._coroutine.throw(raised)
            except StopIteration as stop:
                return stop.value
            finally:
                self._leave()
            try:
                value, raised = (yield waits_for), None
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's, a cancellation above all
                value, raised = None, error
