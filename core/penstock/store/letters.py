"""Dead letters: rows that an operator's code could not work on, as they lie in their shard's state.

They lie in a collection of the operator's, which no state variable can have. So the commit that goes past
the rows writes them with its offset, they move with the shard, and count in what it takes. A letter is known
by the number of that commit and its place in it. Its field holds the letter; of a large one the parts lie
beside it. One more field has how many letters there are.

Whoever wants one to be worked on again, or dropped, says so by an entry in the shard's inbox
(`encode_order`), under the name of a producer that is no shard; the shard's owner carries it out with the
commit that goes past that entry. An order is about letters that are there: one that comes twice finds none,
and does nothing. So whoever places it may do so again. Where a routing table has taken the letter's key to
another shard meanwhile, the owner sends the letter there, within an order.

Neighbours: the worker's `letter_box` writes, `dead_letters` reads and orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from penstock.store import codec
from penstock.store.port import StateWrite

_LETTERS = b"d"
_COUNTED = b"n"
FIRST_BYTE = 0x92
"""An array of two; a batch is one of three, a fragment one of four, around initial state is one of one. A
mark of a routing table is one of two as well: it begins with a number, an order with a text."""
_TEXT = range(0xA0, 0xC0)
"""First bytes of short texts."""
PART_BYTES = 128 << 10
CLERK = "dead-letters!"
"""The producer of orders."""
REPLAY = "replay"
DROP = "drop"
_BROUGHT = "brought"

ROWS = "rows"
TIMER = "timer"
INITIAL = "initial"
INPUT = "input"
"""What a letter is about: rows of a key, or of a step; a timer that fired; initial state; a line or record
that means nothing."""


class LetterId(NamedTuple):
    """The commit that wrote it, and its place among that one's letters. As text `481.0`."""

    commit: int
    place: int

    def __str__(self) -> str:
        return f"{self.commit}.{self.place}"


def letter_id(text: str) -> LetterId:
    """Inverse of `str`. Raises ValueError."""
    commit, _, place = text.partition(".")
    return LetterId(int(commit), int(place))


class Letter(msgspec.Struct, frozen=True, array_like=True):
    """`rows` are wire rows as the operator was to be given them, of `key` where it has keys, each with its
    source timestamp. `error` is a bounded text for people, `at_ms` the wall clock when it was raised. `place`
    says where the rows came from, `attempts` how often they were tried. A timer has `expiry_ms`."""

    kind: str
    key: list[Any] | None
    rows: list[Any]
    stamps_us: list[int]
    error: str
    at_ms: int
    place: str
    attempts: int = 1
    expiry_ms: int | None = None
    due_us: int = 0
    """Of rows that are to be tried again, when that is, by the steady clock,"""
    watermark_ms: int | None = None
    """and what TimerValues told when they came; None where there is no event time."""

    @property
    def raised(self) -> str:
        """The line of `error` that says what was raised: the last one of a traceback that is no place."""
        lines = [line for line in self.error.splitlines() if line and not line.startswith(" ")]
        return lines[-1] if lines else ""


class Kept(NamedTuple):
    """How many letters an operator has in a shard, how many rows they have, and how many bytes."""

    letters: int = 0
    rows: int = 0
    size_bytes: int = 0


class Order(msgspec.Struct, frozen=True, array_like=True):
    """The letter that something is to be done with."""

    operator: str
    letter: LetterId


class Carried(msgspec.Struct, frozen=True, array_like=True):
    """A letter that is to be worked on again, and lies in no shard any more."""

    operator: str
    letter: Letter


_LETTER = msgspec.msgpack.Decoder(Letter)
_KEPT = msgspec.msgpack.Decoder(Kept)
_HEAD = msgspec.msgpack.Decoder(tuple[int, bytes])
_FIELD = msgspec.msgpack.Decoder(tuple[int, ...])
_SAID = msgspec.msgpack.Decoder(tuple[str, Order])
_CARRYING = msgspec.msgpack.Decoder(tuple[str, Carried])
_CARRYING_HEAD = codec.pack((_BROUGHT, None))[:-1]
COUNTED = _COUNTED
"""The field of how many there are."""


