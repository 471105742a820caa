"""Which shards are born, and which their home has yet to make.

A schedule says of a shard since which version it is there (`fresh_since`), until its home has applied that
version. Pure. Neighbours: `book` asks for all that is written, `planner` keeps what is unborn where it is,
agents make it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.schedule.record import OperatorSchedule, ShardPlace

BORN = (0, False)


def is_born(place: ShardPlace, applied: Mapping[str, int]) -> bool:
    """`applied` is store id -> version applied."""
    return applied.get(place.home, -1) >= place.fresh_since


def with_births(
    old: OperatorSchedule | None, new: OperatorSchedule, applied: Mapping[str, int]
) -> OperatorSchedule:
    """`new`, which is to follow `old`, and since when each of its shards is there.

    One that `old` lacks is there since `new`, 0 where that names no stores: then whoever planned has made it;
    it was added if `old` has others. One that lives once more is there since `new`, too, and begins where
    first ones do. Any other one of `old` is there once the home that it has in `old` has made it, wherever it
    goes now.
    """
    known = old.shards if old is not None else {}

    def birth(shard: str) -> tuple[int, bool]:
        place = known.get(shard)
        if place is None:
            return (new.version, bool(known)) if new.stores else BORN
        if new.shards[shard].life > place.life:
            return new.version, False
        return BORN if is_born(place, applied) else (place.fresh_since, place.is_added)

    births = {shard: birth(shard) for shard in new.shards}
    shards = {
        shard: place
        if (place.fresh_since, place.is_added) == births[shard]
        else replace(place, fresh_since=births[shard][0], is_added=births[shard][1])
        for shard, place in new.shards.items()
    }
    return replace(new, shards=shards)
