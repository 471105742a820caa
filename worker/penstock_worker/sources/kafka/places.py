"""What a place to begin comes to in a partition, as an offset: asked of the cluster where it is not given.

What it says is committed before anything is read: who takes the partition up after a kill begins there too.
Neighbours: `client` makes requests, `reader` commits, `rewinds` asks for a rewind's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from penstock.connectors.kafka.place import Place
from penstock.connectors.kafka.position import FIRST

_TIMEOUT_S = 10.0
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Places:
    """Of the partitions that one task reads. None stands for an answer that has not come yet; a
    KafkaException is raised for one that is no. Answers are kept until they are forgotten."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._asked: dict[tuple[str, int], dict[str, Future[Any]]] = {}

    def forget(self, topic: str, number: int) -> None:
        self._asked.pop((topic, number), None)

    def offset(self, place: Place, topic: str, number: int) -> int | None:
        """Of a place that says something of the partition."""
        given = place.given(topic, number)
        if given is not None:
            return given
        if place.at_ms is not None:
            offset = self._answer(topic, number, "time", OffsetSpec.for_timestamp(place.at_ms))
            if offset is None or offset >= 0:
                return offset
            # No record is of that time or later: so it begins behind the last one.
        elif place.offsets == "Earliest":
            return FIRST
        return self._answer(topic, number, "latest", _LATEST)

    def ends(self, topic: str, number: int) -> tuple[int, int] | None:
        """The offsets of the first record that is there, and behind the last one."""
        first = self._answer(topic, number, "first", _EARLIEST)
        end = self._answer(topic, number, "end", _LATEST, IsolationLevel.READ_UNCOMMITTED)
        return None if first is None or end is None else (first, end)

    def _answer(
        self,
        topic: str,
        number: int,
        what: str,
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> int | None:
        asked = self._asked.setdefault((topic, number), {})
        if what not in asked:
            answers: Mapping[TopicPartition, Future[Any]] = self._admin.list_offsets(
                {TopicPartition(topic, number): spec},
                isolation_level=isolation,
                request_timeout=_TIMEOUT_S,
            )
            asked[what] = next(iter(answers.values()))
        if not asked[what].done():
            return None
        if asked[what].exception() is not None:
            asked.pop(what).result()
        offset: int = asked[what].result().offset
        return offset
