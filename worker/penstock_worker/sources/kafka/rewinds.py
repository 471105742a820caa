"""A rewind carried out: the position of a partition that has a smaller number becomes another one.

The reader has it committed before a record is read behind it, with the rewind's number: who is killed before
that has not rewound, and who takes the partition up afterwards does not again. Neighbours: `places` asks the
cluster, `reader` commits.
"""

from __future__ import annotations

from msgspec import structs

from penstock.connectors.kafka.place import instant_text
from penstock.connectors.kafka.position import FIRST, KafkaPosition
from penstock.connectors.kafka.source import KafkaSource
from penstock.errors import PermanentError
from penstock_worker.sources.kafka.partition import Partition
from penstock_worker.sources.kafka.places import Places

_AHEAD_MS = 60_000
"""Clocks may differ by so much before a time is one that is yet to come."""


class Rewinds:
    """Of one source."""

    def __init__(self, source: KafkaSource) -> None:
        self._rewind = source.rewind
        self._goes_on_when_lost = source.on_lost == "Earliest"

    def is_due(self, at: KafkaPosition) -> bool:
        """Whether it is to be carried out for a partition that is `at` this position."""
        return self._rewind is not None and at.rewind < self._rewind.number

    def moved(
        self,
        partition: Partition,
        at: KafkaPosition,
        topic_id: str,
        partitions: int,
        places: Places,
        now_ms: int,
    ) -> KafkaPosition | None:
        """Where a partition is read on for which it is due; None while the cluster has not answered.
        `partitions` is how many the topic has. Raises PermanentError for a place that is none, KafkaException
        for an answer that is no."""
        rewind = self._rewind
        if rewind is None:
            return at
        place, topic, number = rewind.to, partition.topic, partition.number
        named = f"rewind {rewind.number} of topic {topic}"
        absent = [n for t, n, _ in place.positions if t == topic and n >= partitions]
        if absent:
            raise PermanentError(
                f"{named} has an offset for partition {absent[0]}, and there are {partitions}, from 0 on: "
                f"correct positions, with number {rewind.number + 1}"
            )
        given = place.given(topic, number)
        if given is None and place.at_ms is None and place.offsets is None:
            return structs.replace(at, rewind=rewind.number)
        if given is None and place.at_ms is not None and place.at_ms > now_ms + _AHEAD_MS:
            raise PermanentError(
                f"{named} goes to {instant_text(place.at_ms)}, which is yet to come: give a time that has "
                f"passed, or offsets: Latest, with number {rewind.number + 1}"
            )
        offset = places.offset(place, topic, number)
        if offset is None:
            return None
        if given is not None:
            ends = places.ends(topic, number)
            if ends is None:
                return None
            offset = self._within(given, ends, f"{named}, partition {number}", rewind.number)
        return KafkaPosition(offset, -1, topic_id, rewind.number)

    def _within(self, offset: int, ends: tuple[int, int], named: str, rewind: int) -> int:
        first, end = ends
        if offset < first and self._goes_on_when_lost:
            return FIRST
        if not first <= offset <= end:
            raise PermanentError(
                f"{named}: offset {offset} is not there; from {first} on records are, up to {end}: correct "
                f"positions, with number {rewind + 1}"
            )
        return offset
