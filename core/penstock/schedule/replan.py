"""Schedules for the workers that there are: what a cluster's operator writes next, level-based.

`replan` goes from the schedules as they are to those that fit the workers as they are: tasks spread over the
hosts, shards spread by tasks, homes beside their executors. From what it made itself it makes no other, and
nothing moves that does not have to. What may not be touched now (a worker whose node is away, a
shard that its home has still to make) is *pinned*: it keeps its executor, its tasks, its home.

Pure. Neighbours: `placement` does the same for one machine, where homes never change and the run itself
knows what has happened; `record` is the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.schedule.placement import executor_name, free_name, shares
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace


@dataclass(frozen=True, slots=True)
class Host:
    """A worker that runs executors. `task_room` is how many tasks its cores give; every operator has one task
    somewhere even so. `is_pinned`: it keeps what it has, and is given nothing."""

    place: WorkerPlace
    store: StorePlace
    task_room: int
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """One operator: all of its shards (those that are new too), and tasks over all hosts. `is_held`: tasks
    stay 0 although there is work."""

    operator: str
    shards: tuple[str, ...]
    tasks: int
    is_held: bool = False
    is_source: bool = False
    is_kept: bool = False
    """Another decider (a latency SLA) says which executors there are and what each runs: of that only what
    workers that go, or `tasks`, force is changed."""
    is_treated: bool = False
    """That decider is at it: executors that have no shards yet stay."""


def replan(
    old: Mapping[str, OperatorSchedule],
    wishes: Sequence[Wish],
    hosts: Sequence[Host],
    *,
    term: int,
    unborn: Collection[str] = (),
) -> dict[str, OperatorSchedule]:
    """The schedule of every wish's operator; the very object of `old` where nothing differs.

    `old` may lack operators: theirs are first ones. `unborn` names shards that their home may still have to
    make: they stay where they are. Shards are never dropped: one that is in `old` and no longer wished stays.
    A store that `old` names stays named, see `forget_stores`. Where an operator has no host to go to,
    its schedule is left as it is, but for the uids of workers. ValueError when an operator without
    schedule has no host.
    """
    fixed = [wish for wish in wishes if wish.is_kept and wish.operator in old]
    kept = _keep_all(old, fixed, hosts, term, frozenset(unborn))
    others = [wish for wish in wishes if wish.operator not in kept]
    spare = _without_kept(hosts, kept.values())
    tasks = _spread_tasks(old, others, spare)
    planned = {
        wish.operator: _replanned(
            old.get(wish.operator), wish, spare, tasks[wish.operator], term, frozenset(unborn)
        )
        for wish in others
    }
    return {wish.operator: (kept | planned)[wish.operator] for wish in wishes}


def announce(old: OperatorSchedule, planned: OperatorSchedule, *, term: int) -> OperatorSchedule:
    """`old` and the executors that only `planned` has or that have no shard in `old`, still without shards.

    Written before `planned`, so that their tasks are up when shards come (promise 10). What was announced
    before and is planned no longer goes.
    """
    kept = tuple(executor for executor in old.executors if old.shards_of(executor.name))
    known = {executor.name for executor in kept}
    new = tuple(executor for executor in planned.executors if executor.name not in known)
    executors = (*kept, *new)
    hosts = {executor.worker for executor in executors}
    renewed = {worker.name: worker for worker in (*old.workers, *planned.workers)}
    workers = tuple(worker for name, worker in renewed.items() if name in hosts)
    stores = {store.id: store for store in (*old.stores, *planned.stores)}
    return _next(old, replace(old, executors=executors, workers=workers, stores=tuple(stores.values())), term)


def announced_executors(old: OperatorSchedule | None, planned: OperatorSchedule) -> tuple[str, ...]:
    """Executors of `planned` that are to take shards and have none in `old`; none for a first schedule."""
    if old is None:
        return ()
    holders = {place.executor for place in old.shards.values()}
    return tuple(e.name for e in planned.executors if e.tasks > 0 and e.name not in holders)


def forget_stores(old: OperatorSchedule, *, term: int) -> OperatorSchedule:
    """`old` without the stores that are no shard's home and host no worker any more.

    Only once every store has applied `old` and nothing moves: until then a store that lost its
    shards still holds what is on its way.
    """
    needed = {place.home for place in old.shards.values()}
    nodes = {worker.node for worker in old.workers}
    stores = tuple(store for store in old.stores if store.id in needed or store.node in nodes)
    return _next(old, replace(old, stores=stores), term)


def mark_born(old: OperatorSchedule, applied: Mapping[str, int]) -> OperatorSchedule:
    """`old`, same version, with `fresh_since` 0 where the home (store id -> version applied) has made the
    shard. It goes out with the next version."""
    if not any(place.fresh_since for place in old.shards.values()):
        return old
    shards = {
        shard: replace(place, fresh_since=0) if is_born(place, applied) else place
        for shard, place in old.shards.items()
    }
    return replace(old, shards=shards)


def is_born(place: ShardPlace, applied: Mapping[str, int]) -> bool:
    return applied.get(place.home, -1) >= place.fresh_since


# --- tasks --------------------------------------------------------------------------------------


def _spread_tasks(
    old: Mapping[str, OperatorSchedule], wishes: Sequence[Wish], hosts: Sequence[Host]
) -> dict[str, dict[str, int]]:
    """operator -> worker -> tasks, over the hosts that are not pinned; none of 0."""
    spread = _TaskSpread([host for host in hosts if not host.is_pinned])
    pinned = {host.place.name for host in hosts if host.is_pinned}
    for wish in wishes:
        schedule = old.get(wish.operator)
        if schedule is None:
            spread.add(wish.operator, {}, 0 if wish.is_held else min(wish.tasks, len(wish.shards)))
            continue
        holding = {e.worker: len(schedule.shards_of(e.name)) for e in schedule.executors}
        fixed = sum(executor.tasks for executor in schedule.executors if executor.worker in pinned)
        shards_free = len(schedule.shards.keys() | set(wish.shards))
        shards_free -= sum(count for worker, count in holding.items() if worker in pinned)
        wanted = 0 if wish.is_held else max(0, min(wish.tasks - fixed, shards_free))
        current = {e.worker: e.tasks for e in schedule.executors if holding[e.worker]}
        if current and not any(current.values()):
            # Woken: who holds the shards is given the tasks.
            current = shares(wanted, dict.fromkeys(current, 0), {name: holding[name] for name in current})
        spread.add(wish.operator, current, wanted)
    return spread.spread()


class _TaskSpread:
    """Tasks of several operators on the same hosts, as they are moved about."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._room = {host.place.name: host.task_room for host in hosts}
        self._used = dict.fromkeys(self._room, 0)
        self._have: dict[str, dict[str, int]] = {}
        self._wanted: dict[str, int] = {}

    def add(self, operator: str, current: Mapping[str, int], wanted: int) -> None:
        self._have[operator] = {name: current.get(name, 0) for name in self._room}
        self._wanted[operator] = wanted
        for name, count in self._have[operator].items():
            self._used[name] += count

    def spread(self) -> dict[str, dict[str, int]]:
        if self._room:
            for operator in self._have:
                self._take_surplus(operator)
            self._give_first()
            self._even_out()
            self._take_overflow()
            # Who was over its room may be so again, by less: an operator's last task was given meanwhile.
            while self._give_more() or self._take_overflow():
                pass
        return {
            operator: {name: count for name, count in have.items() if count}
            for operator, have in self._have.items()
        }

    def _change(self, operator: str, host: str, by: int) -> None:
        self._have[operator][host] += by
        self._used[host] += by

    def _take_surplus(self, operator: str) -> None:
        have = self._have[operator]
        while sum(have.values()) > self._wanted[operator]:
            self._change(operator, max(have, key=lambda name: (have[name], self._used[name])), -1)

    def _take_overflow(self) -> bool:
        """Cores went: tasks go, but an operator's last one. Whether any went."""
        taken = False
        for host, room in self._room.items():
            while self._used[host] > room:
                able = [
                    operator for operator, have in self._have.items() if have[host] and sum(have.values()) > 1
                ]
                if not able:
                    break
                most = max(able, key=lambda operator: self._have[operator][host])
                self._change(most, host, -1)
                taken = True
        return taken

    def _give_first(self) -> None:
        """An operator's first task goes to the host that has the fewest, room or not."""
        for operator, have in self._have.items():
            if self._wanted[operator] and not any(have.values()):
                self._change(operator, min(self._used, key=lambda name: self._used[name]), 1)

    def _give_more(self) -> bool:
        """One each in turn, as long as there is room, then evenly. Whether anything was given."""
        before = sum(self._used.values())
        given = True
        while given:
            given = False
            for operator, have in self._have.items():
                able = [name for name, room in self._room.items() if self._used[name] < room]
                if able and sum(have.values()) < self._wanted[operator]:
                    self._change(operator, min(able, key=lambda name: (have[name], self._used[name])), 1)
                    given = True
        self._even_out()
        return sum(self._used.values()) > before

    def _even_out(self) -> None:
        """First each operator over its hosts, then the hosts. Each step makes the sum of squares less
        (of the operator's tasks, or with those equal of the hosts'), so it ends."""
        while self._even_operators() or self._even_hosts():
            pass

    def _even_operators(self) -> bool:
        for operator, have in self._have.items():
            able = [name for name, room in self._room.items() if self._used[name] < room]
            if not able:
                continue
            most = max(have, key=lambda name: (have[name], self._used[name]))
            least = min(able, key=lambda name: (have[name], self._used[name]))
            if have[most] >= have[least] + 2:
                self._change(operator, most, -1)
                self._change(operator, least, 1)
                return True
        return False

    def _even_hosts(self) -> bool:
        open_hosts = [name for name, room in self._room.items() if self._used[name] < room]
        most = max(self._used, key=lambda name: self._used[name])
        least = min(open_hosts, key=lambda name: self._used[name], default=most)
        if self._used[most] < self._used[least] + 2:
            return False
        able = [operator for operator, have in self._have.items() if have[most] > have[least]]
        operator = max(able, key=lambda name: self._have[name][most] - self._have[name][least])
        self._change(operator, most, -1)
        self._change(operator, least, 1)
        return True


