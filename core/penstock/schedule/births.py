"""Which shards are born, and which their home has yet to make.

A schedule says of a shard since which version it is there (`fresh_since`), until its home has applied that
version. Pure. Neighbours: `book` asks for all that is written, `planner` keeps what is unborn where it is,
agents make it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.schedule.record import OperatorSchedule, ShardPlace


def is_born(place: ShardPlace, applied: Mapping[str, int]) -> bool:
    """`applied` is store id -> version applied."""
    return applied.get(place.home, -1) >= place.fresh_since


def added_shards(schedule: OperatorSchedule) -> frozenset[str]:
    """Those of the shards to be made that came after others of the operator: shards are never dropped, so
    one that was there before them is in the schedule still."""
    first = min((place.fresh_since for place in schedule.shards.values()), default=0)
    return frozenset(shard for shard, place in schedule.shards.items() if place.fresh_since > first)


def with_births(
    old: OperatorSchedule | None, new: OperatorSchedule, applied: Mapping[str, int]
) -> OperatorSchedule:
    """`new`, which is to follow `old`, and since when each of its shards is there.

    One that `old` lacks is there since `new`, 0 where that names no stores: then whoever planned has made it.
    One of `old` is there once the home that it has in `old` has made it, wherever it goes now.
    """
    known = old.shards if old is not None else {}

    def since(shard: str) -> int:
        place = known.get(shard)
        if place is None:
            return new.version if new.stores else 0
        return 0 if is_born(place, applied) else place.fresh_since

    fresh = {shard: since(shard) for shard in new.shards}
    shards = {
        shard: place if place.fresh_since == fresh[shard] else replace(place, fresh_since=fresh[shard])
        for shard, place in new.shards.items()
    }
    return replace(new, shards=shards)
