"""Workers without Spark: they keep the store's protocol on the twin in memory, one turn at a time.

A source shard has `records` rows and sends them to the keyed shards in turn; a keyed shard passes each
row on to the console sink. What a real worker does in many processes is done in `turn`.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from penstock.api.worker_launch import WorkerLaunch
from penstock.metrics.latency import bucket_of
from penstock.metrics.rows import (
    ShardRow,
    TaskRow,
    WorkerRow,
    pack,
    shard_row_name,
    task_row_name,
    worker_row_name,
)
from penstock.store.codec import decode_batch, encode_batch
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import (
    Answer,
    AssignedExecutor,
    Assignment,
    Claim,
    Claimed,
    Commit,
    Enroll,
    Fetch,
    FetchedShard,
    NodeStore,
    Output,
    Owner,
    PutMetrics,
    ReportFailure,
    SetTasks,
    StoreUnreachable,
)
from penstock.store.redis.store import RedisStore
from penstock_operator.fleet.port import WorkerState
from penstock_simulation.twins.memory_fleet import MemoryFleet

KEYED_SHARDS = 8
PROCESS_RECORDS = 120


class StandInWorker:
    """One start of a worker. Each source shard sends one row a turn."""

    def __init__(self, launch: WorkerLaunch, store: NodeStore, records: int, keyed: str, sink: str) -> None:
        self._launch = launch
        self._store = store
        self._records = records
        self._keyed = keyed
        self._sink = sink
        self._incarnation = f"{launch.uid}/0/{launch.attempt}"
        self._owned: dict[str, OwnedShard] = {}
        self._holders: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._latency: dict[str, dict[int, int]] = {}
        self._shard_rows: dict[str, ShardRow] = {}
        self.failing = False

    def turn(self, now_us: int) -> None:
        launch = self._launch
        enrolled = self._store.call(Enroll(launch.worker, launch.uid, 0, launch.attempt))
        assert enrolled is Answer.OK
        assigned = self._store.call(Assignment(launch.worker))
        assert assigned.uid == launch.uid
        for executor in assigned.executors:
            self._run(executor, now_us)
        self._report(tuple(executor.executor for executor in assigned.executors), now_us)

    def _run(self, executor: AssignedExecutor, now_us: int) -> None:
        if not executor.tasks:
            return  # it holds its shards, and nobody works on them
        ready = f"{executor.executor}/{self._incarnation}"
        owner = Owner(executor.executor, self._incarnation, ready)
        mapping = tuple((shard, ready) for shard in executor.shards)
        self._store.call(SetTasks(self._launch.worker, self._incarnation, owner.executor, mapping))
        held = {shard for shard, holder in self._holders.items() if holder == executor.executor}
        for shard in held - set(executor.shards):
            del self._holders[shard]
            self._owned.pop(shard, None)
        for shard in set(executor.shards) - (held & self._owned.keys()):
            claimed = self._store.call(Claim(shard, owner, executor.version))
            if isinstance(claimed, Claimed):
                self._owned[shard] = owned = OwnedShard(shard, claimed)
                self._holders[shard] = executor.executor
                self._shard_rows[shard] = ShardRow(owned.epoch, owned.generation, now_us, 0, 0, 0)
        for fetched in self._store.call(Fetch(ready, 1 << 20, 100)).shards:
            self._work(executor.operator, fetched, now_us)

    def _work(self, operator: str, fetched: FetchedShard, now_us: int) -> None:
        owned = self._owned.get(fetched.shard)
        if owned is None or owned.epoch != fetched.epoch:
            return
        if operator != self._keyed:
            commit = self._read(owned, now_us)
        elif self.failing:
            failure = ReportFailure(owned.shard, owned.generation, owned.epoch, operator, "ValueError: no")
            self._store.call(failure)
            return
        else:
            payloads = [entry.payload for entry in fetched.entries]
            outputs = tuple(Output(self._sink, payload, 1, external=True) for payload in payloads)
            commit = owned.commit(now_us, entries=fetched.entries, rows=len(payloads), outputs=outputs)
        try:
            owned.settle(commit, self._store.call(commit))
        except OwnershipLost:
            del self._owned[fetched.shard]
            return
        for entry in fetched.entries:
            self._count(operator, now_us - decode_batch(entry.payload).base_us)
        before = self._shard_rows[owned.shard]
        waited_us = sum(now_us - entry.placed_us for entry in fetched.entries)
        self._shard_rows[owned.shard] = ShardRow(
            before.epoch,
            before.generation,
            now_us,
            before.rows + max(1, len(fetched.entries)),
            before.busy_us + 100,
            before.waited_us + waited_us,
        )
        if operator != self._keyed:
            self._count(operator, 0)

    def _read(self, owned: OwnedShard, now_us: int) -> Commit:
        number = int(owned.position or b"0")
        finished = number + 1 >= self._records
        payload = encode_batch([now_us], [[f"{owned.shard}:{number}", number]])
        return owned.commit(
            now_us,
            rows=1,
            position=str(number + 1).encode(),
            finished=finished,
            again=not finished,
            outputs=(Output(f"{self._keyed}/{number % KEYED_SHARDS}", payload, 1),),
        )

    def _count(self, operator: str, age_us: int) -> None:
        self._rows[operator] = self._rows.get(operator, 0) + 1
        histogram = self._latency.setdefault(operator, {})
        bucket = bucket_of(age_us)
        histogram[bucket] = histogram.get(bucket, 0) + 1

    def _report(self, executors: tuple[str, ...], now_us: int) -> None:
        launch = self._launch
        running = dict.fromkeys(executors, 1)
        worker = WorkerRow(launch.worker, launch.uid, launch.attempt, 1, "ready", "", now_us, running)
        batches = sum(self._rows.values())
        task = TaskRow("all", "", 0, "all", launch.attempt, now_us, self._latency, self._rows, batches, 0)
        rows = [
            (worker_row_name(launch.worker), pack(worker)),
            (task_row_name(launch.worker, "all", 0), pack(task)),
        ]
        for executor in executors:
            spoken = TaskRow(executor, "", 0, executor, launch.attempt, now_us, {}, {}, 0, 0)
            rows.append((task_row_name(launch.worker, executor, 0), pack(spoken)))
        rows += [(shard_row_name(shard), pack(self._shard_rows[shard])) for shard in self._owned]
        self._store.call(PutMetrics(tuple(rows)))


class StandInWorkers:
    """All workers of a `MemoryFleet`."""

    def __init__(self, fleet: MemoryFleet, store: NodeStore, records: int, keyed: str, sink: str) -> None:
        self.fleet = fleet
        self.failing = False
        self._store = store
        self._topology = (records, keyed, sink)
        self._workers: dict[str, StandInWorker] = {}

    def launch(self, launch: WorkerLaunch) -> None:
        self.fleet.start(launch)
        self._workers[launch.worker] = StandInWorker(launch, self._store, *self._topology)

    def turn(self, now_us: int) -> None:
        for seen in self.fleet.workers():
            if seen.state is WorkerState.STOPPING:
                self.fleet.leave(seen.worker, 0)
            elif seen.state is WorkerState.RUNNING:
                self._workers[seen.worker].failing = self.failing
                self._workers[seen.worker].turn(now_us)


def main(launch_file: str) -> None:
    """`python -m processes.stand_in_workers LAUNCH.json`: one as a process, until SIGTERM.

    Its numbers are those of `tests/integration/test_run_processes.py`.
    """
    launch = WorkerLaunch.model_validate_json(Path(launch_file).read_text(encoding="utf-8"))
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    store = RedisStore(launch.store_url, launch.topology_uid)
    worker = StandInWorker(launch, store, PROCESS_RECORDS, "count", "shown")
    while not told.wait(0.01):
        try:
            worker.turn(int(time.time() * 1e6))
        except StoreUnreachable:
            worker = StandInWorker(launch, store, PROCESS_RECORDS, "count", "shown")
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
