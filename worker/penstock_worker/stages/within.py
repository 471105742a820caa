"""What a shard's record notes of work that no offset and no position tells: the field `within` of a commit.

`Rows`: some rows of the entry behind the offset are done. `Written` and `Decided` belong to a commit that is
written in parts (`large_commit`). A note of rows that is about an earlier entry is void. `Batches`: how many
batches a sink has written, and which is open. Neighbours: `keyed_stage` notes rows, `batch_stage` batches;
`store.port` carries the bytes.
"""

from __future__ import annotations

import msgspec


class Rows(msgspec.Struct, frozen=True, array_like=True, tag="r", gc=False):
    """The first `rows` rows of entry `entry` of the inbox are done."""

    entry: int
    rows: int


class Batches(msgspec.Struct, frozen=True, array_like=True, tag="b", gc=False):
    """`number` batches are written. The next one is intended to have the entries up to number `last` of the
    inbox, and may be written in part; none is while `last` is 0."""

    number: int = 0
    last: int = 0


class Written(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """Chunks of a commit are being written down; nothing of it counts. `before` is what was noted before."""

    before: bytes


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A commit is written down in `chunks` chunks, and counts; `applied` of them are carried out.

    The last one brings the rest of the commit along; `after` is what is noted then. So it is with the
    watermark: what it waits for, timers and outputs, goes with the parts. Whether the input is idle whoever
    goes on says.
    """

    chunks: int
    applied: int
    offset: int
    consumed_bytes: int
    consumed_rows: int
    position: bytes | None
    finished: bool
    again: bool
    after: bytes
    watermark_ms: int | None = None
    tells: bool = False


encode = msgspec.msgpack.Encoder().encode
_DECODER = msgspec.msgpack.Decoder(Rows | Batches | Written | Decided)


def decode(within: bytes) -> Rows | Batches | Written | Decided | None:
    """What a record notes; None for nothing. Raises msgspec.DecodeError for what nobody wrote."""
    return _DECODER.decode(within) if within else None


def rows_done(within: bytes, entry: int) -> int:
    """How many rows of the entry `entry`, the first behind the offset, are done."""
    note = decode(within)
    return note.rows if isinstance(note, Rows) and note.entry == entry else 0


def batches(within: bytes) -> Batches:
    """What is noted of a sink's batches; before the first note none is written."""
    note = decode(within)
    return note if isinstance(note, Batches) else Batches()
