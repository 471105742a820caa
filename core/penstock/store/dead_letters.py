"""The dead letters of a topology, for people: which there are, and orders about them.

Letters are read as their shard's owner reads its state, and changed by nobody but that owner: an order is an
entry in the shard's inbox. Neighbours: `letters` says how both look, `shard_homes` where a shard is, the
worker's `state.answering` works with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from penstock.dataflow.on_error import operator_of_dead_letters
from penstock.errors import PermanentError
from penstock.store.codec import decode_counts
from penstock.store.letters import (
    CLERK,
    Letter,
    LetterId,
    body_of,
    collection_of,
    decode_letter,
    encode_order,
    head_field,
    ids_among,
    letter_id,
    part_fields,
)
from penstock.store.port import Answer, Append, Load, Reopen, Scan
from penstock.store.shard_homes import PAUSE_S, TRIES, ShardFound, ShardHomes, ShardUnsettled

_SCAN_FIELDS = 512


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
    """Of one topology. Calls raise StoreUnreachable and ShardUnsettled. No more of them is held at a time
    than one letter and a page of a shard's state."""

    def __init__(
        self,
        homes: ShardHomes,
        sleep: Callable[[float], None] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._homes = homes
        self._sleep = sleep
        self._clock_s = clock_s

    def all(self, operator: str = "") -> Iterator[tuple[Place, Letter]]:
        """Every letter, of one operator where that is named, shard by shard, the oldest first."""
        for found in self._homes.all():
            for name in decode_counts(found.counters.counts):
                of_operator = operator_of_dead_letters(name)
                if of_operator is None or (operator and of_operator != operator):
                    continue
                for of in self._ids(of_operator, found):
                    place = Place(of_operator, found.shard, of)
                    letter = self.one(place)
                    if letter is not None:
                        yield place, letter

    def one(self, place: Place) -> Letter | None:
        """A letter; None where it is not there, or not any more."""
        for _ in range(TRIES):
            found = self._homes.find(place.shard)
            if found is None:
                return None
            head = self._loaded(found, place, [head_field(place.of)])
            if head is not None:
                if head[0] is None:
                    return None
                pieces = self._loaded(found, place, part_fields(place.of, head[0]))
                letter = None if pieces is None else _read(head[0], pieces)
                if letter is not None:
                    return letter
            self._sleep(PAUSE_S)
        raise _unsettled(place.shard)

    def order(self, doing: str, place: Place) -> None:
        """Have a letter worked on again, or dropped (`doing` is `letters.REPLAY` or `DROP`): the shard's
        owner does it. Raises PermanentError where the shard takes no entry."""
        payload = encode_order(doing, place.operator, place.of)
        taken, beyond, number = 0, 0, 1
        tries = 0
        while True:
            found = self._homes.find(place.shard)
            if found is None:
                raise PermanentError(f"no store knows shard {place.shard}")
            answer = found.store.call(Append(CLERK, place.shard, number, payload, 0, time.time_ns() // 1000))
            if answer is Answer.OK:
                break
            if answer is Answer.DUP:
                taken = number
            elif answer is Answer.GAP:
                beyond = number
            elif tries == TRIES:
                raise PermanentError(f"shard {place.shard} takes no orders now ({answer}); try again")
            else:
                tries += 1
                self._sleep(PAUSE_S)
                continue
            if beyond <= taken + 1:
                beyond = 0
            number = (taken + beyond) // 2 if beyond > taken + 1 else max(taken + 1, 2 * taken)
        self._open(place.shard)

    def outcome(self, place: Place, attempts: int, timeout_s: float) -> Letter | None:
        """What an order about a letter with so many attempts came to: the letter that stays, tried once more;
        None for one that is gone. Raises TimeoutError where it was not carried out by then."""
        deadline_s = self._clock_s() + timeout_s
        while True:
            letter = self.one(place)
            if letter is None or letter.attempts > attempts:
                return letter
            if self._clock_s() >= deadline_s:
                raise TimeoutError
            self._sleep(PAUSE_S)

    def _open(self, shard: str) -> None:
        """A source that was read to its end is asked by nobody else."""
        found = self._homes.find(shard)
        if found is not None and found.counters.finished:
            found.store.call(Reopen(shard))

    def _ids(self, operator: str, found: ShardFound) -> list[LetterId]:
        """The letters that lie there, as an owner sees it: read anew where the owner changes meanwhile."""
        now: ShardFound | None = found
        for _ in range(TRIES):
            if now is None:
                return []
            ids = self._scanned(operator, now)
            if ids is not None:
                return sorted(ids)
            self._sleep(PAUSE_S)
            now = self._homes.find(found.shard)
        raise _unsettled(found.shard)

    def _scanned(self, operator: str, found: ShardFound) -> set[LetterId] | None:
        ids: set[LetterId] = set()
        seen, cursor = found.counters, "0"
        while True:
            collection = collection_of(operator)
            scan = Scan(found.shard, seen.generation, seen.epoch, collection, cursor, _SCAN_FIELDS)
            answer = found.store.call(scan)
            if isinstance(answer, Answer):
                return None
            cursor, fields = answer
            ids.update(ids_among(field for field, _ in fields))
            if cursor == "0":
                return ids

    def _loaded(self, found: ShardFound, place: Place, fields: list[bytes]) -> list[bytes | None] | None:
        """What stands in fields of the operator's letters; None where the shard has another owner by now."""
        seen, values = found.counters, list[bytes | None]()
        while len(values) < len(fields):
            missing = tuple(fields[len(values) :])
            load = Load(place.shard, seen.generation, seen.epoch, collection_of(place.operator), missing)
            answer = found.store.call(load)
            if isinstance(answer, Answer):
                return None
            values += answer
        return values


def _read(head: bytes, pieces: list[bytes | None]) -> Letter | None:
    """None for one that was written anew while it was read."""
    whole = [piece for piece in pieces if piece is not None]
    if len(whole) < len(pieces):
        return None
    try:
        return decode_letter(body_of(head, whole))
    except msgspec.DecodeError:
        return None


def _unsettled(shard: str) -> ShardUnsettled:
    return ShardUnsettled(f"shard {shard} changes its owner again and again; try again later")
