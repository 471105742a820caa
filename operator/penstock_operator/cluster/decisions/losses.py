"""Shards whose state is gone for good: which they are, and how they are begun anew once that is accepted.

A store is lost when its node is gone and its volume with it, or when it came back empty. Nobody begins its
shards anew by himself: whoever runs the topology is told which ones they are, and accepts that by the loss's
id, in an annotation of the Topology. The id follows from the shards and from how often each was lost, so it
is good for this loss alone; and each operator has its own, so that one Schedule's write accepts it whole.

Those shards alone then have another life, which no owner, entry or copy of the one before can write to
(`penstock.store.lives`). A shard that had yet to move to a lost store is no loss: it stays where it is. Pure.
Neighbours: `stores.homeless` says which stores are lost, `decide` asks, `verdict` tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.api.schedule import pack_parts
from penstock.dataflow.partitions import part_of
from penstock.schedule.births import is_born
from penstock.schedule.record import LIVES_MAX, OperatorSchedule, ShardPlace, StorePlace
from penstock.schedule.store_ids import in_words
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_ACCEPT_LOSS, short_hash
from penstock_operator.cluster.observing.observed import Observed, ObservedSchedule, stores_there

_UNASKED = object()


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one operator. `why` says what became of the stores; `id` is what accepts it."""

    operator: str
    shards: tuple[str, ...]
    why: str
    id: str

    @property
    def parts(self) -> str:
        """The shards, as a Schedule has them."""
        ranges, names = pack_parts(map(part_of, self.shards))
        return ", ".join((*ranges, *names))


@dataclass(frozen=True, slots=True)
class Losses:
    """`found` are those that are known. `unclear` says in words what is waited for to know the rest."""

    found: tuple[Loss, ...] = ()
    unclear: str = ""


def losses_of(observed: Observed) -> Losses:
    """What the topology has lost, as its stores and their agents say."""
    found, unclear = list[Loss](), list[str]()
    lost = {store.id: store.lost for store in observed.stores if store.lost}
    for seen in observed.schedules:
        gone = sorted(lost.keys() & _named(seen.schedule))
        waits = _waits_for(seen, observed, gone) if gone else ""
        if waits:
            reasons = "; ".join(lost[store] for store in gone)
            unclear.append(f"{reasons}; what {seen.schedule.operator} lost is known once {waits}")
            continue
        shards = _lost_shards(seen, observed, gone)
        if shards:
            homes = dict.fromkeys(seen.schedule.shards[shard].home for shard in shards)
            emptied = [
                f"the store of {in_words(home)} came back without them" for home in homes if home not in lost
            ]
            why = "; ".join((*(lost[store] for store in gone), *emptied))
            found.append(Loss(seen.schedule.operator, tuple(shards), why, _id(seen.schedule, shards)))
    return Losses(tuple(found), "; ".join(unclear))


def accepted(topology: Mapping[str, object]) -> frozenset[str]:
    """The ids of the losses that a Topology says are accepted."""
    metadata = topology.get("metadata") or {}
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = str((annotations or {}).get(ANNOTATION_ACCEPT_LOSS) or "")
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def without_lost_stores(
    observed: Observed,
    losses: Losses,
    taken: Collection[str],
    targets: Sequence[StorePlace],
) -> tuple[dict[str, OperatorSchedule], tuple[Loss, ...]]:
    """Operator -> its schedule, of those that change; and the losses that this accepts, of those with ids in
    `taken`. `targets` are the stores that shards may go to."""
    lost = {store.id for store in observed.stores if store.lost}
    by_operator = {loss.operator: loss for loss in losses.found}
    held = Counter({store.id: 0 for store in targets})
    held.update(
        place.home
        for seen in observed.schedules
        for place in seen.schedule.shards.values()
        if place.home in held
    )
    changes: dict[str, OperatorSchedule] = {}
    given_up: list[Loss] = []
    for seen in observed.schedules:
        old, loss = seen.schedule, by_operator.get(seen.schedule.operator)
        is_taken = loss is not None and loss.id in taken
        anew = frozenset(loss.shards) if loss is not None and is_taken else frozenset()
        if loss is not None and anew and not _can_be_anew(old, loss.shards, lost, targets):
            continue
        is_known = not _waits_for(seen, observed, sorted(lost & _named(old)))
        new = _schedule(
            old, lost, anew, observed.strays, targets, held, drops=is_known and (is_taken or not loss)
        )
        if new != old:
            changes[old.operator] = new
            if loss is not None and is_taken:
                given_up.append(loss)
    return changes, tuple(given_up)


