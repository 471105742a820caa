"""Which topics and partitions there are: asked of the cluster by whoever makes shards.

Apart from the reader, which asks while it reads. All of it blocks for a few seconds at most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from penstock.connectors.kafka.client import client_settings
from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.failures import AUTHENTICATION, failure, login_refused
from penstock.errors import PermanentError

ANSWERS_WITHIN_S = 10.0
_INTERNAL = "__"
"""Kafka's own topics begin so; no pattern means them."""


def part_name(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def partition_of(part: str) -> tuple[str, int]:
    """Topic and partition behind a part; topics have no slash in their names."""
    topic, _, number = part.rpartition("/")
    return topic, int(number)


def found_parts(
    connection: KafkaConnection, topics: Sequence[str], pattern: str | None, secrets: Path
) -> tuple[str, ...]:
    """All partitions of `topics`, or of those whose whole name `pattern` matches, in order.

    Raises RetryError while nobody answers, PermanentError when a topic is not there, or none matches.
    """
    found = _metadata(connection, secrets).topics
    if pattern is None:
        wanted = list(topics)
        missing = [name for name in wanted if name not in found or not found[name].partitions]
        if missing:
            raise PermanentError(
                f"topic {missing[0]} is not there, of Kafka at {connection} "
                f"({len(found)} topics are): create it, or correct topics"
            )
    else:
        matches = re.compile(pattern).fullmatch
        wanted = sorted(name for name in found if not name.startswith(_INTERNAL) and matches(name))
        if not wanted:
            raise PermanentError(
                f"no topic matches {pattern!r}, of Kafka at {connection} ({len(found)} topics are there); "
                "correct topicPattern or create one"
            )
    return tuple(part_name(name, number) for name in wanted for number in sorted(found[name].partitions))


def _metadata(connection: KafkaConnection, secrets: Path) -> ClusterMetadata:
    refused: list[str] = []

    def told(error: object) -> None:
        code = getattr(error, "code", lambda: None)()
        if code in AUTHENTICATION:
            refused.append(str(error))

    settings = {**client_settings(connection, secrets), "error_cb": told, "log_level": 0}
    try:
        admin = AdminClient(settings)
    except KafkaException as error:
        raise failure(error.args[0], connection, "make a client") from error
    try:
        admin.poll(0)  # has a bearer's token read
        return admin.list_topics(timeout=ANSWERS_WITHIN_S)
    except KafkaException as error:
        admin.poll(0)  # calls `told`
        if refused:
            raise login_refused(connection, refused[-1]) from error
        raise failure(error.args[0], connection, "list topics") from error
