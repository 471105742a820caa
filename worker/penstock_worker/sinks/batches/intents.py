"""What an owner says in its store before it writes a batch: the batch's name, and the shard's entries in
it."""

from __future__ import annotations

import msgspec


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """The batch `name` has the entries behind `after` up to `number`; all up to `after` was in before."""

    name: bytes
    after: int
    number: int

    def packed(self) -> bytes:
        return _ENCODER.encode(self)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Intent)


def intent_of(packed: bytes, acknowledged: int) -> Intent | None:
    """What may be in though the store does not know: None where all that was intended is acknowledged."""
    if not packed:
        return None
    intent = _DECODER.decode(packed)
    return intent if intent.number > acknowledged else None