# --- operators that another one decides about -------------------------------------------------


def _keep_all(
    old: Mapping[str, OperatorSchedule],
    wishes: Sequence[Wish],
    hosts: Sequence[Host],
    term: int,
    unborn: frozenset[str],
) -> dict[str, OperatorSchedule]:
    treated = {wish.operator for wish in wishes if wish.is_treated}
    own = {wish.operator for wish in wishes} - treated
    used, taken = Counter[str](), set[str]()
    for operator, schedule in old.items():
        # What was announced for an earlier plan is planned anew, by the same name in the same place.
        holders = {place.executor for place in schedule.shards.values()}
        for executor in schedule.executors:
            if operator not in own or executor.name in holders:
                used[executor.worker] += executor.tasks
                taken.add(executor.name)
    room = {h.place.name: h.task_room - used[h.place.name] for h in hosts if not h.is_pinned}
    kept = {}
    for wish in wishes:
        keeping = _Keeping(old[wish.operator], wish, hosts, room, taken, unborn)
        kept[wish.operator] = keeping.schedule(term)
    return kept


def _without_kept(hosts: Sequence[Host], kept: Iterable[OperatorSchedule]) -> list[Host]:
    """`hosts` with the room that is left to the operators that are spread."""
    used = Counter[str]()
    for schedule in kept:
        for executor in schedule.executors:
            used[executor.worker] += executor.tasks
    return [replace(host, task_room=max(0, host.task_room - used[host.place.name])) for host in hosts]


