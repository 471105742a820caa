"""A rewind: partitions are read on from another place, once, without a change of state.

It has a number, and a partition's position the number of the last rewind that was carried out for it: so
whoever takes the partition up knows whether that is left to be done, whatever was killed in between
(record 0037). Neighbours: `place` is where to, `position` keeps the number, the worker's
`sources.kafka.rewinds` carries it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from penstock.connectors.kafka.place import (
    TOPICS_MAX,
    Instant,
    Place,
    Positions,
    planned_place,
    topic_faults,
)
from penstock.connectors.kafka.position import kafka_position
from penstock.connectors.kafka.topics import partition_of
from penstock.dataflow.source import ADDED
from penstock.errors import PermanentError
from penstock.manifest.document import Document, cel
from penstock.manifest.faults import Fault, nearest


@dataclass(frozen=True, slots=True)
class Rewind:
    """The rewind of this number, of which `to` says where to; partitions of which it says nothing stay."""

    number: int
    to: Place


class RewindSpec(Document):
    """Partitions are read on from another place, once for each number. State is not rewound: records that are
    read again count again."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "has(self.offsets) || has(self.timestamp) || has(self.positions)",
                "a rewind needs a place: offsets, timestamp or positions",
            ),
            (
                "!has(self.offsets) || !has(self.timestamp)",
                "offsets and timestamp are both given; a rewind goes to one place",
            ),
            (
                "self == oldSelf || self.number > oldSelf.number",
                "another rewind needs a greater number: by it partitions know that it is another one",
            ),
        )
    )

    number: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """Which one it is: greater than that of the one before."""
    offsets: Literal["Earliest", "Latest"] | None = None
    """To the first record that is there, or behind the last one."""
    timestamp: Instant | None = None
    """To the first record of that time or later, and behind the last one where there is none."""
    positions: Annotated[Positions | None, Field(max_length=TOPICS_MAX)] = None
    """To these offsets, by topic and number of partition; others go where is said above, and stay where
    nothing is."""

    def plan(self) -> Rewind:
        return Rewind(self.number, planned_place(self.offsets, self.timestamp, self.positions))


def rewind_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    """What is wrong between the fields of `rewind`, of the plain document of a source."""
    given = body.get("rewind")
    if not isinstance(given, Mapping):
        return []
    path = f"{path}.rewind"
    named = [name for name in ("offsets", "timestamp", "positions") if given.get(name) is not None]
    if not named and not any(nearest(name, list(given)) for name in ("offsets", "timestamp", "positions")):
        message = "says no place; give offsets: Earliest or Latest, a timestamp, or positions"
        return [Fault(path, message)]
    if "offsets" in named and "timestamp" in named:
        message = "offsets is given too; a rewind goes to one place: keep one of the two"
        return [Fault(f"{path}.timestamp", message)]
    return topic_faults(f"{path}.positions", given.get("positions"), body.get("topics"))


def rewind_news(rewind: Rewind, positions: Mapping[str, bytes]) -> str:
    """What people should know of the rewind before it is carried out, from part -> committed position.
    Raises PermanentError when it cannot be."""
    done = _done(positions.values())
    last = max(done, default=0)
    if rewind.number < last:
        raise PermanentError(
            f"rewind.number is {rewind.number}, and rewind {last} was carried out before: give {last + 1} "
            "for another one, or leave rewind out"
        )
    if not done:
        return f"nothing was read yet: it begins as its start says, and rewind {rewind.number} is over"
    left = sum(number < rewind.number for number in done)
    if not left:
        return (
            f"rewind {rewind.number} was carried out before, and is not again: another one needs number "
            f"{rewind.number + 1}"
        )
    known = {partition_of(part) for part in positions}
    for topic, number, _ in rewind.to.positions:
        if (topic, number) not in known:
            raise PermanentError(
                f"rewind {rewind.number} has an offset for topic {topic}, partition {number}, which is not "
                "there: correct positions"
            )
    if left < len(done):
        return (
            f"rewind {rewind.number} was carried out before for {len(done) - left} partitions, and is now "
            f"for the other {left}"
        )
    return f"rewind {rewind.number} is carried out for {left} partitions"


def _done(positions: Iterable[bytes]) -> list[int]:
    """The numbers in the positions of partitions that were begun."""
    return [kafka_position(one).rewind for one in positions if one not in (b"", ADDED)]
