"""The copying part of a move: rounds of the pre-copy, and the rest after the freeze.

Neighbours: `mover` drives whole moves with it, `moves` has the calls and why they are safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.store.moving.progress import MoveObstacle, MoveStep
from penstock.store.port import Answer, Moved, NodeStore, Request, StoreFull, StoreUnreachable
from penstock.store.port.moves import (
    Chunk,
    Export,
    Freeze,
    Install,
    Installed,
    Move,
    MoveState,
    NextRound,
    ReadMove,
    Round,
)

A = TypeVar("A")

ROUNDS_MIN = 2
"""The first round does not copy inbox and outbox: they would be others by its end."""
ROUNDS_MAX = 10
SHRINKS_BY = 0.7
"""A round must leave fewer changes than it copied, times this; else more rounds would not help."""


class Blocked(Exception):
    """Something stands in the way of a move."""

    def __init__(self, obstacle: MoveObstacle) -> None:
        super().__init__(obstacle)
        self.obstacle = obstacle


class Overtaken(Exception):
    """Somebody else took the move further, or back: look again."""


@dataclass(slots=True)
class Sight:
    """How far a move is, as the driver sees it while it goes on."""

    shard: str
    step: MoveStep = MoveStep.PRECOPY
    target: str = ""
    copied_bytes: int = 0
    paused_bytes: int = 0
    paused_chunks: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """One of the two stores of a move; what it does not carry out is an obstacle."""

    store: NodeStore
    unreachable: MoveObstacle

    def call(self, call: Request[A]) -> A:
        answer: A = self.calls((call,))[0]
        return answer

    def calls(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """In one round trip."""
        with self._translated():
            return self.store.pipeline(calls)

    def ask(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        """Send calls, and hear their answers later: meanwhile the other end works."""
        with self._translated():
            answers = self.store.post(calls)

        def hear() -> list[Any]:
            with self._translated():
                return answers()

        return hear

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except StoreUnreachable as error:
            raise Blocked(self.unreachable) from error
        except StoreFull as error:
            raise Blocked(MoveObstacle.FULL) from error

    def state(self, shard: str) -> MoveState | None:
        return self.call(ReadMove(shard))


def source_end(store: NodeStore | None) -> End:
    return _end(store, MoveObstacle.SOURCE_UNREACHABLE)


def target_end(store: NodeStore | None) -> End:
    return _end(store, MoveObstacle.TARGET_UNREACHABLE)


def _end(store: NodeStore | None, unreachable: MoveObstacle) -> End:
    if store is None:
        raise Blocked(MoveObstacle.NO_SUCH_STORE)
    return End(store, unreachable)


def held_of(there: MoveState | None, move: Move) -> Installed:
    """What the target, at `there`, has of a move."""
    if there is not None and there.installed is not None and there.move == move:
        return there.installed
    return Installed(0, b"", complete=False)


def _is_little(at: Round) -> bool:
    """Whether the shard may be stopped at the end of this round: little is left, or it does not shrink.

    A shard that is little as a whole is not copied ahead at all.
    """
    if at.number == 0:
        return at.noted_fits
    if at.number < ROUNDS_MIN:
        return False
    return at.noted_fits or at.number >= ROUNDS_MAX or (at.number > 2 and at.noted > SHRINKS_BY * at.changes)


@dataclass(slots=True)
class Copy:
    """The copy of a shard, chunk by chunk; `installed` is what the target said last.

    While the target takes a chunk the source reads what comes after it: the `following` one, or, where a
    round ends, how far the copy is (`looking`).
    """

    sight: Sight
    source: End
    target: End
    move: Move
    installed: Installed
    chunk: Chunk | None = None
    following: Callable[[], list[Any]] | None = None
    looking: Callable[[], list[Any]] | None = None

    def rounds(self, at: Round, version: int, chunks_max: int) -> None:
        """Go on with the pre-copy, `at` this round; the step is COPY when it is frozen."""
        shard, move, source = self.sight.shard, self.move, self.source
        left = chunks_max
        while True:
            self.sight.round = at.number
            if self.installed.rounds == at.number and self.chunk is None:
                if _is_little(at):
                    self.chunk = _exported(source.call(Freeze(shard, move, version, self.installed.resume)))
                    self.sight.step = MoveStep.COPY
                    return
                resume = self.installed.resume
                answer, first = source.calls((NextRound(shard, move, resume), Export(shard, move, resume)))
                if answer is not Answer.OK and answer is not Answer.DONE:
                    raise Overtaken
                self.chunk = _exported(first)
                at = Round(at.number + 1, at.noted, 0, noted_fits=False)
            elif left == 0:
                return
            else:
                left -= 1
                self._one_more(goes_on=left > 0)
                if self.installed.rounds == at.number:
                    at = self._look()

    def _look(self) -> Round:
        asked, self.looking = self.looking, None
        (state,) = asked() if asked else (self.source.state(self.sight.shard),)
        if state is None or state.move != self.move or state.round is None:
            raise Overtaken
        at: Round = state.round
        return at

    def rest(self, chunks_max: int) -> None:
        """Copy what is left of a frozen shard; the step is DEPART when the target says that it has all."""
        for left in reversed(range(chunks_max)):
            if self.installed.complete:
                break
            before = self.sight.copied_bytes
            self._one_more(goes_on=left > 0)
            self.sight.paused_bytes += self.sight.copied_bytes - before
            self.sight.paused_chunks += 1
        if self.installed.complete:
            self.sight.step = MoveStep.DEPART

    def _one_more(self, *, goes_on: bool) -> None:
        """A chunk more; the same one again while the target clears what it had before.

        `goes_on`: another one will be wanted after it, if there is one.
        """
        shard, move, before = self.sight.shard, self.move, self.installed
        if self.chunk is None:
            asked, self.following = self.following, None
            (answer,) = asked() if asked else self.source.calls((Export(shard, move, before.resume),))
            self.chunk = _exported(answer)
        chunk = self.chunk
        if chunk.is_last or self.following or self.looking:
            pass
        elif chunk.rounds > before.rounds:
            self.looking = self.source.ask((ReadMove(shard),))
        elif goes_on:
            self.following = self.source.ask((Export(shard, move, chunk.resume),))
        self.installed = _taken(self.target.call(Install(shard, move, before.chunks + 1, chunk)))
        if self.installed != before:
            self.sight.copied_bytes += len(chunk.payload)
            self.chunk = None
            if self.installed.resume != chunk.resume:
                # another driver has been here
                self.following = self.looking = None


def _exported(answer: Chunk | Answer | Moved) -> Chunk:
    if not isinstance(answer, Chunk):
        raise Overtaken
    return answer


def _taken(answer: Installed | Answer) -> Installed:
    if isinstance(answer, Answer):
        raise Blocked(MoveObstacle.REFUSED if answer is Answer.STALE else MoveObstacle.UNKNOWN)
    return answer
