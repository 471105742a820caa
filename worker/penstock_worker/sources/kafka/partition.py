"""What came of one partition and was not committed yet. Pure. Neighbours: `client` fills it, `reader` reads
it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from confluent_kafka import KafkaError

from penstock.connectors.kafka.position import FIRST, KafkaPosition

HELD_BYTES_MAX = 1 << 20
"""More than this of a partition that nobody reads is not held: it is paused then."""
SILENT_US = 400_000
"""A topic that is made anew is silent for longer than this: a fetch that fails is done again after 500 ms
(`client.FETCH`)."""


class Record(Protocol):
    """As the client library has it."""

    def offset(self) -> int | None: ...
    def leader_epoch(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...


class Partition:
    """Records from where it was opened on; those before what is read are dropped, as they are committed."""

    def __init__(self, shard: str, topic: str, number: int) -> None:
        self.shard = shard
        self.topic = topic
        self.number = number
        self.begins: KafkaPosition | None = None
        """Where it is read from; None while that is not known."""
        self.is_assigned = False
        self.is_paused = False
        self.topic_id = ""
        """The topic's, when it was assigned."""
        self.lost = ""
        """What the cluster said of an offset that it does not have, at `lost_us`."""
        self.lost_us = 0
        self.denied: KafkaError | None = None
        self.end = -1
        """The offset behind all that there was when it was last read to its end; no record is before it that
        did not come."""
        self.came_us = 0
        """When something came last, or it was assigned."""
        self.unsure_since_us: int | None = None
        """Something came after a silence in which the topic may have been made anew."""
        self.high = -1
        """The offset behind the last record that the cluster told of, as it was asked for at `high_us`."""
        self.high_us = 0
        self.read_ms = 0
        """When the last record that was read was made."""
        self.moved_us = 0
        """When its position last moved."""
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._next = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= HELD_BYTES_MAX

    def begin(self, position: KafkaPosition) -> None:
        """Read from here, whatever came before."""
        self.begins = position
        self._records.clear()
        self._bytes = 0
        self._next = max(position.offset, 0)
        self.end = -1
        self.lost = ""
        self.unsure_since_us = None

    def came(self, record: Record, now_us: int) -> None:
        """In the order of offsets. One that is here is passed over: a partition that was paused begins behind
        the last one that was handed out."""
        offset = record.offset() or 0
        if now_us - self.came_us >= SILENT_US and self.unsure_since_us is None:
            self.unsure_since_us = now_us
        self.came_us = now_us
        if offset < self._next:
            return
        self._next = offset + 1
        self._records.append(record)
        self._bytes += _size(record)

    def ended(self, offset: int, now_us: int) -> None:
        """There is nothing between what came last and `offset`, and nothing there yet."""
        self.end = max(self.end, offset)

    def at(self, offset: int) -> bool:
        """Drop what is before `offset`, which is committed; True when records are left."""
        records = self._records
        while records and (records[0].offset() or 0) < offset:
            self._bytes -= _size(records.popleft())
        return bool(records)

    def some(self, rows_max: int, bytes_max: int) -> list[Record]:
        """The next ones: at most so many and about so many bytes, one at the least if there is one."""
        taken: list[Record] = []
        left = bytes_max
        for record in islice(self._records, rows_max):
            left -= _size(record)
            if left < 0 and taken:
                break
            taken.append(record)
        return taken

    def has_more(self, taken: Sequence[Record]) -> bool:
        """Than these, which `some` gave."""
        return len(taken) < len(self._records)

    def behind(self, taken: Sequence[Record], position: KafkaPosition | None, topic_id: str) -> KafkaPosition:
        """The position behind these, which `some` gave."""
        offset = position.offset if position is not None else FIRST
        epoch = position.leader_epoch if position is not None else -1
        if taken:
            offset = (taken[-1].offset() or 0) + 1
            epoch = _epoch(taken[-1])
        if not self.has_more(taken):
            # Behind the last record may be marks of transactions, and records of those that were aborted.
            offset = max(offset, self.end)
        return KafkaPosition(offset, epoch, topic_id, position.rewind if position is not None else 0)

    def lag(self, offset: int, now_us: int) -> tuple[int, int] | None:
        """What is left from `offset` on, marks of transactions among it, and for how long
        (`SourceBatch.lag`)."""
        if self.high < 0:
            return None
        left = max(0, self.high - max(offset, 0))
        return left, max(0, now_us // 1000 - self.read_ms) if left and self.read_ms else 0


def _epoch(record: Record) -> int:
    epoch = record.leader_epoch()
    return -1 if epoch is None else epoch


def _size(record: Record) -> int:
    return len(record.value() or b"") + len(record.key() or b"") + 64
