"""Faults of a worker's main process that the simulation must catch, planted in the product's own.

`planted_bugs` has those of stores and senders.
"""

from __future__ import annotations

from typing import Any

from penstock.store.port import AssignedExecutor
from penstock_simulation.protocol.world import Parts
from penstock_worker.main_process.loop import MainProcess
from penstock_worker.main_process.running_executor import RunningExecutor


class TrustsItsMap(MainProcess):
    """What task map it wrote is not read again: one of before that comes late stays in its place."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._written: object = None

    def _tell_tasks(self) -> None:
        now = [(name, e.mapping(), e.without_shards()) for name, e in self._executors.items()]
        if now != self._written:
            super()._tell_tasks()
            self._written = now


class MintsAgain(MainProcess):
    """A start that another one has replaced takes a new number, and comes before that one again."""

    def _enroll(self) -> None:
        self._start = 0
        super()._enroll()


class _Watched(MainProcess):
    """Whose executors are of another kind."""

    kind: type[RunningExecutor]

    def _new_executor(self, executor: AssignedExecutor) -> RunningExecutor:
        made = super()._new_executor(executor)
        made.__class__ = self.kind
        return made


class _KeepsStanding(RunningExecutor):
    def _leave_standing(self, now_us: int) -> None:
        pass


class KeepsStanding(_Watched):
    """A task that stands still keeps its shards."""

    kind = _KeepsStanding


class _KeepsEnded(RunningExecutor):
    def _reap(self, now_us: int) -> None:
        pass


class KeepsEnded(_Watched):
    """A task that has ended keeps its shards."""

    kind = _KeepsEnded


WORKER_BUGS = {
    "a task map is not read again": Parts(main=TrustsItsMap),
    "a replaced start comes back": Parts(main=MintsAgain),
    "a standing task keeps its shards": Parts(main=KeepsStanding),
    "an ended task keeps its shards": Parts(main=KeepsEnded),
}
