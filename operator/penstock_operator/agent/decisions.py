"""What a node agent has to do, decided from what it knows; nothing here touches a store or the API.

For each Schedule the order is: make the shards that are born here, have that recorded in the Schedule's
status, publish. So a record that is missing later was lost, and is never made anew: whoever lost state must
say so, not begin again with nothing. A schedule without a birth here is published at once and reported
afterwards, so that nothing waits for the API server. Neighbours: `store_side` carries out, `schedule_feed`
has the snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.control.locality.pairs_row import task_of
from penstock.schedule.record import AppliedPlace, OperatorSchedule
from penstock_operator.agent.schedule_feed import SeenSchedule, Snapshot


@dataclass(frozen=True, slots=True)
class Standing:
    """How far this store is with one Schedule object since its last start; versions, 0 for none.

    `created`: every shard born here up to this version is there. `published`: the maps hold it (or a newer
    one). `reported` is what the API server has confirmed of this node, in the days of the listing
    `reported_at`; `is_told`: it has told so since, or must have, and what it tells now counts.
    """

    created: int = 0
    published: int = 0
    reported: AppliedPlace | None = None
    reported_at: int = 0
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about one Schedule now; nothing while a report has to be confirmed first."""

    create: tuple[str, ...] = ()
    publish: bool = False


def confirmed_version(seen: SeenSchedule, store_id: str, standing: Standing) -> int:
    """The version up to which the status says that this store has what was born here."""
    told = seen.applied.get(store_id)
    own = standing.reported
    return max(told.version if told else 0, own.version if own else 0)


def fresh_shards(schedule: OperatorSchedule, store_id: str, confirmed: int) -> tuple[str, ...]:
    """Shards that this store has to make: born here in a version that is not confirmed yet."""
    return tuple(
        shard
        for shard, place in schedule.shards.items()
        if place.home == store_id and place.fresh_since > confirmed
    )


def born_shards(schedule: OperatorSchedule, store_id: str, confirmed: int) -> tuple[str, ...]:
    """Shards that must be in this store, if they are not on their way to it."""
    return tuple(
        shard
        for shard, place in schedule.shards.items()
        if place.home == store_id and place.fresh_since <= confirmed
    )


def step_for(seen: SeenSchedule, store_id: str, standing: Standing) -> Step:
    """The next thing to do about one Schedule."""
    version = seen.schedule.version
    if standing.published >= version:
        return Step()
    fresh = fresh_shards(seen.schedule, store_id, confirmed_version(seen, store_id, standing))
    if not fresh:
        return Step(publish=True)
    if standing.created < version:
        return Step(create=fresh)
    return Step()


def is_told_back(seen: SeenSchedule, store_id: str, standing: Standing, listing: int) -> bool:
    """Whether the API server has told this store's report back, or what somebody wrote over it: the second
    listing after it has begun when the report was there."""
    if standing.is_told or standing.reported is None:
        return standing.is_told
    return seen.applied.get(store_id) == standing.reported or listing > standing.reported_at + 1


def report_for(
    seen: SeenSchedule, store_id: str, generation: int, standing: Standing, lost: int, moving: int
) -> AppliedPlace | None:
    """What to tell the API server about this store now; None when it knows that, or nothing is done yet.

    One that the schedule does not name, and that never had a part in it, says nothing.
    """
    told = seen.applied.get(store_id)
    known = told if standing.is_told else standing.reported or told
    done = max(standing.created, standing.published)
    is_named = any(store.id == store_id for store in seen.schedule.stores)
    if not done or (known is None and not is_named):
        return None
    version = max(done, known.version if known else 0)
    applied = AppliedPlace(store_id, version, generation, lost, moving)
    return None if applied == known else applied


def homes_of(schedules: Iterable[OperatorSchedule]) -> dict[str, str]:
    """Shard -> store id."""
    return {shard: place.home for schedule in schedules for shard, place in schedule.shards.items()}


def addresses_of(snapshot: Snapshot) -> dict[str, str]:
    """Store id -> address, of all stores that any Schedule names."""
    return {store.id: store.address for seen in snapshot.schedules.values() for store in seen.schedule.stores}


def by_topology(snapshot: Snapshot) -> dict[str, list[SeenSchedule]]:
    """Topology uid -> its Schedules, in order of their operators."""
    found: dict[str, list[SeenSchedule]] = {}
    for seen in sorted(snapshot.schedules.values(), key=lambda seen: seen.schedule.operator):
        found.setdefault(seen.topology_uid, []).append(seen)
    return found


def wants_fsync(snapshot: Snapshot, durability: str) -> bool:
    """Whether the log is to be synced with each write: on a Disk store, while a topology may ask for it.

    Before the first complete list nobody knows who asks.
    """
    if durability != "Disk":
        return False
    if not snapshot.listing:
        return True
    return bool(snapshot.faults) or any(seen.durability != "Process" for seen in snapshot.schedules.values())


@dataclass(frozen=True, slots=True)
class Farewell:
    """Which topologies have no Schedule any more. `missed` is uid -> the listing that missed it first;
    `spared` are those of them whose Topology is there."""

    missed: Mapping[str, int]
    retract: tuple[str, ...]
    spared: frozenset[str] = frozenset()

    @property
    def must_list(self) -> bool:
        """Of somebody who is missed it is not yet known whether he is gone."""
        return bool(self.missed.keys() - {*self.retract, *self.spared})


NOBODY_GOES = Farewell({}, ())


def farewell(snapshot: Snapshot, in_store: Collection[str], missed: Mapping[str, int]) -> Farewell:
    """A topology is gone when a complete list lacks it that was begun after it was first missed, and its
    Topology is not there either: Schedules alone, deleted by whomever, are rebuilt from what stores hold.

    So neither a watch that lost its way nor one odd answer takes away anybody's state; nor do two, if a list
    between them has it, whether anybody looked at that one or not. Topologies that were listed before it was
    missed say nothing: it was there then.
    """
    if not snapshot.listing or snapshot.topology_uids is None:
        return NOBODY_GOES
    listed_at = snapshot.listed_at
    now = {
        uid: max(missed.get(uid, snapshot.listing), listed_at.get(uid, 0) + 1)
        for uid in in_store
        if uid not in snapshot.topology_uids
    }
    if snapshot.living is None:
        return Farewell(now, ())
    known = {uid for uid, listing in now.items() if snapshot.listing > listing}
    return Farewell(now, tuple(sorted(known - snapshot.living)), frozenset(known & snapshot.living))


def counted_by_nobody(
    names: Iterable[str], schedules: Iterable[OperatorSchedule], store_id: str
) -> tuple[str, ...]:
    """Of the rows of counted pairs in a store those that no task there renews, by name."""
    tasks: dict[tuple[str, str], int] = {}
    for schedule in schedules:
        here = {worker.name for worker in schedule.workers if worker.store == store_id}
        for one in schedule.executors:
            if one.worker in here:
                tasks[schedule.operator, one.name] = one.tasks

    def is_renewed(name: str) -> bool:
        of = task_of(name)
        return of is not None and of[2] < tasks.get((of[0], of[1]), 0)

    return tuple(name for name in names if not is_renewed(name))
