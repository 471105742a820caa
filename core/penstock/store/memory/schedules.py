"""The twin's part about schedules: a node's maps, and what they say of a worker.

Whoever has a shard that is to go to another store keeps it until it departs, whatever the newest schedule
says.
"""

from __future__ import annotations

from penstock.store.memory.node import NO_TASKS, PublishedSchedule
from penstock.store.memory.topology import Handlers, MemoryTopology
from penstock.store.port import (
    Answer,
    AssignedExecutor,
    Assignment,
    Publish,
    ShardStatus,
    WaitControl,
    WorkerAssignment,
)


class MemorySchedules(MemoryTopology):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={Publish: self._publish},
            reads={Assignment: self._assignment, WaitControl: self._wait_control},
        )

    def _publish(self, call: Publish) -> Answer:
        data = self._data
        if data.retracted:
            return Answer.UNKNOWN
        old = data.schedules.get(call.operator)
        if old is not None and (call.version < old.version or call.term < old.term):
            return Answer.STALE
        if old is not None and call.version == old.version:
            return Answer.DONE
        new = PublishedSchedule(
            version=call.version,
            term=call.term,
            workers={worker: (node, host, uid) for worker, node, host, uid in call.workers},
            executors={executor: (worker, tasks) for executor, worker, tasks in call.executors},
            shards={shard: (executor, home) for shard, executor, home in call.shards},
            remote={
                executor: tuple((node, tasks) for name, node, tasks in call.remote if name == executor)
                for executor, _, _ in call.remote
            },
        )
        data.workers.update(new.workers)
        if old is not None:
            self._keep_what_leaves(old, new)
            for executor in {*old.executors, *old.keepers} - {*new.executors, *new.keepers}:
                _, mapping, idle = data.tasks.pop(executor, NO_TASKS)
                for ready in sorted({*mapping.values(), *idle}):
                    self._wake_list(ready)
        data.schedules[call.operator] = new
        self._ring_listeners(call.operator)
        data.listed = True
        for worker in {**(old.workers if old else {}), **new.workers}:
            data.control[worker] = data.control.get(worker, 0) + 1
        for worker in set(old.workers if old else ()) - set(new.workers):
            if not any(worker in schedule.workers for schedule in data.schedules.values()):
                del data.workers[worker]
        return Answer.OK

    def _keep_what_leaves(self, old: PublishedSchedule, new: PublishedSchedule) -> None:
        """Whoever has a shard that is to go to another store keeps it until it departs."""
        leaving = self._data.leaving
        for shard, (_, home) in new.shards.items():
            keeper = None if home == self._node.store_id else self._keeper_of(shard, old, new)
            leaving.pop(shard, None)
            if keeper is None:
                continue
            leaving[shard] = keeper
            place = old.place_of(keeper)
            if keeper not in new.executors and place is not None:
                new.keepers[keeper] = place
                new.workers.setdefault(place[0], old.workers[place[0]])

    def _keeper_of(self, shard: str, old: PublishedSchedule, new: PublishedSchedule) -> str | None:
        """Who owns a shard here, or was to do so before the schedule sent it on; None for nobody."""
        record = self._data.shards.get(shard)
        if record is None or record.status in {ShardStatus.DEPARTED, ShardStatus.MOVED}:
            return None
        planned, home = old.shards.get(shard, ("", ""))
        candidates = (
            record.owner.executor if record.owner is not None else "",
            self._data.leaving.get(shard, ""),
            planned if home == self._node.store_id else "",
        )
        return next((e for e in candidates if e in new.executors or old.place_of(e) is not None), None)

    def _assignment(self, call: Assignment) -> WorkerAssignment:
        data = self._data
        executors = [
            AssignedExecutor(
                operator=operator,
                executor=executor,
                version=schedule.version,
                tasks=tasks,
                shards=shards,
                remote=schedule.remote.get(executor, ()),
            )
            for operator, schedule in sorted(data.schedules.items())
            for executor, (worker, tasks) in sorted((schedule.executors | schedule.keepers).items())
            if worker == call.worker
            for shards in (self._assigned_shards(schedule, executor),)
            if shards or executor in schedule.executors
        ]
        named = data.workers.get(call.worker)
        uid = named[2] if named else ""
        return WorkerAssignment(uid, data.retracted, self._node.generation, tuple(executors))

    def _assigned_shards(self, schedule: PublishedSchedule, executor: str) -> tuple[str, ...]:
        at_home = [s for s, at in schedule.shards.items() if at == (executor, self._node.store_id)]
        leaving = [s for s, keeper in self._data.leaving.items() if keeper == executor]
        return tuple(sorted(at_home + leaving))

    def _wait_control(self, call: WaitControl) -> int:
        return self._data.control.get(call.worker, 0)
