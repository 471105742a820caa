"""Sees totals arrive in a topic, as a reader of committed messages does; a process of its own, on neither
side.

`python -m bench.kafka_watch WATCH.json` logs them (`sink_log`) until its stop file is there.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np
from bench import sink_log
from bench.kafka_feed import PARTITIONS
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

WAIT_S = 0.1
AT_ONCE_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Watch:
    bootstrap: str
    topic: str
    folder: str
    partitions: int = PARTITIONS

    @property
    def log(self) -> Path:
        return Path(self.folder, "log")

    @property
    def stop(self) -> Path:
        return Path(self.folder, "stop-watch")

    def write(self) -> Path:
        """What `main` reads."""
        path = Path(self.folder, "watch.json")
        path.write_text(json.dumps(asdict(self)))
        return path


class Total(msgspec.Struct):
    """A message's value, of either side."""

    key: int
    total: int


_DECODER = msgspec.json.Decoder(Total)


def totals(values: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Keys and totals of messages' values."""
    decoded = [_DECODER.decode(value) for value in values]
    return (
        np.array([one.key for one in decoded], dtype=np.int64),
        np.array([one.total for one in decoded], dtype=np.int64),
    )


def main(path: str) -> None:
    watch = Watch(**json.loads(Path(path).read_text()))
    watch.log.mkdir(exist_ok=True)
    consumer = Consumer(
        {
            "bootstrap.servers": watch.bootstrap,
            "group.id": f"watch-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(watch.topic, number, 0) for number in range(watch.partitions)])
    while not watch.stop.exists():
        first = consumer.poll(WAIT_S)
        if first is None:
            continue
        at_us = time.time_ns() // 1000
        _log(watch.log, at_us, [first, *consumer.consume(AT_ONCE_MAX, 0)])
    consumer.close()


def _log(folder: Path, at_us: int, messages: Sequence[Message]) -> None:
    for one in messages:
        if (error := one.error()) is not None:
            raise KafkaException(error)
    keys, found = totals([one.value() or b"" for one in messages])
    sink_log.append(folder, at_us, keys, found)


if __name__ == "__main__":
    main(sys.argv[1])
