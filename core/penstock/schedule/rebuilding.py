"""A Schedule that is gone, or older than what the stores work by: made again from what they know of it.

Each store keeps beside its state the Schedules as its agent last saw them, and its maps have a version. What
was written last and had any effect is therefore known to a store. It goes on under a version above all that
any of them has seen, and every shard of it counts as born: one that its home does not have was lost, and is
never made anew.

Pure. Neighbours: `births` says which shards are born while a Schedule stands, `book` writes what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.schedule.record import OperatorSchedule


@dataclass(frozen=True, slots=True)
class Kept:
    """What a store knows of one operator's schedule: the newest that its agent kept there (None: none), with
    its remote tasks, and the version of the store's maps (0: it has none)."""

    schedule: OperatorSchedule | None = None
    published: int = 0

    @property
    def version(self) -> int:
        """The newest that the store has seen; 0 when it knows nothing of the schedule."""
        return max(self.published, self.schedule.version if self.schedule is not None else 0)


NOTHING_KEPT = Kept()


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """`schedule` is as the stores `keepers` keep it; `seen` is the newest version that any store has seen:
    the book gives it the next one. `applied` is store id -> the version that the store keeps."""

    schedule: OperatorSchedule
    seen: int
    keepers: tuple[str, ...]
    applied: Mapping[str, int]


def rebuilt(kept: Mapping[str, Kept]) -> Rebuilt | None:
    """From store id -> what it knows; None when none keeps the schedule."""
    known = {store: one.schedule for store, one in kept.items() if one.schedule is not None}
    if not known:
        return None
    newest = max(known.values(), key=lambda schedule: (schedule.version, schedule.term))
    shards = {
        shard: place
        if _is_unborn(place.fresh_since, known.get(place.home))
        else replace(place, fresh_since=0, is_added=False)
        for shard, place in newest.shards.items()
    }
    return Rebuilt(
        replace(newest, shards=shards),
        max(one.version for one in kept.values()),
        tuple(sorted(store for store, one in known.items() if one.version == newest.version)),
        {store: one.version for store, one in known.items()},
    )


def _is_unborn(fresh_since: int, home: OperatorSchedule | None) -> bool:
    """Whether its home still has to make a shard: it knows the schedule, and none in which it was born."""
    return bool(fresh_since) and home is not None and home.version < fresh_since
