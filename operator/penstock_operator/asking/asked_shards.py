"""A topology's dead letters and state, as a process that stands at its stores answers for them.

The same for a run on this machine and for a cluster: what differs is the `line`, and where the stores are
(`Opening`). Neighbours: `penstock.store.kept_questions` has the messages, the worker's `state.answering`
answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.dataflow.plan import Plan, Processor
from penstock.errors import PermanentError
from penstock.store import kept_questions as kept
from penstock.store.dead_letters import Place
from penstock.store.letters import Letter
from penstock_operator.asking.keys import shard_of_key
from penstock_operator.asking.line import Line, LineBroken

ANSWER_S = 60.0
"""So long an answer is waited for: a worker may have little of a core."""

A = TypeVar("A", bound=kept.Message)


@dataclass(frozen=True, slots=True)
class Listed:
    """A letter, and how many rows it has; whether or not they are here."""

    place: Place
    letter: Letter
    rows: int


class AskedShards:
    """Of the topology that is opened with it. Calls raise LineBroken, and PermanentError for what the asked
    process cannot do."""

    def __init__(self, line: Line, opening: kept.Opening) -> None:
        self._line = line
        self._wait_s = ANSWER_S
        self._frames = kept.Frames(lambda: line.receive(self._wait_s))
        self._are_all = True
        hello = self._next(kept.Hello)
        if hello.version != kept.VERSION:
            raise PermanentError(
                f"what answers speaks version {hello.version}, this command {kept.VERSION}: use the command"
                " of the version that runs there"
            )
        self._send(opening)

    @property
    def are_all(self) -> bool:
        """Whether what was listed last had all that there are."""
        return self._are_all

    def letters(self, operator: str = "", most: int = 0, *, is_brief: bool = False) -> Iterator[Listed]:
        """Letters, of one operator where that is named, at most so many (0: all). `is_brief`: without rows
        and keys. To be read to its end before anything else is asked."""
        self._send(kept.ListLetters(operator, most, is_brief))
        answer = self._next(kept.LetterAt, kept.Listed)
        while isinstance(answer, kept.LetterAt):
            yield Listed(answer.place, answer.letter, answer.rows)
            answer = self._next(kept.LetterAt, kept.Listed)
        self._are_all = isinstance(answer, kept.Listed) and answer.are_all

    def letter(self, place: Place) -> Letter | None:
        """None where it is not there, or not any more."""
        self._send(kept.ShowLetter(place))
        answer = self._next(kept.LetterAt, kept.Gone)
        return answer.letter if isinstance(answer, kept.LetterAt) else None

    def order(self, doing: str, place: Place) -> None:
        """Have a letter worked on again, or dropped (`letters.REPLAY`, `DROP`), by the owner of its shard."""
        self._send(kept.PlaceOrder(doing, place))
        self._next(kept.Done)

    def outcome(self, place: Place, attempts: int, timeout_s: float) -> Letter | None:
        """The letter that stays, of more attempts; None for one that is gone. Raises TimeoutError where the
        order was not come to by then."""
        self._send(kept.AwaitOrder(place, attempts, timeout_s))
        self._wait_s = ANSWER_S + timeout_s
        try:
            answer = self._next(kept.LetterAt, kept.Gone, kept.NotYet)
        finally:
            self._wait_s = ANSWER_S
        if isinstance(answer, kept.NotYet):
            raise TimeoutError
        return answer.letter if isinstance(answer, kept.LetterAt) else None

    def state_of(self, operator: str, head: Processor, key: list[Any]) -> kept.KeysState:
        """What an operator keeps of a key (wire values)."""
        self._send(kept.AskState(shard_of_key(operator, head, key), list(head.key_types), key))
        return self._next(kept.KeysState)

    def keys_of(self, operator: str, head: Processor, most: int) -> kept.Keys:
        """The keys that an operator keeps something of."""
        self._send(kept.ListKeys(operator, list(head.key_types), most))
        return self._next(kept.Keys)

    def _send(self, message: kept.Message) -> None:
        self._line.send(kept.framed(message))

    def _next(self, *kinds: type[A]) -> A:
        message = self._frames.next()
        if isinstance(message, kept.Failed):
            raise PermanentError(message.why)
        if message is None:
            raise LineBroken("what answers has ended before it did")
        if not isinstance(message, kinds):
            raise kept.NoQuestion(f"{type(message).__name__} came, which is no answer to what was asked")
        return message


@dataclass(frozen=True, slots=True)
class AskedTopology:
    """A topology that is there to be asked about. `goes_on`: it works on what it is told now; else
    `who_comes_to_it` says in words who does, and when."""

    shards: AskedShards
    plan: Plan
    goes_on: bool
    who_comes_to_it: str = ""

    @property
    def sending(self) -> tuple[str, ...]:
        """The operators whose dead letters go to the topology's sink of them, and are not kept."""
        policies = {name: policy for stage in self.plan.stages for name, policy in stage.policies.items()}
        return tuple(name for name, policy in policies.items() if policy.to_sink)

    @property
    def letters_sink(self) -> str:
        """What that sink writes into, in words."""
        sinks = (stage.dead_letters for stage in self.plan.stages)
        return next((sink.identity_text() for sink in sinks if sink is not None), "")
