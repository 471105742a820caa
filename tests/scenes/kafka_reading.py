"""A source of Kafka as a stage reads it: positions are committed as they are told, and reads begin from
them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends.kafka_broker import KafkaBroker
from penstock.connectors.kafka.position import KafkaPosition, kafka_position
from penstock.connectors.kafka.source import KafkaSource, KafkaSourceSpec
from penstock_worker.process.clock import SystemClock
from penstock_worker.sources.kafka.reader import KafkaReader

READ_ROWS_MAX = 1024
WITHIN_S = 60.0


def kafka_source(broker: KafkaBroker, topic: str, **fields: Any) -> KafkaSource:
    """Values as text, unless the fields say otherwise."""
    body = {"bootstrapServers": broker.bootstrap, "value": {"format": "string"}, **fields}
    if "topicPattern" not in fields:
        body.setdefault("topics", [topic])
    return KafkaSourceSpec.model_validate(body).plan().of_topology("tests", "in")


class Reading:
    """One task's reader, and what a store would hold of it."""

    def __init__(self, source: KafkaSource, folder: Path, committed: dict[str, bytes] | None = None) -> None:
        self._reader = KafkaReader("in", source, folder)
        self._clock = SystemClock()
        self.committed = dict(committed or {})
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.lag: dict[str, tuple[int, int]] = {}
        self.longest_read_s = 0.0

    def open(self, *parts: str) -> None:
        for part in parts:
            shard = f"in/{part}"
            self.rows.setdefault(shard, [])
            self._reader.open(shard, self.committed.get(shard, b""), self._clock.now_us())

    def turn(self, rows_max: int = READ_ROWS_MAX) -> bool:
        """Read each shard once; True when something came. Rests until the next look otherwise."""
        came, look_us = False, []
        for shard in self.rows:
            position = self.committed.get(shard, b"")
            began_s = time.monotonic()
            batch = self._reader.read(shard, position, rows_max, 256 << 10, self._clock.now_us())
            self.longest_read_s = max(self.longest_read_s, time.monotonic() - began_s)
            self.rows[shard] += batch.rows
            if batch.lag is not None:
                self.lag[shard] = batch.lag
            came = came or bool(batch.rows) or batch.position != position
            self.committed[shard] = batch.position
            look_us.append(batch.next_due_us or 0)
        if not came and look_us:
            time.sleep(max(0, min(look_us) - self._clock.now_us()) / 1e6)
        return came

    def until(self, holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline_s, {shard: len(rows) for shard, rows in self.rows.items()}
            self.turn()

    def until_rows(self, count: int) -> list[tuple[Any, ...]]:
        """Until there are so many over all shards; answers them all, shard by shard."""
        self.until(lambda: sum(map(len, self.rows.values())) >= count)
        return self.all()

    def for_s(self, seconds: float) -> list[tuple[Any, ...]]:
        """For so long, as something is to be seen that does not happen."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            self.turn()
        return self.all()

    def all(self) -> list[tuple[Any, ...]]:
        return [row for shard in sorted(self.rows) for row in self.rows[shard]]

    def position(self, part: str) -> KafkaPosition:
        return kafka_position(self.committed[f"in/{part}"])

    def close(self) -> None:
        self._reader.close()


@contextmanager
def reading(
    source: KafkaSource, folder: Path, *parts: str, committed: dict[str, bytes] | None = None
) -> Iterator[Reading]:
    """These parts, or all that the source finds."""
    begun = Reading(source, folder, committed)
    try:
        begun.open(*(parts or source.parts(folder)))
        yield begun
    finally:
        begun.close()