class _Keeping:
    """One operator whose executors stay as they are where they can. `room` and `taken` are carried on."""

    def __init__(
        self,
        old: OperatorSchedule,
        wish: Wish,
        hosts: Sequence[Host],
        room: dict[str, int],
        taken: set[str],
        unborn: frozenset[str],
    ) -> None:
        self._old = old
        self._wish = wish
        self._hosts = {host.place.name: host for host in hosts}
        self._room = room
        self._taken = taken
        self._runs = {shard: place.executor for shard, place in old.shards.items()}
        holders = Counter(self._runs.values())
        self._executors = {e.name: e for e in old.executors if wish.is_treated or holders[e.name]}
        self._unborn = unborn
        self._fixed = {self._runs[shard] for shard in unborn if shard in self._runs}

    def schedule(self, term: int) -> OperatorSchedule:
        if not self._room:
            return _renewed(self._old, self._hosts, term)
        leaving = [
            e for e in self._executors.values() if e.worker not in self._hosts and e.name not in self._fixed
        ]
        before = sum(executor.tasks for executor in self._executors.values())
        for executor in leaving:
            self._relocate(executor)
        self._take(before - self._wish.tasks)
        self._give(self._wish.tasks - before)
        return self._written(term)

    def _held(self, executor: str) -> list[str]:
        return [shard for shard, name in self._runs.items() if name == executor]

    def _movable(self) -> list[ExecutorPlace]:
        """Executors on hosts that take and give."""
        return [e for e in self._executors.values() if e.worker in self._room and e.name not in self._fixed]

    def _roomiest(self, tasks: int) -> str | None:
        here = Counter(executor.worker for executor in self._executors.values())
        able = [name for name, room in self._room.items() if room >= tasks]
        return min(able, key=lambda name: (here[name], -self._room[name]), default=None)

    def _add(self, worker: str, tasks: int) -> str:
        name = executor_name(self._old.operator, worker)
        if name in self._taken:
            name = free_name(self._old.operator, worker, self._taken)
        self._taken.add(name)
        self._executors[name] = ExecutorPlace(name, worker, tasks)
        self._room[worker] -= tasks
        return name

    def _relocate(self, executor: ExecutorPlace) -> None:
        """Its worker goes: it goes whole to where there is room, else its shards go to the others."""
        del self._executors[executor.name]
        shards = self._held(executor.name)
        worker = self._roomiest(executor.tasks)
        if worker is not None:
            target = self._add(worker, executor.tasks)
            self._runs.update(dict.fromkeys(shards, target))
        elif self._movable():
            self._deal_out(shards)
        else:
            most = max(self._room, key=lambda name: self._room[name])
            self._runs.update(dict.fromkeys(shards, self._add(most, 1)))

    def _deal_out(self, shards: Sequence[str]) -> None:
        """Each to the executor with the fewest shards a task."""
        counts = Counter(self._runs.values())
        for shard in shards:
            target = min(self._movable(), key=lambda e: (counts[e.name] + 1) / max(1, e.tasks))
            counts[target.name] += 1
            self._runs[shard] = target.name

    def _take(self, tasks: int) -> None:
        """So many tasks go: from executors of several first, then who holds least goes whole."""
        for _ in range(tasks):
            movable = self._movable()
            if not movable:
                return
            most = max(movable, key=lambda e: e.tasks)
            if most.tasks > 1:
                self._executors[most.name] = replace(most, tasks=most.tasks - 1)
                self._room[most.worker] += 1
                continue
            if len(movable) < 2:
                return
            least = min(movable, key=lambda e: len(self._held(e.name)))
            del self._executors[least.name]
            self._room[least.worker] += least.tasks
            self._deal_out(self._held(least.name))

    def _give(self, tasks: int) -> None:
        """So many tasks come, where there is room: each a new executor with half of the fullest one's
        shards."""
        for _ in range(tasks):
            worker = self._roomiest(1)
            fullest = max(self._movable(), key=lambda e: len(self._held(e.name)), default=None)
            if worker is None or fullest is None or len(shards := self._held(fullest.name)) < 2:
                return
            target = self._add(worker, 1)
            self._runs.update(dict.fromkeys(shards[len(shards) // 2 :], target))

    def _written(self, term: int) -> OperatorSchedule:
        old = self._old
        worker_of = {executor.name: executor.worker for executor in self._executors.values()}
        shards = dict(old.shards)
        for shard, place in old.shards.items():
            executor = self._runs[shard]
            if worker_of[executor] in self._room and shard not in self._unborn:
                home = self._hosts[worker_of[executor]].store.id
                shards[shard] = replace(place, executor=executor, home=home)
        executors = tuple(self._executors.values())
        workers = _workers(old, executors, self._hosts)
        stores = _stores(old, executors, self._hosts)
        return _next(
            old, replace(old, executors=executors, workers=workers, shards=shards, stores=stores), term
        )


# --- one operator -------------------------------------------------------------------------------


def placed_beside(
    old: OperatorSchedule, new: OperatorSchedule, stores: Mapping[str, StorePlace]
) -> OperatorSchedule:
    """`new`, made from `old` by moving shards between executors, with the homes of those shards beside their
    new executors; `stores` is node -> its store. Workers without executor are left out, and stores that
    neither `old` names nor anything needs."""
    workers = {executor.worker for executor in new.executors}
    places = tuple(place for place in new.workers if place.name in workers)
    node_of = {place.name: place.node for place in places}
    home_of = {executor.name: stores[node_of[executor.worker]] for executor in new.executors}
    shards = {
        shard: place
        if shard in old.shards and old.shards[shard].executor == place.executor
        else replace(place, home=home_of[place.executor].id)
        for shard, place in new.shards.items()
    }
    named = {store.id: store for store in (*old.stores, *home_of.values())}
    return replace(new, workers=places, shards=shards, stores=tuple(named.values()))


def _replanned(
    before: OperatorSchedule | None,
    wish: Wish,
    hosts: Sequence[Host],
    tasks: Mapping[str, int],
    term: int,
    unborn: frozenset[str],
) -> OperatorSchedule:
    old = before or OperatorSchedule(wish.operator, 0, term, (), (), {}, (), wish.is_source)
    version = old.version + 1
    by_name = {host.place.name: host for host in hosts}
    active = [host for host in hosts if not host.is_pinned]
    worker_of = {executor.name: executor.worker for executor in old.executors}
    stuck = {
        shard
        for shard, place in old.shards.items()
        if shard in unborn
        or ((host := by_name.get(worker_of[place.executor])) is not None and host.is_pinned)
    }
    new_shards = [shard for shard in wish.shards if shard not in old.shards]
    free = [shard for shard in old.shards if shard not in stuck]
    if not active:
        if before is None:
            raise ValueError(f"operator {wish.operator} has no worker to be placed on")
        return _renewed(old, by_name, term)
    weights = tasks or _idle(old, free, active)
    names = _executor_names(old, wish.operator, weights)
    held: dict[str, list[str]] = {name: [] for name in names.values()}
    for shard in free:
        if (worker := worker_of[old.shards[shard].executor]) in names:
            held[names[worker]].append(shard)
    runs = _share_out(
        [*free, *new_shards],
        {shard: old.shards[shard].home for shard in free},
        held,
        {names[worker]: weight for worker, weight in weights.items()},
        {names[worker]: by_name[worker].store.id for worker in weights},
    )
    store_of = {names[worker]: by_name[worker].store for worker in weights}
    shards = dict(old.shards)
    for shard, executor in runs.items():
        fresh_since = old.shards[shard].fresh_since if shard in old.shards else version
        shards[shard] = ShardPlace(executor, store_of[executor].id, fresh_since)
    executors = _executors(old, names, tasks, shards, by_name, wish)
    changed = (executors, _workers(old, executors, by_name), shards, _stores(old, executors, by_name))
    if changed == (old.executors, old.workers, old.shards, old.stores):
        return old
    return OperatorSchedule(
        wish.operator, version, term, changed[1], changed[0], shards, changed[3], wish.is_source
    )


def _idle(old: OperatorSchedule, free: Iterable[str], active: Sequence[Host]) -> dict[str, int]:
    """Hosts of an operator without tasks, weighed so that nothing moves: those that hold its shards, or
    the first one."""
    worker_of = {executor.name: executor.worker for executor in old.executors}
    holding = Counter(worker_of[old.shards[shard].executor] for shard in free)
    kept = {host.place.name: holding[host.place.name] for host in active if holding[host.place.name]}
    return kept or {active[0].place.name: 1}


def _executor_names(old: OperatorSchedule, operator: str, workers: Iterable[str]) -> dict[str, str]:
    """worker -> executor: the one it has, or a first one."""
    known = {executor.worker: executor.name for executor in old.executors}
    return {worker: known.get(worker, executor_name(operator, worker)) for worker in workers}


def _share_out(
    shards: Sequence[str],
    homes: Mapping[str, str],
    held: Mapping[str, Sequence[str]],
    weights: Mapping[str, int],
    store_of: Mapping[str, str],
) -> dict[str, str]:
    """shard -> executor: even shares, as few changes as that needs, within a home where it can be."""
    quota = shares(len(shards), {name: len(held[name]) for name in weights}, weights)
    kept = {name: list(held[name][: quota[name]]) for name in weights}
    staying = {shard for names in kept.values() for shard in names}
    loose = [shard for shard in shards if shard not in staying]
    for name, store in store_of.items():
        near = [shard for shard in loose if homes.get(shard) == store][: quota[name] - len(kept[name])]
        kept[name] += near
        taken = set(near)
        loose = [shard for shard in loose if shard not in taken]
    rest = iter(loose)
    for name in weights:
        while len(kept[name]) < quota[name]:
            kept[name].append(next(rest))
    return {shard: name for name, mine in kept.items() for shard in mine}


def _executors(
    old: OperatorSchedule,
    names: Mapping[str, str],
    tasks: Mapping[str, int],
    shards: Mapping[str, ShardPlace],
    by_name: Mapping[str, Host],
    wish: Wish,
) -> tuple[ExecutorPlace, ...]:
    """Old ones that still have shards in their order, then new ones."""
    holders = {place.executor for place in shards.values()}
    tasks_of = {names[worker]: tasks.get(worker, 0) for worker in names}
    out = []
    for executor in old.executors:
        if executor.name not in holders:
            continue
        host = by_name.get(executor.worker)
        is_mine = executor.name in tasks_of and not (host is not None and host.is_pinned)
        count = tasks_of[executor.name] if is_mine else 0 if wish.is_held else executor.tasks
        out.append(replace(executor, tasks=count))
    known = {executor.name for executor in out}
    new = ((name, worker) for worker, name in names.items() if name in holders and name not in known)
    return (*out, *(ExecutorPlace(name, worker, tasks_of[name]) for name, worker in new))


def _workers(
    old: OperatorSchedule, executors: Iterable[ExecutorPlace], by_name: Mapping[str, Host]
) -> tuple[WorkerPlace, ...]:
    """Who holds an executor, as it is now."""
    holders = {executor.worker for executor in executors}
    known = {place.name: place for place in old.workers}
    names = [*known, *(name for name in by_name if name not in known)]
    return tuple(by_name[name].place if name in by_name else known[name] for name in names if name in holders)


def _stores(
    old: OperatorSchedule, executors: Iterable[ExecutorPlace], by_name: Mapping[str, Host]
) -> tuple[StorePlace, ...]:
    """Those named so far (addresses as they are now), and those of the hosts."""
    stores = {store.id: store for store in old.stores}
    for executor in executors:
        if (host := by_name.get(executor.worker)) is not None:
            stores[host.store.id] = host.store
    return tuple(stores.values())


def _renewed(old: OperatorSchedule, by_name: Mapping[str, Host], term: int) -> OperatorSchedule:
    workers = tuple(by_name[place.name].place if place.name in by_name else place for place in old.workers)
    return _next(old, replace(old, workers=workers), term)


def _next(old: OperatorSchedule, new: OperatorSchedule, term: int) -> OperatorSchedule:
    """`new` as the version after `old`; `old` itself when nothing differs but who would write it."""
    return old if new == old else replace(new, version=old.version + 1, term=term)
