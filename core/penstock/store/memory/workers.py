"""The twin's part about workers: their starts and incarnations, and how shards are spread over tasks."""

from __future__ import annotations

from penstock.store.memory.node import NO_TASKS
from penstock.store.memory.topology import Handlers, MemoryTopology, enrolled_incarnation
from penstock.store.port import Answer, Enroll, MintStart, SetTasks, TaskMap, Tasks


class MemoryWorkers(MemoryTopology):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={MintStart: self._mint_start, Enroll: self._enroll, SetTasks: self._set_tasks},
            reads={Tasks: self._tasks},
        )

    def _mint_start(self, call: MintStart) -> int | Answer:
        data = self._data
        if data.retracted:
            return Answer.UNKNOWN
        _, enrolled, _ = data.enrolled.get(call.worker, ("", 0, 0))
        start = data.starts[call.worker] = max(data.starts.get(call.worker, 0), enrolled) + 1
        return start

    def _enroll(self, call: Enroll) -> Answer:
        data = self._data
        if data.retracted:
            return Answer.UNKNOWN
        named = data.workers.get(call.worker)
        if named is not None and named[2] != call.uid:
            return Answer.STALE
        known = data.enrolled.get(call.worker)
        if known is not None and known[0] == call.uid and known[:0:-1] > (call.attempt, call.start):
            return Answer.STALE
        data.enrolled[call.worker] = (call.uid, call.start, call.attempt)
        return Answer.OK

    def _set_tasks(self, call: SetTasks) -> Answer:
        data = self._data
        if data.retracted:
            return Answer.UNKNOWN
        if enrolled_incarnation(data, call.worker) != call.incarnation:
            return Answer.STALE
        _, before, idle_before = data.tasks.get(call.executor, NO_TASKS)
        mapping = dict(call.mapping)
        idle = frozenset(call.idle) - set(mapping.values())
        data.tasks[call.executor] = (call.incarnation, mapping, idle)
        for ready in {*before.values(), *idle_before, *mapping.values(), *idle}:
            self._wake_list(ready)
        return Answer.OK

    def _tasks(self, call: Tasks) -> TaskMap:
        incarnation, mapping, idle = self._data.tasks.get(call.executor, NO_TASKS)
        schedule = self._data.schedules.get(call.operator)
        return TaskMap(incarnation, dict(mapping), schedule.version if schedule else 0, idle)
