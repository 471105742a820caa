"""How many tasks of each operator go to which worker: evenly, as far as the workers have room.

First each operator is even over its workers, then the workers among each other. From what it made itself it
makes no other. Pure. Neighbours: `planner` asks, `spread` lets the shards follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.schedule.hosts_and_wishes import Host, Manner, Wish
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.shares import shares


def spread_tasks(
    old: Mapping[str, OperatorSchedule], wishes: Sequence[Wish], hosts: Iterable[Host]
) -> dict[str, dict[str, int]]:
    """operator -> worker -> tasks, over the hosts that are not pinned; none of 0."""
    hosts = tuple(hosts)
    staying = (wish.operator for wish in wishes if wish.manner is not Manner.SPREAD)
    spread = _TaskSpread([host for host in hosts if not host.is_pinned], staying)
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

    def __init__(self, hosts: Sequence[Host], staying: Iterable[str]) -> None:
        self._room = {host.place.name: host.task_room for host in hosts}
        self._used = dict.fromkeys(self._room, 0)
        self._have: dict[str, dict[str, int]] = {}
        self._wanted: dict[str, int] = {}
        self._staying = set(staying)

    def add(self, operator: str, current: Mapping[str, int], wanted: int) -> None:
        self._have[operator] = {name: current.get(name, 0) for name in self._room}
        self._wanted[operator] = wanted
        for name, count in self._have[operator].items():
            self._used[name] += count

    def spread(self) -> dict[str, dict[str, int]]:
        if self._room:
            for operator in self._have:
                self._take_surplus(operator)
            self._give_all()
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

    def _missing(self, operator: str) -> int:
        return self._wanted[operator] - sum(self._have[operator].values())

    def _with_room(self) -> list[str]:
        return [name for name, room in self._room.items() if self._used[name] < room]

    def _take_surplus(self, operator: str) -> None:
        have = self._have[operator]
        while self._missing(operator) < 0:
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

    def _give_all(self) -> None:
        """At the start, and where there is room for everything, each operator is given all of its own before
        the next one: its executors are as many as can be. Those whose executors stay come last: the others
        are evened without them from then on."""
        missing = sum(self._missing(operator) for operator in self._have)
        if any(self._used.values()) or missing > sum(max(0, room) for room in self._room.values()):
            return
        for operator in sorted(self._have, key=lambda name: name in self._staying):
            while self._missing(operator):
                self._give(operator)

    def _give(self, operator: str) -> None:
        """One task, to a host with room: first an operator's own spread, then the host's."""
        have = self._have[operator]
        self._change(operator, min(self._with_room(), key=lambda name: (have[name], self._used[name])), 1)

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
            for operator in self._have:
                if self._with_room() and self._missing(operator) > 0:
                    self._give(operator)
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
            able = self._with_room()
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
        most = max(self._used, key=lambda name: self._used[name])
        least = min(self._with_room(), key=lambda name: self._used[name], default=most)
        if self._used[most] < self._used[least] + 2:
            return False
        able = [operator for operator, have in self._have.items() if have[most] > have[least]]
        operator = max(able, key=lambda name: self._have[name][most] - self._have[name][least])
        self._change(operator, most, -1)
        self._change(operator, least, 1)
        return True
