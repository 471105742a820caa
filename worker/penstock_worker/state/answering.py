"""A process that answers what is asked of a topology's state and dead letters: `python -m
penstock_worker.state.answering`, by frames on its input and output.

`penstock run`'s commands start it beside a run, or what one has left; in a cluster they have it started in a
worker's pod, whose login to the stores it has. It reads as a shard's owner does, and writes orders into
inboxes, nothing else. It ends with its input, and where nobody asks any more. Neighbours: `stored_state`,
`penstock.store.dead_letters` and `kept_questions`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.api.launch.worker_launch import ENV_STORE_URL
from penstock.dataflow.partitions import operator_of
from penstock.errors import PenstockError
from penstock.store import kept_questions as kept
from penstock.store.dead_letters import DeadLetters, Place
from penstock.store.letters import Letter
from penstock.store.ownership import OwnershipLost
from penstock.store.redis.connection import url_beside
from penstock.store.redis.store import RedisStore
from penstock.store.shard_homes import PAUSE_S, TRIES, ShardHomes
from penstock_worker.state.stored_state import StoredState

IDLE_S = 120
"""So long a question is waited for, and an answer may take beyond what it is to wait."""
_READ_BYTES = 1 << 16
_NICENESS = 10
"""Tasks that run beside it come first."""


class Answering:
    """Answers about one topology's shards. `now_ms` is the steady clock."""

    def __init__(
        self,
        homes: ShardHomes,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._homes = homes
        self._letters = DeadLetters(homes, sleep)
        self._now_ms = now_ms
        self._sleep = sleep

    def answers(self, question: kept.Message) -> Iterator[kept.Answer]:
        """What a question is answered by; the last one is `Failed` where it cannot be."""
        try:
            yield from self._answers(question)
        except PenstockError as error:
            yield kept.Failed(str(error))

    def _answers(self, question: kept.Message) -> Iterator[kept.Answer]:
        match question:
            case kept.ListLetters():
                yield from self._list(question)
            case kept.ShowLetter(place):
                yield _at(place, self._letters.one(place))
            case kept.PlaceOrder(doing, place):
                self._letters.order(doing, place)
                yield kept.Done()
            case kept.AwaitOrder(place, attempts, timeout_s):
                try:
                    yield _at(place, self._letters.outcome(place, attempts, timeout_s))
                except TimeoutError:
                    yield kept.NotYet()
            case kept.AskState():
                yield self._state(question)
            case kept.ListKeys():
                yield self._keys(question)
            case _:
                yield kept.Failed(f"{type(question).__name__} is no question")

    def _list(self, question: kept.ListLetters) -> Iterator[kept.Answer]:
        told_bytes = 0
        for told, (place, letter) in enumerate(self._letters.all(question.operator)):
            if (question.most and told == question.most) or told_bytes > kept.LISTED_BYTES_MAX:
                yield kept.Listed(are_all=False)
                return
            answer = _at(place, letter, is_brief=question.is_brief)
            if not question.is_brief:
                told_bytes += len(kept.framed(answer))
            yield answer
        yield kept.Listed(are_all=True)

    def _state(self, question: kept.AskState) -> kept.KeysState:
        """Looked for where the key's hash leads; where nothing is there, in the operator's other shards: a
        routing table may have sent the key to one."""
        others = self._homes.of_operator(operator_of(question.shard))
        for shard in dict.fromkeys((question.shard, *others)):
            found = self._state_in(shard, question)
            if found is None:
                return kept.KeysState(is_settled=False)
            if found:
                return kept.KeysState(found)
        return kept.KeysState()

    def _state_in(self, shard: str, question: kept.AskState) -> dict[str, Any] | None:
        """None where the shard's owner changes each time."""
        for _ in range(TRIES):
            found = self._homes.find(shard)
            if found is None:
                return {}
            try:
                state = StoredState(found, question.key_types, self._now_ms())
                return state.of(tuple(question.key))
            except OwnershipLost:
                self._sleep(PAUSE_S)
        return None

    def _keys(self, question: kept.ListKeys) -> kept.Keys:
        keys: list[list[Any]] = []
        refused: list[str] = []
        for shard in self._homes.of_operator(question.operator):
            found = self._homes.find(shard)
            if found is None:
                continue
            try:
                for key in StoredState(found, question.key_types, self._now_ms()).all_keys():
                    if len(keys) == question.most:
                        return kept.Keys(keys, refused)
                    keys.append(key)
            except OwnershipLost:
                refused.append(shard)
        return kept.Keys(keys, refused)


def _at(place: Place, letter: Letter | None, *, is_brief: bool = False) -> kept.LetterAt | kept.Gone:
    if letter is None:
        return kept.Gone()
    rows = len(letter.rows)
    if is_brief:
        letter = Letter(
            letter.kind,
            None,
            [],
            [],
            letter.error,
            letter.at_ms,
            letter.place,
            letter.attempts,
            letter.expiry_ms,
        )
    return kept.LetterAt(place, letter, rows)


def opened(opening: kept.Opening, environment: Mapping[str, str]) -> ShardHomes:
    """The shards of a topology; connections are made when they are first needed."""
    own = environment.get(ENV_STORE_URL, "")
    stores = {
        id_: RedisStore(address if "://" in address else url_beside(own, address), opening.topology_uid)
        for id_, address in opening.stores.items()
    }
    return ShardHomes(opening.homes, stores)


def answer_all(
    read: Callable[[], bytes], write: Callable[[bytes], object], environment: Mapping[str, str]
) -> None:
    """Until the input ends. Raises NoQuestion for what is no message."""
    write(kept.framed(kept.Hello()))
    frames = kept.Frames(read)
    signal.alarm(IDLE_S)
    opening = frames.next()
    if opening is None:
        return
    if not isinstance(opening, kept.Opening):
        raise kept.NoQuestion(f"the first message is {type(opening).__name__}, and has to be Opening")
    answering = Answering(opened(opening, environment))
    while (question := frames.next()) is not None:
        waits_s = question.timeout_s if isinstance(question, kept.AwaitOrder) else 0.0
        signal.alarm(IDLE_S + int(waits_s))
        for answer in answering.answers(question):
            write(kept.framed(answer))
            signal.alarm(IDLE_S)


def main() -> None:
    # Nothing that some module prints may come between the answers.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.nice(_NICENESS)

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(answers, view) :]

    answer_all(lambda: os.read(sys.stdin.fileno(), _READ_BYTES), write, os.environ)


if __name__ == "__main__":
    main()
