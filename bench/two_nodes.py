"""Nodes of a cluster as processes of this machine: redis-servers, agents, workers, and an operator's hand.

Everything is the product's own but the API server: Schedules go to the agents over pipes (`agent_on_pipe`),
in the form in which an operator writes them. A change of the schedule is a new version; what follows from it
is the agents' and workers' affair. Neighbours: `move` and `migration` run topologies on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import cpu
from bench.node_store import STOP_S, Loopback, NodeStore, Place
from bench.penstock_side import environment

from penstock.api.compile import compile_topology
from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.api.load import load_topology
from penstock.api.schedule_object import to_spec
from penstock.dataflow.partitions import shards_of
from penstock.dataflow.plan import Plan, Processor
from penstock.dataflow.routing_table import RoutingTable, is_carried_out
from penstock.errors import PenstockError
from penstock.locality.carrying import table_place
from penstock.metrics.rows import WorkerRow, unpack, worker_row_name
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.store.codec import decode_counts
from penstock.store.port import Measure, ReadMetrics, ShardCounters
from penstock.store.redis.store import RedisStore

UID = "bench"
TERM = 1
MANIFEST = "topology.yaml"
START_S = 90.0
POLL_S = 0.002


class NodesFailedError(Exception):
    """A process ended, or something did not come true in time; the text says what, and where to look."""


def eventually(holds: Callable[[], object], what: str, seconds: float, every_s: float = 0.02) -> None:
    """Wait for what processes do by and by. Raises NodesFailedError."""
    end_s = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end_s:
            raise NodesFailedError(f"within {seconds:.0f} s it did not come true that {what}")
        time.sleep(every_s)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """A redis-server and an agent; on this machine as it is, or on a `place` of their own."""

    def __init__(self, name: str, folder: Path, place: Place | None = None) -> None:
        self.name = name
        self.place = place or Loopback()
        self.store = NodeStore(folder, name, _free_port(), place)
        self.reports: dict[str, tuple[int, int]] = {}
        """Object -> (version, shards moving), as the agent reported last."""
        self._agent: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.store.start()
        command = [sys.executable, "-m", "bench.agent_on_pipe", self.name, self.store.url, str(_free_port())]
        with (self.store.folder / "agent.log").open("ab") as log:
            self._agent = subprocess.Popen(
                self.place.command(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(),
            )
        self.reports = {}
        threading.Thread(target=self._take_reports, args=(self._agent,), daemon=True).start()

    def tell(self, name: str, spec: Mapping[str, Any]) -> None:
        """Have the agent see an object."""
        self._write({"name": name, "spec": spec})

    def look_every(self, seconds: float) -> None:
        """Have the agent see what is new so often only; 0 is at once."""
        self._write({"every_s": seconds})

    def _write(self, told: Mapping[str, Any]) -> None:
        assert self._agent is not None
        assert self._agent.stdin is not None
        self._agent.stdin.write(json.dumps(told) + "\n")
        self._agent.stdin.flush()

    def stop(self) -> None:
        """Agent first; the server writes everything out."""
        if self._agent is not None:
            self._agent.terminate()
            try:
                self._agent.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._agent.kill()
                self._agent.wait()
            self._agent = None
        self.store.stop()

    def check(self) -> None:
        for process, what in ((self.store.process, "redis-server"), (self._agent, "agent")):
            if process is not None and process.poll() is not None:
                raise NodesFailedError(f"{what} of node {self.name} ended; see {self.store.folder}")

    def _take_reports(self, agent: subprocess.Popen[str]) -> None:
        assert agent.stdout is not None
        for line in agent.stdout:
            told = json.loads(line)
            self.reports[told["name"]] = (told["version"], told["moving"])


class Worker:
    """A worker of the product, as `penstock run` starts one."""

    def __init__(self, name: str, node: Node, folder: Path, module: str, manifest: str = MANIFEST) -> None:
        self.name = name
        self.node = node
        self._module = module
        self._manifest = manifest
        self.uid = f"uid-{name}"
        self._folder = folder
        self._attempt = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        launch = WorkerLaunch(
            topology_uid=UID,
            manifest=str(self._folder / self._manifest),
            base_dir=str(self._folder),
            worker=self.name,
            uid=self.uid,
            attempt=self._attempt,
            store_id=self.node.name,
            store_url=self.node.store.local_url,
        )
        self._attempt += 1
        file = self._folder / f"{self.name}.json"
        file.write_text(launch.model_dump_json())
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.node.place.command([sys.executable, "-m", self._module, str(file)]),
                cwd=self._folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def tell_to_stop(self) -> None:
        """As a pod is told: tasks finish their batches."""
        if self._process is not None:
            self._process.terminate()

    def wait_stopped(self) -> None:
        """Until it and all that it started have ended; what does not end is killed."""
        if self._process is None:
            return
        started = [(one.pid, one.started_ticks) for one in cpu.tree(self._process.pid)]
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid, ticks in started:
            if any(one.started_ticks == ticks for one in cpu.tree(pid)[:1]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process = None

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise NodesFailedError(f"worker {self.name} ended; see {self._folder / self.name}.log")


class Nodes:
    """Two nodes or more, the workers on them, and the Schedules as they should be. Not thread safe.

    `workers` is worker -> node; `folder` holds the manifest and the code. Schedules begin without executors.
    `plan` is what the manifest says, where that is no topology as users write them; `places` are the nodes
    that are not on this machine as it is.
    """

    def __init__(
        self,
        folder: Path,
        workers: Mapping[str, str],
        worker_module: str = "penstock_worker",
        manifest: str = MANIFEST,
        plan: Plan | None = None,
        places: Mapping[str, Place] | None = None,
    ) -> None:
        self.folder = folder
        self.plan = plan or compile_topology(load_topology(folder / manifest))
        at = places or {}
        self.nodes = {name: Node(name, folder, at.get(name)) for name in dict.fromkeys(workers.values())}
        self.workers = {
            name: Worker(name, self.nodes[node], folder, worker_module, manifest)
            for name, node in workers.items()
        }
        self.schedules: dict[str, OperatorSchedule] = {}
        self._stores = {name: RedisStore(node.store.local_url, UID) for name, node in self.nodes.items()}

    # --- what runs

    def start_stores(self) -> None:
        for node in self.nodes.values():
            node.start()
        for operator in self.schedules:
            self._tell(operator)

    def start_workers(self) -> None:
        for worker in self.workers.values():
            worker.start()

    def stop_workers(self) -> None:
        for worker in self.workers.values():
            worker.tell_to_stop()
        for worker in self.workers.values():
            worker.wait_stopped()

    def stop_stores(self) -> None:
        for node in self.nodes.values():
            node.stop()

    def stop(self) -> None:
        self.stop_workers()
        self.stop_stores()
        for store in self._stores.values():
            store.close()

    def check(self) -> None:
        """Raises NodesFailedError when a process has ended."""
        for process in (*self.nodes.values(), *self.workers.values()):
            process.check()

    # --- the operator's hand

    def begin(self, executors: Sequence[ExecutorPlace], runs: Mapping[str, str | Mapping[str, str]]) -> None:
        """Make the first Schedules: `runs` is operator -> the executor that has all its shards at first, or
        the executor of each."""
        worker_of = {executor.name: executor.worker for executor in executors}
        places = tuple(
            WorkerPlace(worker.name, worker.node.name, worker.node.place.address, worker.uid)
            for worker in self.workers.values()
        )
        stores = tuple(StorePlace(node.name, node.name, node.store.address) for node in self.nodes.values())
        for stage in self.plan.stages:
            told, shards = runs[stage.operator], shards_of(stage, self.folder)
            of = dict.fromkeys(shards, told) if isinstance(told, str) else told
            self.schedules[stage.operator] = OperatorSchedule(
                operator=stage.operator,
                version=1,
                term=TERM,
                workers=places,
                executors=tuple(e for e in executors if e.name.startswith(f"{stage.operator}-")),
                shards={
                    shard: ShardPlace(of[shard], self.workers[worker_of[of[shard]]].node.name, 1)
                    for shard in shards
                },
                stores=stores,
                is_source=not isinstance(stage.head, Processor),
            )

    def place(
        self, operator: str, moves: Mapping[str, str], executors: Sequence[ExecutorPlace] | None = None
    ) -> None:
        """Give shards to other executors (shard -> executor), with homes on these executors' nodes.

        `executors` take the place of all that there are.
        """
        old = self.schedules[operator]
        if executors is not None:
            old = replace(old, executors=tuple(executors), shards={})
        worker_of = {executor.name: executor.worker for executor in old.executors}
        shards = dict(self.schedules[operator].shards)
        for shard, executor in moves.items():
            shards[shard] = ShardPlace(executor, self.workers[worker_of[executor]].node.name)
        self._publish(replace(old, shards=shards))

    def put_table(self, operator: str, table: RoutingTable) -> None:
        """Have an operator's keys go by a table; its commits switch by themselves."""
        self._publish(replace(self.schedules[operator], table=table_place(table)))

    def is_carried_out(self, operator: str, table: RoutingTable) -> bool:
        """Whether nobody routes by an earlier table, or waits for keys of this one."""
        return is_carried_out(operator, table, self.counts())

    def counts(self) -> dict[str, dict[str, int]]:
        """Shard -> what its record counts, of those of which that is known."""
        shards = [shard for schedule in self.schedules.values() for shard in schedule.shards]
        return {shard: decode_counts(seen.counts) for shard, seen in self.counters(shards).items()}

    def set_tasks(self, operator: str, executor: str, tasks: int) -> None:
        old = self.schedules[operator]
        self._publish(
            replace(
                old,
                executors=tuple(
                    replace(one, tasks=tasks) if one.name == executor else one for one in old.executors
                ),
            )
        )

    def wait_applied(self, seconds: float = START_S) -> None:
        """Until each node has reported the newest version of each Schedule."""

        def applied() -> bool:
            self.check()
            return all(
                node.reports.get(operator, (0, 0))[0] == schedule.version
                for operator, schedule in self.schedules.items()
                for node in self.nodes.values()
            )

        eventually(applied, "all nodes have applied the schedules", seconds)

    def wait_moved(self, seconds: float = START_S) -> None:
        """Until no shard is on its way any more, by the agents' reports on the newest Schedules."""
        self.wait_applied(seconds)

        def moved() -> bool:
            self.check()
            return all(moving == 0 for node in self.nodes.values() for _, moving in node.reports.values())

        eventually(moved, "all shards are at home", seconds)

    def wait_running(self, executors: Iterable[ExecutorPlace], seconds: float = START_S) -> None:
        """Until the executors' workers say that their tasks are up."""
        wanted = list(executors)

        def running() -> bool:
            self.check()
            for executor in wanted:
                name = worker_row_name(executor.worker)
                data = self._stores[self.workers[executor.worker].node.name].call(ReadMetrics()).get(name)
                row = None if data is None else unpack(name, data)
                if not isinstance(row, WorkerRow) or row.tasks.get(executor.name, 0) < executor.tasks:
                    return False
            return True

        eventually(running, "the tasks are up", seconds, every_s=0.1)

    def _publish(self, schedule: OperatorSchedule) -> None:
        shards = {
            # whoever was born is there by now
            shard: replace(place, fresh_since=0)
            for shard, place in schedule.shards.items()
        }
        self.schedules[schedule.operator] = replace(schedule, version=schedule.version + 1, shards=shards)
        self._tell(schedule.operator)

    def _tell(self, operator: str) -> None:
        spec = to_spec(self.schedules[operator], self.plan.topology, UID)
        for node in self.nodes.values():
            node.tell(operator, spec)

    # --- what is there

    def store(self, node: str) -> RedisStore:
        return self._stores[node]

    def counters(self, shards: Iterable[str]) -> dict[str, ShardCounters]:
        """Counters at the shards' homes by the newest schedule; without those that are not there yet."""
        found: dict[str, ShardCounters] = {}
        by_home: dict[str, list[str]] = {}
        for shard in shards:
            place = self.schedules[shard.split("/")[0]].shards[shard]
            by_home.setdefault(place.home, []).append(shard)
        for home, names in by_home.items():
            try:
                counters = self._stores[home].call(Measure(tuple(names)))
            except PenstockError:
                continue
            found.update((name, one) for name, one in zip(names, counters, strict=True) if one is not None)
        return found

    def wait_committed(self, moves: Mapping[str, str], seconds: float, what: str) -> None:
        """Until each shard has a commit of its executor, newer than its claim; `moves` is shard -> executor.

        Asked seldom: asking takes the store's time.
        """
        claimed: dict[str, tuple[int, int]] = {}

        def committed() -> bool:
            self.check()
            for shard, counters in self.counters(set(moves) - done).items():
                if counters.executor != moves[shard]:
                    continue
                first = claimed.setdefault(shard, (counters.epoch, counters.commit))
                if counters.epoch == first[0] and counters.commit > first[1]:
                    done.add(shard)
                elif counters.epoch != first[0]:
                    claimed[shard] = (counters.epoch, counters.commit)
            return len(done) == len(moves)

        done: set[str] = set()
        eventually(committed, what, seconds)
