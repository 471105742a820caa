"""What a task leaves in its store of one edge: its counted pairs, and how many records they are of.

One codec. A row is of what came since the edge's tables are these versions: whoever reads it passes over
rows of other versions, as counts begin anew with each table (Middleware'16, section 3.2). Neighbours:
`summary_wire` packs the pairs, a task writes rows (`penstock_worker.stages.pair_counts`), `penstock.locality`
reads them.
"""

from __future__ import annotations

import zlib

import msgspec

from penstock.errors import PermanentError

_LEVEL = 1
ROW_BYTES_MAX = 8 << 20
"""Of an unpacked row."""


class UnreadableRow(PermanentError):
    """It was damaged, or other code wrote it: its task's counts are missing, never zero (promise 7)."""


class PairsRow(msgspec.Struct, frozen=True, array_like=True):
    """Of task `task` of `executor`, about rows from operator `upstream` to `downstream`.

    A `share` of all batches is counted; `rows` and `sent_bytes` are of these alone, since `since_us` up to
    `at_us` (the node's steady clock). `versions` are those of both operators' tables. `flows` is
    (shard that sent, shard that was sent to, rows), by numbers; empty where shards are too many for that.
    `summary` is a packed `PairSummary`.
    """

    upstream: str
    downstream: str
    executor: str
    task: int
    at_us: int
    since_us: int
    share: float
    versions: tuple[int, int]
    rows: int
    sent_bytes: int
    flows: tuple[tuple[int, int, int], ...]
    summary: bytes

    @property
    def rows_per_s(self) -> float:
        """All rows of the edge that the task sends in a second."""
        return self.rows / self.share / max(1, self.at_us - self.since_us) * 1e6


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PairsRow).decode


def row_name(upstream: str, downstream: str, executor: str, task: int) -> str:
    """What a store keeps a row by: one of a task and an edge, the newest."""
    return f"{upstream}:{downstream}:{executor}:{task}"


def task_of(name: str) -> tuple[str, str, int] | None:
    """The upstream operator, the executor and the task of a row with this name; None where it is no name of
    one."""
    parts = name.split(":")
    if len(parts) != 4 or not parts[3].isdecimal():
        return None
    return parts[0], parts[2], int(parts[3])


def pack_row(row: PairsRow) -> bytes:
    return zlib.compress(_encode(row), _LEVEL)


def unpack_row(packed: bytes, bytes_max: int = ROW_BYTES_MAX) -> tuple[PairsRow, int]:
    """Inverse of `pack_row`, and the bytes that the row takes unpacked, at most so many and at most
    `ROW_BYTES_MAX`. Raises UnreadableRow for anything else."""
    most = max(1, min(bytes_max, ROW_BYTES_MAX))
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, most)
        if not unpacking.eof:
            raise UnreadableRow(f"a row of counted pairs is cut short, or has more than {most} bytes")
        row = _decode(data)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRow(f"a row of counted pairs cannot be read ({error})") from error
    if not 0 < row.share <= 1 or row.rows < 0 or row.sent_bytes < 0 or row.at_us < row.since_us:
        raise UnreadableRow(f"a row of counted pairs makes no sense: {row.rows} rows, share {row.share}")
    return row, len(data)
