"""What both systems are given by Kafka: record n, with its zipf key, in its key's partition, when it is due.

`python -m bench.kafka_feed FEED.json` follows a rate plan (`load`) until its stop file is there, as a process
of its own: its CPU is on neither side. A record's age counts from when it was due, so what the feed is late
by is in it, on both sides. Neighbour: `kafka_watch` sees what comes out.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from bench.load import RatePlan, ZipfKeys, read_plan
from confluent_kafka import Producer

PARTITIONS = 2
"""Of both topics: as many as there are cores."""
LOOK_S = 0.002
LINGER_MS = 5.0
"""The default of this client, and of Kafka's own since 4.0. It is in the ages, on both sides."""
PLAN_S = 0.02
"""So often the plan is read again."""
FLUSH_S = 60.0


@dataclass(frozen=True, slots=True)
class Feed:
    """Where records go; `folder` is shared with who follows the plan."""

    bootstrap: str
    topic: str
    folder: str

    @property
    def plan(self) -> Path:
        return Path(self.folder, "plan.json")

    @property
    def stop(self) -> Path:
        return Path(self.folder, "stop-feed")

    @property
    def fed(self) -> Path:
        """How many records there are in the topic; written at the end."""
        return Path(self.folder, "fed")

    def write(self) -> Path:
        """What `main` reads."""
        path = Path(self.folder, "feed.json")
        path.write_text(json.dumps(asdict(self)))
        return path


def message(key: int) -> bytes:
    """A record's value."""
    return b'{"key":%d}' % key


def partition_of(key: int) -> int:
    """Records of a key are in the order of their numbers."""
    return key % PARTITIONS


class Feeder:
    """Produces records in the order of their numbers."""

    def __init__(self, feed: Feed, linger_ms: float) -> None:
        self._topic = feed.topic
        self._keys = ZipfKeys()
        self._producer = Producer(
            {
                "bootstrap.servers": feed.bootstrap,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        self.fed = 0

    def up_to(self, number: int) -> None:
        """Hand over all records below `number`."""
        for key in self._keys.of(self.fed, number).tolist():
            while True:
                try:
                    self._producer.produce(self._topic, message(key), partition=partition_of(key))
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self.fed = max(self.fed, number)
        self._producer.poll(0)

    def finish(self) -> None:
        """All of them are in the topic."""
        if left := self._producer.flush(FLUSH_S):
            raise TimeoutError(f"{left} records did not get into topic {self._topic}")


def fill(feed: Feed, records: int) -> None:
    """All at once."""
    feeder = Feeder(feed, linger_ms=20)
    for end in range(0, records, 10_000):
        feeder.up_to(end)
    feeder.up_to(records)
    feeder.finish()


def fed_keys(records: int) -> np.ndarray:
    """The keys of so many records."""
    return ZipfKeys().of(0, records)


def main(path: str) -> None:
    """Follow the plan."""
    feed = Feed(**json.loads(Path(path).read_text()))
    feeder = Feeder(feed, linger_ms=LINGER_MS)
    plan, read_s = RatePlan(()), 0.0
    while not feed.stop.exists():
        if time.monotonic() >= read_s + PLAN_S:
            plan, read_s = read_plan(feed.plan), time.monotonic()
        feeder.up_to(plan.due_before(time.time_ns() // 1000))
        time.sleep(LOOK_S)
    feeder.finish()
    feed.fed.write_text(str(feeder.fed))


if __name__ == "__main__":
    main(sys.argv[1])
