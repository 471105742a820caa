"""The dead letters of a run: which there are, and orders about them.

Letters are read as their shard's owner reads its state, and changed by nobody but that owner: an order is an
entry in the shard's inbox. Neighbours: `penstock.store.letters` says how both look, `opened_store`
opens the store, `cli.dead_letters` shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.dataflow.on_error import operator_of_dead_letters
from penstock.errors import PermanentError
from penstock.store.codec import decode_counts
from penstock.store.letters import (
    CLERK,
    Letter,
    LetterId,
    collection_of,
    encode_order,
    letter_id,
    letters_in,
)
from penstock.store.port import (
    Answer,
    Append,
    Measure,
    NodeStore,
    ReadGeneration,
    Reopen,
    Scan,
    ShardCounters,
)

_SCAN_FIELDS = 512
_PAUSE_S = 0.05
_TRIES = 100
"""A shard that changes its owner again and again is asked so often, and an inbox without room."""


class LetterUnknown(PermanentError):
    """What is called so is no letter; the message says what is."""


class Place(NamedTuple):
    """Where a letter lies, and how it is called: count@count/3:481.0."""

    operator: str
    shard: str
    of: LetterId

    def __str__(self) -> str:
        return f"{self.operator}@{self.shard}:{self.of}"


def place_of(text: str) -> Place:
    """Inverse of `str`. Raises LetterUnknown."""
    operator, _, rest = text.partition("@")
    shard, _, of = rest.rpartition(":")
    try:
        return Place(operator, shard, letter_id(of))
    except ValueError:
        message = f"{text!r} is no dead letter's name; it is like count@count/3:481.0, as the list shows it"
        raise LetterUnknown(message) from None


class DeadLetters:
    """Of one topology's store. `shards` are all shards by stage."""

    def __init__(
        self,
        store: NodeStore,
        shards: Mapping[str, Sequence[str]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._shards = tuple(shard for names in shards.values() for shard in names)
        self._sleep = sleep

    def all(self, operator: str = "") -> Iterator[tuple[Place, Letter]]:
        """Every letter, of one operator where that is named, shard by shard, the oldest first."""
        counters = self._store.call(Measure(self._shards))
        for shard, seen in zip(self._shards, counters, strict=True):
            if seen is None:
                continue
            for name in decode_counts(seen.counts):
                found = operator_of_dead_letters(name)
                if found is None or (operator and found != operator):
                    continue
                for of, letter in letters_in(self._fields(found, shard, seen)).items():
                    yield Place(found, shard, of), letter

    def one(self, place: Place) -> Letter | None:
        """A letter; None where it is not there, or not any more."""
        (seen,) = self._store.call(Measure((place.shard,)))
        if seen is None:
            return None
        return letters_in(self._fields(place.operator, place.shard, seen)).get(place.of)

    def order(self, doing: str, place: Place) -> None:
        """Have a letter worked on again, or dropped. Raises PermanentError where the shard takes no entry."""
        payload = encode_order(doing, place.operator, place.of)
        taken, beyond, number = 0, 0, 1
        tries = 0
        while True:
            answer = self._store.call(Append(CLERK, place.shard, number, payload, 0, time.time_ns() // 1000))
            if answer is Answer.OK:
                break
            if answer is Answer.DUP:
                taken = number
            elif answer is Answer.GAP:
                beyond = number
            elif tries == _TRIES or answer is Answer.UNKNOWN:
                raise PermanentError(f"shard {place.shard} takes no orders now ({answer}); try again")
            else:
                tries += 1
                self._sleep(_PAUSE_S)
                continue
            if beyond <= taken + 1:
                beyond = 0
            number = (taken + beyond) // 2 if beyond > taken + 1 else max(taken + 1, 2 * taken)
        (seen,) = self._store.call(Measure((place.shard,)))
        if seen is not None and seen.finished:
            # A source that was read to its end is asked by nobody else.
            self._store.call(Reopen(place.shard))

    def outcome(self, place: Place, before: Letter, timeout_s: float) -> Letter | None:
        """What an order came to: the letter that stays, tried once more; None for one that is gone. Raises
        TimeoutError where it was not carried out by then."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            letter = self.one(place)
            if letter is None or letter.attempts > before.attempts:
                return letter
            if time.monotonic() >= deadline_s:
                raise TimeoutError
            self._sleep(_PAUSE_S)

    def _fields(self, operator: str, shard: str, seen: ShardCounters) -> dict[bytes, bytes]:
        """What lies there, as an owner sees it: read anew where the owner changes meanwhile."""
        for _ in range(_TRIES):
            found = self._scanned(operator, shard, seen)
            if found is not None:
                return found
            self._sleep(_PAUSE_S)
            (now,) = self._store.call(Measure((shard,)))
            seen = now or seen
        raise PermanentError(f"shard {shard} changes its owner again and again; try again later")

    def _scanned(self, operator: str, shard: str, seen: ShardCounters) -> dict[bytes, bytes] | None:
        found: dict[bytes, bytes] = {}
        generation, cursor = self._store.call(ReadGeneration()), "0"
        while True:
            scan = Scan(shard, generation, seen.epoch, collection_of(operator), cursor, _SCAN_FIELDS)
            answer = self._store.call(scan)
            if isinstance(answer, Answer):
                return None
            cursor, fields = answer
            found.update(fields)
            if cursor == "0":
                return found
