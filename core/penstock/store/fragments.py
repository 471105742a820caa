"""Rows that are larger than an entry: their payload travels as fragments, each an entry of its own.

A pair's entries keep their order, so the fragments of a row come one behind the other, with other producers'
entries between them at most. What they are pieces of is the payload of a batch of one row (`codec`). Only
the last one counts as a row. Neighbours: whoever packs entries cuts, whoever reads a pair gathers.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

FIRST_BYTE = 0x94
"""An array of four; a batch is one of three."""
_AROUND_BYTES = 32
"""What a fragment has around the producer's name and its piece, at most."""


class Fragment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Piece `index` (from 0) of `count`, of a row that the shard `producer` put out."""

    producer: str
    index: int
    count: int
    piece: bytes

    @property
    def is_last(self) -> bool:
        return self.index + 1 == self.count


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Fragment)

decode_fragment = _DECODER.decode
"""Inverse of what `fragments_of` packs. Raises msgspec.DecodeError for anything else."""


def is_fragment(payload: bytes) -> bool:
    """Whether an entry's payload is a piece of a row, not a batch of rows."""
    return payload[0] == FIRST_BYTE


def fragments_of(producer: str, payload: bytes, entry_bytes_max: int) -> list[bytes]:
    """Cut the payload of a batch of one row into payloads that fit entries."""
    piece_bytes = max(1, entry_bytes_max - len(producer.encode()) - _AROUND_BYTES)
    count = -(-len(payload) // piece_bytes)
    return [
        _ENCODER.encode((producer, index, count, payload[index * piece_bytes : (index + 1) * piece_bytes]))
        for index in range(count)
    ]


class Gathering:
    """The entries of one pair as whole batches: (number, payload), fragments put together.

    A row's number is that of its last fragment: what ends with a whole batch can be acknowledged up to there.
    """

    __slots__ = ("_pieces", "taken")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.taken = 0
        """Number of the last entry that was taken in; 0 before the first."""

    @property
    def is_between(self) -> bool:
        """Pieces of a row came, and the last one did not yet."""
        return bool(self._pieces)

    def whole(self, entries: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The batches that are whole with these entries. Raises ValueError unless each entry follows the one
        before."""
        found = []
        for number, payload in entries:
            if self.taken and number != self.taken + 1:
                raise ValueError(f"entry {number} follows {self.taken}: they are not one after the other")
            self.taken = number
            if not is_fragment(payload):
                found.append((number, payload))
                continue
            fragment = decode_fragment(payload)
            if fragment.index == 0:
                self._pieces.clear()
            if fragment.index != len(self._pieces):
                raise ValueError(f"piece {fragment.index} of a row of {fragment.producer} comes out of line")
            self._pieces.append(fragment.piece)
            if fragment.is_last:
                found.append((number, b"".join(self._pieces)))
                self._pieces.clear()
        return found
