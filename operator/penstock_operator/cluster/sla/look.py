"""What a LatencySLA's loop is shown in a cluster: samples of all stores, schedules, and who may host.

Clocks of nodes differ, so when a task spoke last is told by when its row was seen to change. A shard is read
at its home alone. Pure but for `HeardTasks`, which remembers. Neighbours: `store_reader` reads, `sla.keeper`
asks, `penstock.sla.loop` is shown the look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.schedule.record import OperatorSchedule
from penstock.sla.look import Leeway, Places, Samples, SlaLook
from penstock.store.port import ShardCounters
from penstock_operator.cluster.decisions.sla_leeway import SlaHost, SlaLeeway
from penstock_operator.cluster.observing.lags import lags_in
from penstock_operator.cluster.observing.observed import ObservedSchedule, StoreReading

Readings = Mapping[str, StoreReading | None]


@dataclass(slots=True)
class HeardTasks:
    """(store, row name) -> what the row said last, and when that was first seen, by the reader's clock."""

    _heard: dict[tuple[str, str], tuple[tuple[int, int], int]] = field(default_factory=dict)

    def take(self, readings: Readings, now_us: int) -> dict[str, list[int]]:
        """Executor -> when each of its tasks spoke last. A store without reading is as it was."""
        heard: dict[tuple[str, str], tuple[tuple[int, int], int]] = {
            key: value for key, value in self._heard.items() if readings.get(key[0]) is None
        }
        spoke: dict[str, list[int]] = {}
        for store, reading in readings.items():
            for name, row in (reading.tasks if reading is not None else {}).items():
                said = (row.at_us, row.pid)
                before = self._heard.get((store, name))
                at_us = before[1] if before is not None and before[0] == said else now_us
                heard[store, name] = (said, at_us)
                spoke.setdefault(row.executor, []).append(at_us)
        self._heard = heard
        return spoke


def homes_of(schedules: Iterable[OperatorSchedule]) -> dict[str, list[str]]:
    """Store id -> shards whose home it is."""
    homes: dict[str, list[str]] = {}
    for schedule in schedules:
        for shard, place in schedule.shards.items():
            homes.setdefault(place.home, []).append(shard)
    return homes


def silent_stores(schedules: Iterable[OperatorSchedule], readings: Readings) -> list[str]:
    """Homes of shards in scope that gave no answer: then nothing is known of some of them."""
    return sorted(home for home in homes_of(schedules) if readings.get(home) is None)


def look_of(
    now_us: int,
    scope: Iterable[str],
    schedules: Sequence[ObservedSchedule],
    leeway: SlaLeeway,
    readings: Readings,
    spoke: Mapping[str, Sequence[int]],
) -> SlaLook:
    """`scope` are the operators in question, each with a Schedule."""
    by_operator = {seen.schedule.operator: seen.schedule for seen in schedules}
    counters: dict[str, dict[str, ShardCounters | None]] = {}
    rows = {}
    for operator in scope:
        counters[operator] = {}
        for shard, place in by_operator[operator].shards.items():
            reading = readings.get(place.home)
            counters[operator][shard] = reading.shards.get(shard) if reading is not None else None
            if reading is not None and shard in reading.shard_rows:
                rows[shard] = reading.shard_rows[shard]
    return SlaLook(
        now_us,
        Samples(counters, rows, spoke, lags_in(readings, by_operator)),
        places_of(schedules, leeway),
        Leeway(held=leeway.held, busy=leeway.busy),
    )


def places_of(schedules: Sequence[ObservedSchedule], leeway: SlaLeeway) -> Places:
    """The schedules as they are now. Tasks scheduled since `leeway` was told count."""
    by_operator = {seen.schedule.operator: seen.schedule for seen in schedules}
    given: dict[str, int] = {}
    for schedule in by_operator.values():
        for executor in schedule.executors:
            given[executor.worker] = given.get(executor.worker, 0) + executor.tasks
    room = {
        host.place.name: max(0, host.tasks + host.room - given.get(host.place.name, 0))
        for host in leeway.hosts
    }
    nodes: dict[str, int] = {}
    for host in leeway.hosts:
        nodes[host.place.node] = nodes.get(host.place.node, 0) + host.tasks + host.room
    return Places(
        schedules={name: with_hosts(one, leeway.hosts) for name, one in by_operator.items()},
        nodes=nodes,
        room=room,
        warm=frozenset(room.keys() - given.keys()),
    )


def with_hosts(schedule: OperatorSchedule, hosts: Iterable[SlaHost]) -> OperatorSchedule:
    """`schedule`, same version, with all workers that may be given executors of its operator; the very object
    where it has them."""
    workers = {place.name: place for place in schedule.workers}
    new = [
        host for host in hosts if host.operator in ("", schedule.operator) and host.place.name not in workers
    ]
    if not new:
        return schedule
    stores = {store.id: store for store in schedule.stores}
    for host in new:
        workers[host.place.name] = host.place
        stores.setdefault(host.store.id, host.store)
    return replace(schedule, workers=tuple(workers.values()), stores=tuple(stores.values()))
