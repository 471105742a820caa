"""Workers without Spark: they keep the store's protocol on the twin in memory, one turn at a time.

A source shard has `records` rows and sends them to the keyed shards in turn; a keyed shard passes each
row on to the console sink. What a real worker does in many processes is done here in `turn`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.api.worker_launch import WorkerLaunch
from penstock.metrics.rows import TaskRow, WorkerRow, pack, task_row_name, worker_row_name
from penstock.store.codec import decode_batch, encode_batch
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import (
    Answer,
    Assignment,
    Claim,
    Claimed,
    Enroll,
    Fetch,
    FetchedShard,
    NodeStore,
    Output,
    Owner,
    PutMetrics,
    ReportFailure,
    SetTasks,
)
from penstock_operator.fleet import WorkerState
from penstock_operator.memory_fleet import MemoryFleet


@dataclass
class _Worker:
    launch: WorkerLaunch
    owned: dict[str, OwnedShard] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    latency: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def incarnation(self) -> str:
        return f"{self.launch.uid}/{self.launch.start_ms}/{self.launch.attempt}"


class StandInWorkers:
    """All workers of a `MemoryFleet`. Each source shard sends one row a turn."""

    def __init__(self, fleet: MemoryFleet, store: NodeStore, records: int, keyed: str, sink: str) -> None:
        self.fleet = fleet
        self.store = store
        self.records = records
        self.keyed = keyed
        self.sink = sink
        self.failing = False
        self._workers: dict[str, _Worker] = {}

    def launch(self, launch: WorkerLaunch) -> None:
        self.fleet.start(launch)
        self._workers[launch.worker] = _Worker(launch)

    def turn(self, now_us: int) -> None:
        for seen in self.fleet.workers():
            if seen.state is WorkerState.STOPPING:
                self.fleet.leave(seen.worker, 0)
            elif seen.state is WorkerState.RUNNING:
                self._turn(self._workers[seen.worker], now_us)

    def _turn(self, worker: _Worker, now_us: int) -> None:
        launch = worker.launch
        assert (
            self.store.call(Enroll(launch.worker, launch.uid, launch.start_ms, launch.attempt)) is Answer.OK
        )
        assigned = self.store.call(Assignment(launch.worker))
        assert assigned.uid == launch.uid
        for executor in assigned.executors:
            ready = f"{executor.executor}/{worker.incarnation}"
            owner = Owner(executor.executor, worker.incarnation, ready)
            self.store.call(
                SetTasks(
                    launch.worker,
                    worker.incarnation,
                    owner.executor,
                    tuple((s, ready) for s in executor.shards),
                )
            )
            of_operator = {s for s in worker.owned if s.startswith(f"{executor.operator}/")}
            for shard in of_operator - set(executor.shards):
                del worker.owned[shard]
            for shard in set(executor.shards) - worker.owned.keys():
                claimed = self.store.call(Claim(shard, owner, executor.version))
                if isinstance(claimed, Claimed):
                    worker.owned[shard] = OwnedShard(shard, claimed)
            for fetched in self.store.call(Fetch(ready, 1 << 20, 100)).shards:
                self._work(worker, executor.operator, fetched, now_us)
        self._report(worker, tuple(e.executor for e in assigned.executors), now_us)

    def _work(self, worker: _Worker, operator: str, fetched: FetchedShard, now_us: int) -> None:
        owned = worker.owned.get(fetched.shard)
        if owned is None:
            return
        if operator == self.keyed:
            if self.failing:
                self.store.call(
                    ReportFailure(owned.shard, owned.generation, owned.epoch, operator, "ValueError: no")
                )
                return
            payloads = [entry.payload for entry in fetched.entries]
            outputs = tuple(Output(self.sink, payload, 1, external=True) for payload in payloads)
            commit = owned.commit(now_us, entries=fetched.entries, rows=len(payloads), outputs=outputs)
            for payload in payloads:
                self._count(worker, operator, now_us - decode_batch(payload).base_us)
        else:
            number = int(owned.position or b"0")
            target = f"{self.keyed}/{number % 8}"
            payload = encode_batch([now_us], [[f"{fetched.shard}:{number}", number]])
            finished = number + 1 == self.records
            commit = owned.commit(
                now_us,
                rows=1,
                position=str(number + 1).encode(),
                finished=finished,
                again=not finished,
                outputs=(Output(target, payload, 1),),
            )
            self._count(worker, operator, 0)
        try:
            owned.settle(commit, self.store.call(commit))
        except OwnershipLost:
            del worker.owned[fetched.shard]

    def _count(self, worker: _Worker, operator: str, age_us: int) -> None:
        worker.rows[operator] = worker.rows.get(operator, 0) + 1
        histogram = worker.latency.setdefault(operator, {})
        histogram[age_us // 1000] = histogram.get(age_us // 1000, 0) + 1

    def _report(self, worker: _Worker, executors: tuple[str, ...], now_us: int) -> None:
        launch = worker.launch
        row = WorkerRow(
            launch.worker, launch.uid, launch.attempt, 1, "ready", "", now_us, dict.fromkeys(executors, 1)
        )
        rows = [(worker_row_name(launch.worker), pack(row))]
        task = TaskRow(
            executor="all",
            operator="",
            task=0,
            ready="all",
            pid=launch.attempt,
            at_us=now_us,
            latency=worker.latency,
            rows=worker.rows,
            batches=sum(worker.rows.values()),
            fenced=0,
        )
        rows.append((task_row_name(launch.worker, "all", 0), pack(task)))
        self.store.call(PutMetrics(tuple(rows)))
