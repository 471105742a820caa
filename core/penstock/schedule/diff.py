"""Thread-level update: from what a worker runs and what it is assigned to what it has to do.

After N-Storm (Zhang et al.), section III.C, TLU. A worker reads the schedule in its node's store and
takes the differences of the two sets of executors:

1. assigned minus running: *start* these;
2. running minus assigned: *stop* these. The kill is delayed (section IV.A): whoever stops one
   lets it finish its batch;
3. both differences empty: only the connections are *refreshed*. Here that is narrower: an
   executor is refreshed when its shards or the version they are claimed under differ, all others
   are left alone. An executor whose number of tasks differs is *resized*, which N-Storm does not know;
4. the topology is gone: start nothing more, and wait to be *turned off*.

N-Storm also waits to be turned off when the executor set is empty. Here that is a warm spare: it stops
what it runs and keeps its session.

Neighbours: the worker's main process reads the store and carries the update out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class ExecutorAssignment(Protocol):
    """What a schedule says of one executor; `penstock.store.port.AssignedExecutor` is one."""

    @property
    def version(self) -> int: ...
    @property
    def tasks(self) -> int: ...
    @property
    def shards(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Resize:
    """Start `more` more tasks, or stop `-more`; never 0."""

    executor: str
    more: int


@dataclass(frozen=True, slots=True)
class ThreadLevelUpdate:
    """What a worker has to do; names of executors, in order. All else keeps running untouched.

    A resized executor is in `refresh` too when its shards or version changed.
    """

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    resize: tuple[Resize, ...] = ()
    refresh: tuple[str, ...] = ()
    turn_off: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.start or self.stop or self.resize or self.refresh or self.turn_off)


def update(
    running: Mapping[str, ExecutorAssignment],
    assigned: Mapping[str, ExecutorAssignment],
    *,
    topology_gone: bool = False,
) -> ThreadLevelUpdate:
    """Compare by executor name. `running` is what was last carried out. The order of shards says nothing."""
    if topology_gone:
        return ThreadLevelUpdate(stop=tuple(sorted(running)), turn_off=True)
    resize = []
    refresh = []
    for name in sorted(running.keys() & assigned.keys()):
        old, new = running[name], assigned[name]
        if new.tasks != old.tasks:
            resize.append(Resize(name, new.tasks - old.tasks))
        if new.version != old.version or frozenset(new.shards) != frozenset(old.shards):
            refresh.append(name)
    return ThreadLevelUpdate(
        start=tuple(sorted(assigned.keys() - running.keys())),
        stop=tuple(sorted(running.keys() - assigned.keys())),
        resize=tuple(resize),
        refresh=tuple(refresh),
    )