def collection_of(operator: str) -> bytes:
    """Where the letters of an operator lie, in each shard of its stage."""
    return _LETTERS + operator.encode()


def operator_of(collection: bytes) -> str | None:
    """Inverse of `collection_of`; None for a collection of something else."""
    return collection[1:].decode() if collection[:1] == _LETTERS else None


def head_field(of: LetterId) -> bytes:
    return codec.pack(tuple(of))


def part_fields(of: LetterId, head: bytes) -> list[bytes]:
    """The fields of a letter's parts, by what its head holds; none where that holds all."""
    parts, _ = _HEAD.decode(head)
    return [codec.pack((*of, number)) for number in range(parts)]


def packed(letter: Letter) -> bytes:
    """Raises UnicodeEncodeError for a text that is no Unicode."""
    return codec.pack(letter)


def decode_letter(body: bytes) -> Letter:
    return _LETTER.decode(body)


def written(operator: str, of: LetterId, body: bytes) -> list[StateWrite]:
    """The writes that put a letter there."""
    collection = collection_of(operator)
    if len(body) <= PART_BYTES:
        return [StateWrite(collection, head_field(of), codec.pack((0, body)))]
    pieces = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)]
    return [
        StateWrite(collection, head_field(of), codec.pack((len(pieces), b""))),
        *(StateWrite(collection, codec.pack((*of, number)), piece) for number, piece in enumerate(pieces)),
    ]


def removed(operator: str, of: LetterId, head: bytes) -> list[StateWrite]:
    """The writes that take a letter away, of which `head` holds what its head does."""
    fields = (head_field(of), *part_fields(of, head))
    return [StateWrite(collection_of(operator), field, None) for field in fields]


def counted(operator: str, kept: Kept) -> StateWrite:
    return StateWrite(collection_of(operator), _COUNTED, codec.pack(kept))


def decode_kept(raw: bytes | None) -> Kept:
    return Kept() if raw is None else _KEPT.decode(raw)


def body_of(head: bytes, pieces: Iterable[bytes]) -> bytes:
    """A letter, of what its head holds and its parts in order."""
    _, body = _HEAD.decode(head)
    return body or b"".join(pieces)


def ids_among(fields: Iterable[bytes]) -> Iterator[LetterId]:
    """The letters whose heads are among these fields of an operator's collection."""
    for field in fields:
        numbers = () if field == _COUNTED else _FIELD.decode(field)
        if len(numbers) == 2:
            yield LetterId(*numbers)


def letters_in(fields: Mapping[bytes, bytes]) -> dict[LetterId, Letter]:
    """The letters of an operator's collection in one shard, the oldest first."""
    found: dict[LetterId, Letter] = {}
    for of in ids_among(fields):
        head = fields[head_field(of)]
        parts = part_fields(of, head)
        if all(part in fields for part in parts):
            found[of] = decode_letter(body_of(head, (fields[part] for part in parts)))
    return dict(sorted(found.items()))


def is_order(payload: bytes) -> bool:
    """Whether an inbox entry is no rows, but says what is to be done with letters."""
    return payload[0] == FIRST_BYTE and payload[1] in _TEXT


def encode_order(doing: str, operator: str, letter: LetterId) -> bytes:
    """`doing` is REPLAY or DROP."""
    return codec.pack((doing, Order(operator, letter)))


def encode_carried(operator: str, letter: Letter) -> bytes:
    """The order to work again on a letter that comes along with it."""
    return codec.pack((_BROUGHT, Carried(operator, letter)))


def carried_by(order: bytes) -> Carried | None:
    """The letter that an order brings along; None for one about a letter that is in the shard."""
    return _CARRYING.decode(order)[1] if order.startswith(_CARRYING_HEAD) else None


def decode_order(payload: bytes) -> tuple[str, Order]:
    """What is to be done with a letter that is in the shard, and which it is."""
    return _SAID.decode(payload)
