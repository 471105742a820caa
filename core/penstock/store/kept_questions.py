"""What `penstock state` and `penstock dead-letters` ask a process that stands where the stores are: one side
has the command line, the other knows what lies in a store.

Messages are frames on a stream of bytes: four bytes of length, then msgpack. The asked one says `Hello`; the
first frame that comes to it is an `Opening`, each further one a question. Each is answered by what is listed
beside it, or `Failed`. Neighbours: the worker's `state.answering` answers, the command's
`asking.asked_shards` asks; for a run on this machine one is beside the other, in a cluster the answering one
is in a worker's pod.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.errors import PermanentError
from penstock.store.dead_letters import Place
from penstock.store.letters import Letter

VERSION = 1
FRAME_BYTES_MAX = 256 << 20
"""A letter holds a batch of one key at most, which is a tenth of it."""
LISTED_BYTES_MAX = 64 << 20
"""Letters that are listed with their rows take no more than that together."""
_LENGTH = struct.Struct(">I")


class Message(msgspec.Struct, frozen=True, tag=True):
    """Of either side."""


class Hello(Message, frozen=True):
    """`version` is of what this module says."""

    version: int = VERSION


class Opening(Message, frozen=True):
    """A topology: `stores` are store id -> URL, or host:port for one that is reached with the asked one's own
    login; `homes` shard -> store id, of all its shards."""

    topology_uid: str
    stores: dict[str, str]
    homes: dict[str, str]


class ListLetters(Message, frozen=True):
    """`LetterAt` for each, then `Listed`. `operator` "" for all; at most `most` (0: all). `is_brief`: without
    rows and keys."""

    operator: str
    most: int = 0
    is_brief: bool = False


class ShowLetter(Message, frozen=True):
    """`LetterAt`, or `Gone`."""

    place: Place


class PlaceOrder(Message, frozen=True):
    """`Done`: the shard's owner will come to it. `doing` is `letters.REPLAY` or `DROP`."""

    doing: str
    place: Place


class AwaitOrder(Message, frozen=True):
    """`LetterAt` for one that stays, of more than so many attempts; `Gone`; or `NotYet`."""

    place: Place
    attempts: int
    timeout_s: float


class AskState(Message, frozen=True):
    """`KeysState`: what a shard holds of `key` (wire values). `key_types` are its operator's."""

    shard: str
    key_types: list[str]
    key: list[Any]


class ListKeys(Message, frozen=True):
    """`Keys`: at most `most` that an operator keeps something of."""

    operator: str
    key_types: list[str]
    most: int


class LetterAt(Message, frozen=True):
    """`rows` is how many the letter has, with or without them here."""

    place: Place
    letter: Letter
    rows: int


class Listed(Message, frozen=True):
    """`are_all` is False where there are more."""

    are_all: bool


class Gone(Message, frozen=True):
    """There is no such letter."""


class NotYet(Message, frozen=True):
    """The time is over."""


class Done(Message, frozen=True):
    """As asked."""


class KeysState(Message, frozen=True):
    """`variables` are what a key's hold, by name: a value, a list of values, or a list of pairs of key and
    value, each an object by columns. `is_settled` False: the shard's owner has changed meanwhile."""

    variables: dict[str, Any] = {}
    is_settled: bool = True


class Keys(Message, frozen=True):
    """`keys` are wire values. `refused` are the shards whose owner has changed meanwhile."""

    keys: list[list[Any]] = []
    refused: list[str] = []


class Failed(Message, frozen=True):
    """Why it cannot be, in a sentence."""

    why: str


Question = ListLetters | ShowLetter | PlaceOrder | AwaitOrder | AskState | ListKeys
Answer = LetterAt | Listed | Gone | NotYet | Done | KeysState | Keys | Failed

_ANY = Hello | Opening | Question | Answer
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_ANY)


class NoQuestion(PermanentError):
    """What came over the stream is none of these messages."""


def framed(message: Message) -> bytes:
    """Raises NoQuestion for one that is too large."""
    body = _ENCODER.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise NoQuestion(f"{type(message).__name__} takes {len(body)} bytes, more than can be sent")
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Messages of a stream. `read` answers its next bytes, as many as there are; b"" at its end."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._held = bytearray()

    def next(self) -> Message | None:
        """None at the stream's end. Raises NoQuestion."""
        head = self._taken(_LENGTH.size)
        if head is None:
            return None
        (size_bytes,) = _LENGTH.unpack(head)
        if size_bytes > FRAME_BYTES_MAX:
            raise NoQuestion(f"something else than an answer came: {head!r}")
        body = self._taken(size_bytes)
        if body is None:
            return None
        try:
            message: Message = _DECODER.decode(body)
        except msgspec.DecodeError as error:
            raise NoQuestion(f"something else than an answer came: {error}") from error
        return message

    def _taken(self, count: int) -> bytes | None:
        while len(self._held) < count:
            data = self._read()
            if not data:
                return None
            self._held += data
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken
