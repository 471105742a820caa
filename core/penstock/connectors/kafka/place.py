"""Where in topics one begins to read, at the start or by a rewind: what a user writes of it, and the value.

Neighbours: `source` has the start, `rewind` the rewinds; the worker's `sources.kafka.places` asks the cluster
for the offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from penstock.connectors.kafka.connection import TopicName
from penstock.manifest.document import EXPECTED, SHARDS_MAX
from penstock.manifest.faults import Fault, nearest, shown

TOPICS_MAX = 100
_TIMESTAMP = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,3})?(Z|[+-]\d{2}:\d{2})$"


@dataclass(frozen=True, slots=True)
class Place:
    """The offset that `positions` has for a partition, as (topic, partition, offset); for others the first
    record of the time `at_ms` or later; without a time the first record (`offsets` is "Earliest"), or behind
    the last one ("Latest"). Nothing is said of a partition when `offsets` is None too."""

    offsets: str | None = None
    at_ms: int | None = None
    positions: tuple[tuple[str, int, int], ...] = ()

    def given(self, topic: str, number: int) -> int | None:
        """The offset that is given for a partition by itself."""
        return next((o for t, n, o in self.positions if (t, n) == (topic, number)), None)


EARLIEST = Place("Earliest")


def _as_instant(text: str) -> str:
    instant_ms(text)
    return text


def instant_ms(text: str) -> int:
    """Milliseconds since 1970. ValueError for what is no time."""
    try:
        return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(text)} is no time such as 2026-01-31T12:30:00Z") from None


def instant_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Instant = Annotated[
    str,
    StringConstraints(pattern=_TIMESTAMP, max_length=40),
    AfterValidator(_as_instant),
    Field(json_schema_extra={EXPECTED: "a time such as 2026-01-31T12:30:00Z"}),
]
PartitionNumber = Annotated[str, StringConstraints(pattern=r"^\d{1,9}$")]
Offset = Annotated[int, Field(ge=0, le=2**63 - 1, json_schema_extra={"format": "int64"})]
Positions = dict[TopicName, Annotated[dict[PartitionNumber, Offset], Field(max_length=SHARDS_MAX)]]
"""Offsets by topic and number of partition."""


def planned_place(offsets: str | None, timestamp: str | None, positions: Positions | None) -> Place:
    return Place(
        offsets=offsets,
        at_ms=None if timestamp is None else instant_ms(timestamp),
        positions=tuple(
            (topic, int(number), offset)
            for topic, given in sorted((positions or {}).items())
            for number, offset in sorted(given.items())
        ),
    )


def topic_faults(path: str, positions: object, topics: object) -> list[Fault]:
    """Of the plain document: topics in `positions` that are none of `topics`."""
    if not isinstance(positions, Mapping) or not isinstance(topics, list):
        return []
    known: list[Any] = topics
    return [
        Fault(f"{path}.{name}", f"is none of topics{nearest(str(name), known)}")
        for name in positions
        if name not in known
    ]
