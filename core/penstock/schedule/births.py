"""Which shards are born, and which their home has yet to make.

A schedule says of a shard since which version it is there (`fresh_since`), until its home has applied that
version. Pure. Neighbours: `planner` keeps what is unborn where it is, agents make it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.schedule.hosts_and_wishes import Runtime
from penstock.schedule.record import OperatorSchedule, ShardPlace


def born(executor: str, home: str, version: int, runtime: Runtime) -> ShardPlace:
    """A shard that `version` is the first to name."""
    return ShardPlace(executor, home, version if runtime.has_agents else 0)


def is_born(place: ShardPlace, applied: Mapping[str, int]) -> bool:
    """`applied` is store id -> version applied."""
    return applied.get(place.home, -1) >= place.fresh_since


def mark_born(
    schedule: OperatorSchedule, applied: Mapping[str, int], before: OperatorSchedule | None = None
) -> OperatorSchedule:
    """`schedule`, same version, with `fresh_since` 0 where the home (store id -> version applied) has made the
    shard. It goes out with the next version. `before` is the schedule that agents have seen, where this is
    not the one: the home in it has made the shard or has not, wherever it goes now."""
    if not any(place.fresh_since for place in schedule.shards.values()):
        return schedule
    seen = schedule.shards if before is None else before.shards
    shards = {
        shard: replace(place, fresh_since=0) if is_born(seen.get(shard, place), applied) else place
        for shard, place in schedule.shards.items()
    }
    return replace(schedule, shards=shards)


def moves_unborn(old: OperatorSchedule, new: OperatorSchedule, applied: Mapping[str, int]) -> bool:
    """Whether `new` sends a shard to another store before its home has made it: then nobody would, or two."""
    return any(
        not is_born(place, applied) and shard in new.shards and new.shards[shard].home != place.home
        for shard, place in old.shards.items()
    )
