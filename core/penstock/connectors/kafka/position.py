"""How far a partition of a topic was read: what is committed with the outputs, and found again."""

from __future__ import annotations

import msgspec

FIRST = -2
"""As an offset: whichever record is the first one that is there."""


class KafkaPosition(msgspec.Struct, frozen=True, array_like=True):
    """`offset` is the next one to be read. `leader_epoch` is that of the record before it, by which a log
    that was cut is found out (-1: unknown), `topic_id` what the topic had then: one that was made anew has
    another id, and its offsets say nothing about what was read ("": unknown). `rewind` is the number of the
    last rewind that was carried out (0: none)."""

    offset: int
    leader_epoch: int = -1
    topic_id: str = ""
    rewind: int = 0

    def packed(self) -> bytes:
        return _ENCODER.encode(self)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(KafkaPosition)


def kafka_position(packed: bytes) -> KafkaPosition:
    return _DECODER.decode(packed)