def _schedule(
    old: OperatorSchedule,
    lost: Collection[str],
    anew: Collection[str],
    strays: Mapping[str, str],
    targets: Sequence[StorePlace],
    held: Counter[str],
    *,
    drops: bool,
) -> OperatorSchedule:
    """`old` with `anew` in another life, strays where they are, and, where it `drops`, without the lost
    stores."""
    store_of = {worker.name: worker.store for worker in old.workers}
    beside = {e.name: store_of[e.worker] for e in old.executors}
    there = {store.id for store in targets}

    def placed(shard: str, place: ShardPlace) -> ShardPlace:
        if shard in anew:
            home = place.home
            if home in lost:
                near = beside[place.executor]
                home = near if near in there else min(there, key=lambda store: (held[store], store))
                held[home] += 1
            return replace(place, home=home, life=place.life + 1)
        if place.home in lost and shard in strays:
            return replace(place, home=strays[shard])
        return place

    shards = {shard: placed(shard, place) for shard, place in old.shards.items()}
    homes = {place.home for place in shards.values()}
    known = {store.id: store for store in (*targets, *old.stores)}
    stores = [store for store in old.stores if not (drops and store.id in lost and store.id not in homes)]
    stores += [known[home] for home in sorted(homes - {store.id for store in stores})]
    return replace(old, shards=shards, stores=tuple(stores))


def _can_be_anew(
    old: OperatorSchedule, shards: Iterable[str], lost: Collection[str], targets: Sequence[StorePlace]
) -> bool:
    """Whether there is a store to go to, and a life left."""
    places = [old.shards[shard] for shard in shards]
    is_placed = bool(targets) or not any(place.home in lost for place in places)
    return is_placed and all(place.life < LIVES_MAX for place in places)


def _named(schedule: OperatorSchedule) -> set[str]:
    return {store.id for store in schedule.stores} | {place.home for place in schedule.shards.values()}


def _waits_for(seen: ObservedSchedule, observed: Observed, gone: Sequence[str]) -> str:
    """Which store has yet to be there, and at rest, for what was lost with those that are `gone` to be known:
    one of them may have what is missed."""
    there = stores_there(observed.nodes, observed.stores)
    applied = {place.store: place for place in seen.applied}
    for store in seen.schedule.stores:
        if store.id in gone:
            continue
        if store.id not in there or observed.readings.get(store.id) is None:
            return f"the store of {in_words(store.id)} answers"
        place = applied.get(store.id)
        if place is None or place.version < seen.schedule.version:
            return f"the store of {in_words(store.id)} has applied version {seen.schedule.version}"
        stuck = sum(
            home == store.id and seen.schedule.shards[shard].home in gone
            for shard, home in observed.strays.items()
            if shard in seen.schedule.shards
        )
        if place.shards_moving > stuck:
            return f"shards have left {in_words(store.id)}"
    return ""


def _lost_shards(seen: ObservedSchedule, observed: Observed, gone: Sequence[str]) -> list[str]:
    """Those whose home is gone; those that were on their way from there; and those that the agent of a store
    that is there misses."""
    schedule = seen.schedule
    applied = {place.store: place for place in seen.applied}
    versions = {store: place.version for store, place in applied.items()}
    missed: dict[str, list[str]] = {}
    shards = []
    for shard, place in schedule.shards.items():
        if shard in observed.strays:
            continue
        reading = observed.readings.get(place.home)
        if place.home in gone:
            shards.append(shard)
        elif reading is not None and reading.shards.get(shard, _UNASKED) is None and is_born(place, versions):
            missed.setdefault(place.home, []).append(shard)
    for home, names in missed.items():
        told = applied.get(home)
        if gone or (told is not None and told.lost_shards == len(names)):
            shards += names
    return shards


def _id(schedule: OperatorSchedule, shards: Iterable[str]) -> str:
    """Another one for other shards, and for the same ones when they are lost again."""
    lives = sorted(f"{shard} {schedule.shards[shard].life}" for shard in shards)
    return f"{schedule.operator}-{short_hash(chr(10).join(lives))[:8]}"
