"""What the agent does to this node's store, in turns of one thread: records, maps, farewells, who moves.

A turn takes the newest snapshot and brings the store up to it as far as that goes; what fails is done in the
next one. All that is remembered here may be lost: it is about this start of the store only, and made anew
after each opening. Neighbours: `decisions` says what to do, `node_agent` makes the turns, `delivery` and
`moving` work beside it on threads of their own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from penstock.dataflow.source import ADDED
from penstock.errors import PenstockError
from penstock.schedule.record import AppliedPlace, OperatorSchedule
from penstock.store.moving.mover import MoveKind, moves_due
from penstock.store.port import (
    Answer,
    Create,
    DropPairs,
    KeepTopologies,
    Measure,
    NodeStore,
    PairNames,
    Retract,
    ShardCounters,
    ShardStatus,
    SomeTopologies,
    StoreFull,
    StoreUnreachable,
    TopologiesAmong,
    UnreadableState,
)
from penstock.store.publishing import put_table, to_publish
from penstock_operator.agent import decisions
from penstock_operator.agent.decisions import NOBODY_GOES, Standing
from penstock_operator.agent.kept_stores import KeptStores, OpenStore
from penstock_operator.agent.schedule_feed import SeenSchedule, Snapshot
from penstock_operator.agent.store_keeper import OpenedStore

_LOG = logging.getLogger(__name__)

_ANY = "agent"
"""No topology: for what is asked of a store as a whole."""
_CALLS_AT_ONCE = 256
_MEASURED_AT_ONCE = 512
_RETRACTS_PER_TURN = 50
_CLEARS_PER_TURN = 50
"""So often what an earlier stay left is cleared for a topology: its workers might add to it for ever."""
LOOK_S = 15.0
"""How often the records are looked through when nothing has changed."""
UNREADABLE_S = 15.0
"""For how long a topology is left alone of which something cannot be read."""
STRANGERS_S = 180.0
"""How often one is met that the store's set names and nobody knows: longer than two lists take, after which
it may go. Each costs a look at all keys of the store."""
_STRANGERS_LOOKED_AT = 64
_STRANGERS_MAX = 1000
COUNTS_S = 60.0
"""How often it is looked for counted pairs of tasks that are gone: nobody goes by them."""
LOST_AFTER_S = 2.0
"""How long a record must be nowhere before it counts as lost: a move's steps are not seen at one moment."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DueMove:
    """A shard that has to leave this store, or whose move has to be undone."""

    topology_uid: str
    shard: str
    kind: MoveKind
    home: str
    version: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn found out. `reports` are to be written by object name, `is_urgent`: something that was born
    waits for it; `must_list`: somebody is missed. `alive`: topologies that have Schedules, or something in
    this store; None when that was not looked at."""

    reports: Mapping[str, tuple[SeenSchedule, AppliedPlace]]
    is_urgent: bool
    moves: tuple[DueMove, ...]
    alive: frozenset[str] | None
    retracted: tuple[str, ...]
    must_list: bool


@dataclass(slots=True)
class _Topology:
    """What was found out about one topology in this start of the store."""

    looked: tuple[tuple[str, int, int], ...] = ()
    """Schedule, version seen, version published: what `homes` and `due` were made from."""
    looked_at_s: float = float("-inf")
    homes: dict[str, str] = field(default_factory=dict)
    due: dict[str, MoveKind] = field(default_factory=dict)
    missing_since_s: dict[str, float] = field(default_factory=dict)
    """When a shard that is not here was first found nowhere else; inf: it was somewhere, at the last look."""
    lost: frozenset[str] = frozenset()
    counts_at_s: float | None = None
    """When pairs of keys are looked through next that tasks have counted; None: it is new here."""


class StoreSide:
    """Belongs to one thread."""

    def __init__(
        self,
        store_id: str,
        open_store: OpenStore,
        end_user: Callable[[str], None] = lambda _: None,
        users: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`end_user`: from here on no worker of this topology writes into the store. `users`: topologies
        whose workers have a user, as the operator has told: also of namespaces that are not listed here."""
        self._end_user, self._users = end_user, users
        self._store_id = store_id
        self._stores = KeptStores(open_store)
        self._now_s = 0.0
        self._opened: OpenedStore | None = None
        self._standing: dict[tuple[str, str], Standing] = {}
        self._topologies: dict[str, _Topology] = {}
        self._missed: Mapping[str, int] = {}
        self._refused: set[str] = set()
        self._stranger: frozenset[str] = frozenset()
        self._strangers_at_s = float("-inf")
        self._unreadable: dict[str, float] = {}
        """Until when a topology is left alone."""
        self._tables_put: dict[tuple[str, str], int] = {}
        """Schedule object -> version of the routing table that this start of the store has of it;"""
        self._tables_refused: dict[tuple[str, str], int] = {}
        """and of the one that it had no room for, and that is tried again."""

    def confirmed(self, seen: SeenSchedule, applied: AppliedPlace, listing: int) -> None:
        """The API server has a report; `listing` is the newest one that was had."""
        key = (seen.name, seen.uid)
        standing = self._standing.get(key, Standing())
        self._standing[key] = replace(standing, reported=applied, reported_at=listing, is_told=False)

    def turn(
        self,
        snapshot: Snapshot,
        opened: OpenedStore,
        now_s: float,
        remembered: frozenset[str],
        unlisted: frozenset[str] = frozenset(),
    ) -> Turn:
        """Bring the store up to `snapshot`. `remembered` are uids of states whose Schedules were there once,
        `unlisted` those that nobody may take for gone. What cannot be read is its own topology's trouble.
        Raises StoreUnreachable, StoreFull, ProtocolMismatch."""
        self._now_s = now_s
        if opened != self._opened:
            self._begin(opened)
        for seen in snapshot.schedules.values():
            self._note_told(seen, snapshot.listing)
        topologies = decisions.by_topology(snapshot)
        # what an earlier agent remembered does not say what has been confirmed
        may_create = snapshot.listing > 0
        statuses: dict[str, dict[str, ShardStatus] | None] = {}
        for uid, schedules in topologies.items():
            self._topologies.setdefault(uid, _Topology())
            bring_up = partial(self._bring_up, uid, schedules, may_create=may_create)
            statuses[uid] = self._of_one(uid, now_s, bring_up)
        for uid, schedules in topologies.items():
            look = partial(self._look, uid, schedules, snapshot, now_s, statuses[uid])
            self._of_one(uid, now_s, look)
        farewell, alive = NOBODY_GOES, None
        if all(one is None for one in statuses.values()):
            # else shards may have to move, which does not wait for this; the next turn does it
            in_store = self._left_here(snapshot, now_s, remembered) - unlisted
            farewell = decisions.farewell(snapshot, in_store, self._missed)
            self._missed = farewell.missed
            if snapshot.listing and snapshot.topology_uids is not None:
                alive = frozenset(
                    {*topologies, *snapshot.topology_uids, *farewell.missed, *farewell.spared, *unlisted}
                )
                self._keep_connections(alive)
        self._unreadable = {uid: at_s for uid, at_s in self._unreadable.items() if uid in topologies}
        gone = tuple(uid for uid in farewell.retract if self._of_one(uid, now_s, partial(self._retract, uid)))
        for uid in self._topologies.keys() - topologies.keys():
            del self._topologies[uid]
        there = {(seen.name, seen.uid) for seen in snapshot.schedules.values()}
        self._standing = {key: standing for key, standing in self._standing.items() if key in there}
        return Turn(
            reports=self._reports(topologies),
            is_urgent=any(one.created > one.published for one in self._standing.values()),
            moves=tuple(self._moves(topologies)),
            alive=alive,
            retracted=gone,
            must_list=farewell.must_list,
        )

    def _note_told(self, seen: SeenSchedule, listing: int) -> None:
        """Whoever writes over a report, such as an earlier agent that was taken for dead, is answered with
        another one."""
        standing = self._standing_of(seen)
        if not standing.is_told and decisions.is_told_back(seen, self._store_id, standing, listing):
            self._standing[seen.name, seen.uid] = replace(standing, is_told=True)

    def shards_here(self) -> dict[str, list[str]]:
        """Topology uid -> shards that this store is the home of, or still has."""
        return {
            uid: [
                shard for shard, home in known.homes.items() if home == self._store_id or shard in known.due
            ]
            for uid, known in self._topologies.items()
        }

    def store_of(self, topology_uid: str) -> NodeStore:
        """This node's store as the turns' thread uses it. Raises StoreUnreachable."""
        return self._store(topology_uid)

    def close(self) -> None:
        self._stores.close()

    def _begin(self, opened: OpenedStore) -> None:
        """The store was opened: nothing that was known of it counts."""
        self._opened = opened
        self._standing = {
            key: replace(standing, created=0, published=0) for key, standing in self._standing.items()
        }
        self._topologies.clear()
        self._refused.clear()
        self._tables_put.clear()

    def _store(self, uid: str, store_id: str = "") -> NodeStore:
        return self._stores.store(store_id or self._store_id, uid, self._now_s)

    def _keep_connections(self, topologies: Collection[str]) -> None:
        """Close those of topologies that are gone, and those to other stores that were not used for long."""
        known = {*topologies, _ANY}
        self._stores.close_where(lambda _, uid: uid not in known)
        self._stores.close_unused(self._now_s, but=self._store_id)

    def _any_store(self) -> NodeStore:
        return self._store(_ANY)

    def _of_one(self, uid: str, now_s: float, do: Callable[[], T]) -> T | None:
        """What the workers of one topology have written keeps back no other one. That one is left alone for a
        while, and answers None."""
        if now_s < self._unreadable.get(uid, now_s):
            return None
        try:
            return do()
        except UnreadableState as error:
            _LOG.error("%s", error)
            self._unreadable[uid] = now_s + UNREADABLE_S
            return None

    # --- records and maps

    def _bring_up(
        self, uid: str, schedules: Sequence[SeenSchedule], *, may_create: bool
    ) -> dict[str, ShardStatus] | None:
        """Create what is born here, publish what may be published.

        Answers the status of all records of the topology after that; None when nothing was published, or when
        they are too many to be asked for along with it.
        """
        store = self._store(uid)
        to_create: list[tuple[SeenSchedule, Create]] = []
        to_publish_now: list[SeenSchedule] = []
        for seen in schedules:
            step = decisions.step_for(seen, self._store_id, self._standing_of(seen))
            if may_create:
                to_create += [(seen, birth) for birth in _births(seen.schedule, step.create)]
            if step.publish:
                to_publish_now.append(seen)
        if uid not in self._refused and not self._put_tables(store, schedules):
            # Only what is born has to be beside its tables: what runs already waits for them by itself.
            to_create = []
        calls_left = len(to_create) // _CALLS_AT_ONCE + _CLEARS_PER_TURN
        for first in range(0, len(to_create), _CALLS_AT_ONCE):
            part = [birth for _, birth in to_create[first : first + _CALLS_AT_ONCE]]
            while part:
                if not calls_left:
                    return None
                calls_left -= 1
                answers = store.pipeline(part)
                if Answer.UNKNOWN in answers:
                    self._refuse(uid)
                    return None
                # what an earlier stay left of one that lives once more goes in several calls
                part = [birth for birth, one in zip(part, answers, strict=True) if one is Answer.BUSY]
        for seen in {seen.name: seen for seen, _ in to_create}.values():
            self._note(seen, created=seen.schedule.version)
            _LOG.info("%s: made %d shards", seen.name, sum(one.name == seen.name for one, _ in to_create))
        if not to_publish_now:
            return None
        shards = tuple(decisions.homes_of(seen.schedule for seen in schedules))
        looks = [Measure(shards)] if len(shards) <= _MEASURED_AT_ONCE else []
        answers = store.pipeline([*(to_publish(seen.schedule) for seen in to_publish_now), *looks])
        for seen, answer in zip(to_publish_now, answers, strict=False):
            if answer is Answer.UNKNOWN:
                self._refuse(uid)
                return None
            if answer is Answer.STALE:
                _LOG.warning("%s: the store has a newer version than %d", seen.name, seen.schedule.version)
            self._note(seen, published=seen.schedule.version)
        return _statuses_of(shards, answers[-1]) if looks else None

    def _put_tables(self, store: NodeStore, schedules: Sequence[SeenSchedule]) -> bool:
        """Routing tables of all operators come before what is made or published: a shard that puts out rows
        is born where the tables that do not name it are, and begins by them. False where the store has no
        room for one."""
        for seen in schedules:
            table, key = seen.schedule.table, (seen.name, seen.uid)
            if table is not None and self._tables_put.get(key, 0) < table.version:
                try:
                    put_table(store, seen.schedule)
                except StoreFull:
                    if self._tables_refused.get(key) != table.version:
                        self._tables_refused[key] = table.version
                        told = "%s: the store has no room for version %d of its routing table"
                        _LOG.warning(told, seen.name, table.version)
                    return False
                self._tables_put[key] = table.version
        return True

    def _refuse(self, uid: str) -> None:
        if uid not in self._refused:
            self._refused.add(uid)
            _LOG.error("topology %s has Schedules, but it was retracted from this store before", uid)

    def _standing_of(self, seen: SeenSchedule) -> Standing:
        return self._standing.get((seen.name, seen.uid), Standing())

    def _note(self, seen: SeenSchedule, *, created: int = 0, published: int = 0) -> None:
        standing = self._standing_of(seen)
        self._standing[seen.name, seen.uid] = replace(
            standing,
            created=max(created, standing.created),
            published=max(published, standing.published),
        )

    def _reports(
        self, topologies: Mapping[str, Sequence[SeenSchedule]]
    ) -> dict[str, tuple[SeenSchedule, AppliedPlace]]:
        generation = self._opened.generation if self._opened else 0
        reports = {}
        for uid, schedules in topologies.items():
            known = self._topologies[uid]
            for seen in schedules:
                shards = seen.schedule.shards
                applied = decisions.report_for(
                    seen,
                    self._store_id,
                    generation,
                    self._standing_of(seen),
                    lost=sum(shard in shards for shard in known.lost),
                    moving=sum(shard in shards for shard in known.due),
                )
                if applied is not None:
                    reports[seen.name] = (seen, applied)
        return reports

    def _left_here(self, snapshot: Snapshot, now_s: float, remembered: frozenset[str]) -> set[str]:
        """Uids of what is in the store and in no Schedule.

        The store's own set of them says too little to go by: workers of every topology may add to it. So it
        is asked about those that the store remembers Schedules of; others, as another store may have brought,
        are taken up one after the other.
        """
        there = snapshot.topology_uids or frozenset()
        if now_s - self._strangers_at_s >= STRANGERS_S:
            self._strangers_at_s = now_s
            self._stranger = self._meet_stranger(there | remembered | {*self._users()})
        asked = tuple(sorted((remembered | self._stranger) - there))
        return {*self._any_store().call(TopologiesAmong(asked))} if asked else set()

    def _meet_stranger(self, known: frozenset[str]) -> frozenset[str]:
        """One that is in the store's set and not known, if there is any. Of many, or of what is too long for
        a uid, all are forgotten: what was brought in earnest is named again once its Schedule is seen."""
        store = self._any_store()
        try:
            named, some = store.call(SomeTopologies(_STRANGERS_LOOKED_AT))
            strangers = named - len(store.call(TopologiesAmong(tuple(sorted(known)))))
        except UnreadableState:
            some, strangers = [], _STRANGERS_MAX + 1
        if strangers > _STRANGERS_MAX:
            _LOG.warning("workers have named more topologies than there are: that is forgotten")
            store.call(KeepTopologies(tuple(sorted(known))))
            return frozenset()
        return frozenset([uid for uid in some if uid not in known][:1])

    def _retract(self, uid: str) -> bool:
        """A part of a farewell; True when it is complete. What a worker wrote behind it would stay."""
        self._end_user(uid)
        store = self._store(uid)
        for _ in range(_RETRACTS_PER_TURN):
            if store.call(Retract()) == 0:
                _LOG.info("topology %s has no Schedule any more: its state is removed", uid)
                self._stores.close_where(lambda store_id, of: (store_id, of) == (self._store_id, uid))
                return True
        return False

    # --- what is here

    def _look(
        self,
        uid: str,
        schedules: Sequence[SeenSchedule],
        snapshot: Snapshot,
        now_s: float,
        statuses: dict[str, ShardStatus] | None,
    ) -> None:
        """Find out which shards have to leave, and which are missing.

        All records after a change and now and then, else only those that were not as they should be.
        `statuses`: of all records, where they have been asked for since the change.
        """
        known = self._topologies[uid]
        if known.counts_at_s is None or now_s >= known.counts_at_s:
            if known.counts_at_s is not None:
                self._drop_counts(uid, schedules)
            known.counts_at_s = now_s + COUNTS_S
        versions = tuple(
            (seen.name, seen.schedule.version, self._standing_of(seen).published) for seen in schedules
        )
        if versions != known.looked:
            known.homes = decisions.homes_of(seen.schedule for seen in schedules)
        if versions != known.looked or now_s - known.looked_at_s >= LOOK_S:
            names: Sequence[str] = tuple(known.homes)
            known.looked, known.looked_at_s = versions, now_s
            known.due.clear()
        else:
            names = tuple({**known.due, **known.missing_since_s})
            if not names:
                return
        published = {
            shard
            for seen in schedules
            if self._standing_of(seen).published >= seen.schedule.version
            for shard in seen.schedule.shards
        }
        if statuses is None:
            statuses = self._statuses(uid, self._store_id, names)
        for shard in names:
            known.due.pop(shard, None)
        known.due.update(moves_due(self._store_id, known.homes, statuses))
        absent = {ShardStatus.MOVED}
        missing = [
            shard
            for shard in names
            if known.homes.get(shard) == self._store_id
            and shard in published
            and statuses.get(shard, ShardStatus.MOVED) in absent
        ]
        self._note_missing(uid, known, missing, snapshot, now_s)

    def _drop_counts(self, uid: str, schedules: Sequence[SeenSchedule]) -> None:
        """Pairs of keys that were counted by tasks which this node has no more."""
        store = self._store(uid)
        gone = decisions.counted_by_nobody(
            store.call(PairNames()), [seen.schedule for seen in schedules], self._store_id
        )
        if gone:
            store.call(DropPairs(gone))

    def _note_missing(
        self, uid: str, known: _Topology, missing: Sequence[str], snapshot: Snapshot, now_s: float
    ) -> None:
        """A shard is lost when no store has it, seen twice; while a store is away nothing is concluded."""
        elsewhere: set[str] = set()
        if missing:
            for store_id in decisions.addresses_of(snapshot):
                if store_id != self._store_id:
                    try:
                        statuses = self._statuses(uid, store_id, missing)
                    except PenstockError:
                        elsewhere.update(missing)
                        break
                    elsewhere.update(
                        shard for shard, status in statuses.items() if status is not ShardStatus.MOVED
                    )
        known.missing_since_s = {
            shard: math.inf if shard in elsewhere else min(known.missing_since_s.get(shard, now_s), now_s)
            for shard in missing
        }
        lost = frozenset(
            shard for shard, since_s in known.missing_since_s.items() if now_s - since_s >= LOST_AFTER_S
        )
        if lost - known.lost:
            _LOG.error("topology %s: this store has lost %d shards", uid, len(lost))
        known.lost = lost

    def _statuses(self, uid: str, store_id: str, shards: Sequence[str]) -> dict[str, ShardStatus]:
        """The status of the records that there are."""
        store = self._store(uid, store_id)
        found: dict[str, ShardStatus] = {}
        for first in range(0, len(shards), _MEASURED_AT_ONCE):
            chunk = tuple(shards[first : first + _MEASURED_AT_ONCE])
            found.update(_statuses_of(chunk, store.call(Measure(chunk))))
        return found

    def _moves(self, topologies: Mapping[str, Sequence[SeenSchedule]]) -> list[DueMove]:
        return [
            DueMove(uid, shard, kind, known.homes.get(shard, self._store_id), seen.schedule.version)
            for uid, schedules in topologies.items()
            for known in (self._topologies[uid],)
            for seen in schedules
            for shard, kind in known.due.items()
            if shard in seen.schedule.shards
        ]


def _births(schedule: OperatorSchedule, shards: Sequence[str]) -> list[Create]:
    def begins(shard: str) -> bytes:
        return ADDED if schedule.is_source and schedule.shards[shard].is_added else b""

    return [
        Create(shard, position=begins(shard), source=schedule.is_source, life=schedule.shards[shard].life)
        for shard in shards
    ]


def _statuses_of(shards: Sequence[str], counters: Sequence[ShardCounters | None]) -> dict[str, ShardStatus]:
    return {shard: one.status for shard, one in zip(shards, counters, strict=True) if one is not None}


def unknown_address(store_id: str) -> StoreUnreachable:
    return StoreUnreachable(f"no Schedule tells the address of store {store_id}")
