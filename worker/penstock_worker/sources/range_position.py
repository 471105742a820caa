"""Where a data source is read on: which range of offsets is open, and which of its rows are committed. Pure.

The range is committed before a row of it is read: it is the intent, so that whoever comes next asks the same
range again. Neighbour: `data_source` reads by it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs


class RangePosition(msgspec.Struct, frozen=True, array_like=True):
    """Offsets are texts of JSON. Where `end` is None no range is open, and all before `start` is read.

    Of an open range: `plan` is a digest of the partitions that it was cut into, `partition` the one that is
    read, `rows` how many of its rows are committed, `digest` that of all rows of the range that are;
    `rows_before` and `digest_before` are the same as they were where the partition began. `ranges` counts
    those that were read.
    """

    start: str
    end: str | None = None
    plan: int = 0
    partition: int = 0
    rows: int = 0
    digest: int = 0
    rows_before: int = 0
    digest_before: int = 0
    ranges: int = 0

    @property
    def total(self) -> int:
        """Rows of the open range that are committed."""
        return self.rows_before + self.rows

    def packed(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def opened(self, end: Any, plan: int) -> RangePosition:
        """The range behind this position is to be read, up to `end`."""
        return RangePosition(self.start, offset_text(end), plan, ranges=self.ranges)

    def closed(self) -> RangePosition:
        """All of the range is read."""
        return RangePosition(self.end or self.start, ranges=self.ranges + 1)

    def behind(self, rows: Iterable[tuple[int, bytes]]) -> RangePosition:
        """Behind these too, each with the number of its partition and as it is packed."""
        partition, count, digest = self.partition, self.rows, self.digest
        rows_before, digest_before = self.rows_before, self.digest_before
        for of, packed in rows:
            if of != partition:
                rows_before, digest_before = rows_before + count, digest
                partition, count = of, 0
            count += 1
            digest = zlib.crc32(packed, digest)
        return structs.replace(
            self,
            partition=partition,
            rows=count,
            digest=digest,
            rows_before=rows_before,
            digest_before=digest_before,
        )


def range_position(packed: bytes) -> RangePosition:
    return msgspec.msgpack.decode(packed, type=RangePosition)


def offset_text(offset: Any) -> str:
    return json.dumps(offset, sort_keys=True, separators=(",", ":"))
