"""Calls of a processor that may fail: what one key's call raises costs that key's rows, and no other's.

What the call did to its key's state and timers is undone, and its rows are handed over in parts until single
ones are left that it fails on: these are refused, and all others worked. Neighbours: `keyed_stage` calls this
instead of the runner where its operator has an `onError`, `letter_box` keeps what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any, NamedTuple, Protocol

from penstock.dataflow.on_error import taken_apart
from penstock.store.letters import INITIAL, ROWS, TIMER
from penstock_worker.state.cache import Key, ShardState
from penstock_worker.user_code.running import ProcessorRunner, UserCodeError
from penstock_worker.values.held import ONE_ROW, Held


class Refused(NamedTuple):
    """What a call of a processor failed on: one row, or a timer."""

    kind: str
    key: Key
    rows: list[Any]
    error: str
    expiry_ms: int | None = None
    calls: int = 1
    """How often it was called, where it was tried again."""


class Calls(Protocol):
    """As a `ProcessorRunner` calls its processor."""

    def begin(self, state: ShardState, key: Key, rows: Sequence[Any], now_ms: int) -> None: ...

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ...,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]: ...

    def expire(
        self, state: ShardState, key: Key, expiry_ms: int, now_ms: int, held: Held = ...
    ) -> list[tuple[Any, ...]]: ...


class SparedCalls:
    """Has `begin`, `run` and `expire` as `runner` has, which raise no UserCodeError; `refused` has what they
    came to since `clear`."""

    def __init__(self, runner: ProcessorRunner) -> None:
        self._runner = runner
        self.refused: list[Refused] = []

    def clear(self) -> None:
        """The calls are made anew, or what they refused was taken."""
        self.refused = []

    def begin(self, state: ShardState, key: Key, rows: Sequence[Any], now_ms: int) -> None:
        def call(some: Sequence[Any]) -> Sequence[Any]:
            saved = state.savepoint(key)
            try:
                self._runner.begin(state, key, some, now_ms)
            except UserCodeError:
                state.undo(saved)
                raise
            return ()

        try:
            call(rows)
        except UserCodeError as error:
            taken_apart(rows, call, self._refusing(INITIAL, key), UserCodeError, error)

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ONE_ROW,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        saved = state.savepoint(key)
        try:
            return self._runner.run(state, key, rows, now_ms, held, given)
        except UserCodeError as error:
            state.undo(saved)
            return self._apart(state, key, rows, now_ms, held, error)

    def _apart(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held,
        error: UserCodeError,
    ) -> list[tuple[Any, ...]]:
        def call(some: Sequence[Any]) -> list[tuple[Any, ...]]:
            saved = state.savepoint(key)
            try:
                return self._runner.run(state, key, some, now_ms, held)
            except UserCodeError:
                state.undo(saved)
                raise

        taken = methodcaller("rows_taken")
        return taken_apart(rows, call, self._refusing(ROWS, key), UserCodeError, error, taken)

    def expire(
        self, state: ShardState, key: Key, expiry_ms: int, now_ms: int, held: Held = ONE_ROW
    ) -> list[tuple[Any, ...]]:
        saved = state.savepoint(key)
        try:
            return self._runner.expire(state, key, expiry_ms, now_ms, held)
        except UserCodeError as error:
            state.undo(saved)
            self._runner.set_timer(state, key, expiry_ms, there=False)
            self.refused.append(Refused(TIMER, key, [], str(error), expiry_ms))
            return []

    def _refusing(self, kind: str, key: Key) -> Any:
        def refuse(row: Any, error: Exception) -> None:
            self.refused.append(Refused(kind, key, [row], str(error)))

        return refuse


class PoisonedCalls:
    """`usual`, but that nothing is called for the keys that `is_poison` knows: tasks have crashed at it."""

    def __init__(self, usual: Calls, refusing: RefusingCalls, is_poison: Callable[[Key], bool]) -> None:
        self._usual = usual
        self.refusing = refusing
        self.is_poison = is_poison

    def begin(self, state: ShardState, key: Key, rows: Sequence[Any], now_ms: int) -> None:
        self._of(key).begin(state, key, rows, now_ms)

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ONE_ROW,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        return self._of(key).run(state, key, rows, now_ms, held, given)

    def expire(
        self, state: ShardState, key: Key, expiry_ms: int, now_ms: int, held: Held = ONE_ROW
    ) -> list[tuple[Any, ...]]:
        return self._of(key).expire(state, key, expiry_ms, now_ms, held)

    def _of(self, key: Key) -> Calls:
        return self.refusing if self.is_poison(key) else self._usual


class RefusingCalls:
    """Calls nothing: all that is handed over becomes a letter of `spared`'s, with `error`. For a row that
    comes to more than anybody can hold."""

    def __init__(self, spared: SparedCalls, runner: ProcessorRunner, error: str) -> None:
        self._refused = spared.refused
        self._runner = runner
        self._error = error

    def begin(self, state: ShardState, key: Key, rows: Sequence[Any], now_ms: int) -> None:
        self._refused.extend(Refused(INITIAL, key, [row], self._error) for row in rows)

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ONE_ROW,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        self._refused.extend(Refused(ROWS, key, [row], self._error) for row in rows)
        return []

    def expire(
        self, state: ShardState, key: Key, expiry_ms: int, now_ms: int, held: Held = ONE_ROW
    ) -> list[tuple[Any, ...]]:
        self._runner.set_timer(state, key, expiry_ms, there=False)
        self._refused.append(Refused(TIMER, key, [], self._error, expiry_ms))
        return []
