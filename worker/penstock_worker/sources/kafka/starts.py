"""Where a partition begins of which nothing was read: what the manifest says, as an offset.

`Latest` and a time are asked of the cluster once, and what it says is committed before anything is read: who
takes the partition up after a kill begins there too. Neighbours: `client` makes requests, `reader` commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from penstock.connectors.kafka.position import FIRST
from penstock.connectors.kafka.source import KafkaSource

_TIMEOUT_S = 10.0
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Starts:
    """Of one source."""

    def __init__(self, source: KafkaSource, admin: AdminClient) -> None:
        self._source = source
        self._admin = admin
        self._given = {(topic, number): offset for topic, number, offset in source.positions}
        self._asked: dict[tuple[str, int], Future[Any]] = {}

    def offset(self, topic: str, number: int) -> int | None:
        """None while the cluster has not answered. Raises KafkaException when it answers no."""
        given = self._given.get((topic, number))
        if given is not None:
            return given
        source = self._source
        if source.start_ms is None and source.start == "Earliest":
            return FIRST
        spec = _LATEST if source.start_ms is None else OffsetSpec.for_timestamp(source.start_ms)
        answer = self._asked.get((topic, number))
        if answer is None:
            self._asked[topic, number] = self._ask(topic, number, spec)
            return None
        if not answer.done():
            return None
        del self._asked[topic, number]
        offset: int = answer.result().offset
        if offset < 0:
            # No record is of that time or later: so it begins behind the last one.
            self._asked[topic, number] = self._ask(topic, number, _LATEST)
            return None
        return offset

    def _ask(self, topic: str, number: int, spec: OffsetSpec) -> Future[Any]:
        answers: Mapping[TopicPartition, Future[Any]] = self._admin.list_offsets(
            {TopicPartition(topic, number): spec},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_TIMEOUT_S,
        )
        return next(iter(answers.values()))
