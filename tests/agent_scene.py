"""Nodes for tests of the node agent: real redis-servers, agents as processes, and simple tasks as threads.

The topology: `src` reads numbered rows of a few keys, `mid` counts them by key and passes each on, `end`
counts again. A row that is lost, doubled or out of order shows at once, or in the counts at the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
from bench.node_store import NodeStore

import penstock
import penstock_operator
from free_ports import free_port
from penstock.api.schedule_object import to_spec
from penstock.errors import PenstockError
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import (
    Answer,
    Assignment,
    Claim,
    Claimed,
    Enroll,
    Fetch,
    FetchedShard,
    Load,
    Measure,
    Output,
    Owner,
    ShardCounters,
    StateSnapshot,
    StateWrite,
    WaitReady,
)
from penstock.store.redis_store import RedisStore
from schedule_api_server import ScheduleApiServer

UID = "state-1"
DEADLINE_S = 60.0

Row = tuple[str, str, int]
"""Source shard, key, number of the row in its source."""


def eventually(holds: Callable[[], object], what: str = "", seconds: float = DEADLINE_S) -> None:
    """Wait for what processes do by and by."""
    deadline_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline_s, f"it did not come true: {what}"
        time.sleep(0.01)


class Server(NodeStore):
    """A node's redis-server that can be killed, and lose what it holds."""

    def kill(self, number: int = signal.SIGKILL, *, wait: bool = True) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            if wait:
                self.process.wait(10)

    def lose_everything(self) -> None:
        """What is on disk goes; while the server is down."""
        for file in sorted(self.folder.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()


class AgentProcess:
    """`python -m penstock_operator.agent` for one node."""

    def __init__(self, folder: Path, server: Server, kubeconfig: Path, **environment: str) -> None:
        self.port = free_port()
        self._log = folder / f"agent-{server.node}.log"
        self._environment = {
            "PENSTOCK_NAMESPACE": "default",
            "PENSTOCK_NODE": server.node,
            "PENSTOCK_STORE_URL": server.url,
            "PENSTOCK_AGENT_PORT": str(self.port),
            "PENSTOCK_KUBECONFIG": str(kubeconfig),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folders = {Path(module.__file__ or "").parent.parent for module in (penstock, penstock_operator)}
        path = os.pathsep.join([*map(str, folders), *sys.path])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock_operator.agent"],
                env={**os.environ, "PYTHONPATH": path, **self._environment},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> tuple[int, float]:
        """Ask it to end; its exit code, and how many seconds it took."""
        if self._process is None or self._process.poll() is not None:
            return 0, 0.0
        began_s = time.monotonic()
        self._process.terminate()
        code = self._process.wait(10)
        return code, time.monotonic() - began_s

    def wait(self) -> int:
        """Its exit code, once it ends by itself."""
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> str:
        """What its endpoint answers. OSError when it does not."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
            return str(answer.read().decode())


class Worker:
    """All tasks of one node's worker in one thread: it claims what is assigned, and works."""

    def __init__(
        self, server: Server, rows: Mapping[str, Sequence[Row]], targets: Mapping[str, Sequence[str]]
    ) -> None:
        self.name = f"worker-{server.node}"
        self.uid = f"uid-{self.name}"
        self.faults: list[str] = []
        self.step_s = 0.0
        self.part = 1.0
        """How much of each source is let through."""
        self._store = RedisStore(server.url, UID)
        self._rows = rows
        self._targets = targets
        self._owned: dict[str, OwnedShard] = {}
        self._look_at_s = 0.0
        self._version = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(10)
        self._store.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._step()
            except PenstockError:
                self._owned.clear()
                self._look_at_s = 0.0
                self._stopped.wait(0.02)

    def _step(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + 0.05
            self._look()
        if not self._store.call(WaitReady(self.name, 20)):
            return
        for one in self._store.call(Fetch(self.name, 64 << 10, 16)).shards:
            owned = self._owned.get(one.shard)
            if owned is None or owned.epoch != one.epoch:
                continue
            try:
                self._work(owned, one)
            except OwnershipLost:
                self._owned.pop(one.shard, None)
        if self.step_s:
            self._stopped.wait(self.step_s)

    def _look(self) -> None:
        """Claim what the maps assign, and claim again what is stranded."""
        if self._store.call(Enroll(self.name, self.uid, 1, 0)) is not Answer.OK:
            return
        seen = self._store.call(Assignment(self.name))
        assigned = {
            shard: (executor.executor, executor.version)
            for executor in seen.executors
            for shard in executor.shards
        }
        for shard in self._owned.keys() - assigned.keys():
            del self._owned[shard]
        held = tuple(self._owned)
        for shard, counters in zip(held, self._store.call(Measure(held)), strict=True):
            owned = self._owned[shard]
            if counters is None or (counters.epoch, counters.generation) != (owned.epoch, owned.generation):
                del self._owned[shard]
        for shard, (executor, version) in assigned.items():
            if shard not in self._owned:
                owner = Owner(executor, f"{self.uid}/1/0", self.name)
                claimed = self._store.call(Claim(shard, owner, version))
                if isinstance(claimed, Claimed):
                    self._owned[shard] = OwnedShard(shard, claimed)

    def _work(self, owned: OwnedShard, one: FetchedShard) -> None:
        operator = one.shard.split("/")[0]
        if operator == "src":
            rows = self._rows[one.shard]
            start = int(owned.position or b"0")
            batch = rows[start : min(start + 5, int(self.part * len(rows)))]
            end = start + len(batch)
            commit = owned.commit(
                time.time_ns() // 1000,
                position=b"%d" % end,
                finished=end == len(rows),
                again=True,
                outputs=self._outputs("mid", batch),
            )
        else:
            batch = [
                row for entry in one.entries for row in msgspec.msgpack.decode(entry.payload, type=list[Row])
            ]
            commit = owned.commit(
                time.time_ns() // 1000,
                entries=one.entries,
                rows=len(batch),
                state=self._counted(owned, batch),
                outputs=self._outputs("end", batch) if operator == "mid" else (),
            )
        owned.settle(commit, self._store.call(commit))

    def _outputs(self, operator: str, rows: Sequence[Row]) -> tuple[Output, ...]:
        by_target: dict[str, list[Row]] = {}
        targets = self._targets[operator]
        for row in rows:
            by_target.setdefault(targets[int(row[1]) % len(targets)], []).append(row)
        return tuple(
            Output(target, msgspec.msgpack.encode(sent), len(sent)) for target, sent in by_target.items()
        )

    def _counted(self, owned: OwnedShard, rows: Sequence[Row]) -> tuple[StateWrite, ...]:
        names = list(dict.fromkeys(f"{kind} {name}" for row in rows for kind, name in _fields(row)))
        fields = tuple(name.encode() for name in names)
        load = Load(owned.shard, owned.generation, owned.epoch, b"", fields)
        values = self._store.call(load)
        if isinstance(values, Answer):
            raise OwnershipLost(owned.shard, values)
        state = {name: int(value or b"0") for name, value in zip(names, values, strict=True)}
        for row in rows:
            source, key, number = row
            if number <= state[f"last {source}:{key}"]:
                self.faults.append(f"{owned.shard}: row {row} after {state[f'last {source}:{key}']}")
            state[f"last {source}:{key}"] = number
            state[f"count {key}"] += 1
        return tuple(StateWrite(b"", name.encode(), b"%d" % value) for name, value in state.items())


def _fields(row: Row) -> tuple[tuple[str, str], tuple[str, str]]:
    source, key, _ = row
    return ("last", f"{source}:{key}"), ("count", key)


class AgentScene:
    """Two nodes (or more) with their stores, agents and workers, and the API server. `stop` ends all."""

    def __init__(self, folder: Path, nodes: Sequence[str] = ("a", "b"), rows: int = 300) -> None:
        self.folder = folder
        self.api = ScheduleApiServer()
        self.servers = {node: Server(folder, node, free_port()) for node in nodes}
        self.homes: dict[str, str] = {}
        self.version = 1
        self.born: dict[str, int] = {}
        """Shard -> version that it is fresh since; once they are applied, nobody need say so any more."""
        self.rows = {f"src/{n}": _rows(f"src/{n}", rows) for n in range(2)}
        self.targets = {
            "mid": [f"mid/{n}" for n in range(4)],
            "end": [f"end/{n}" for n in range(4)],
        }
        self.api.start()
        self.kubeconfig = self.api.kubeconfig(folder)
        self.agents = {
            node: AgentProcess(folder, server, self.kubeconfig) for node, server in self.servers.items()
        }
        self.workers = {
            node: Worker(server, self.rows, self.targets) for node, server in self.servers.items()
        }
        for shard in [*self.rows, *self.targets["mid"], *self.targets["end"]]:
            # neighbours in the flow are on different nodes
            operator, part = shard.split("/")
            self.homes[shard] = nodes[(int(part) + (operator == "mid")) % len(nodes)]
        self.born = dict.fromkeys(self.homes, 1)

    def start(self) -> AgentScene:
        for server in self.servers.values():
            server.start()
        for agent in self.agents.values():
            agent.start()
        return self

    def stop(self) -> None:
        for worker in self.workers.values():
            if worker._thread.ident is not None:
                worker.stop()
        for agent in self.agents.values():
            agent.stop()
        for server in self.servers.values():
            server.kill(signal.SIGCONT, wait=False)
            server.kill(signal.SIGTERM)
        self.api.stop()

    def work(self) -> None:
        for worker in self.workers.values():
            worker.start()

    def schedule(self, operator: str) -> OperatorSchedule:
        nodes = list(self.servers)
        return OperatorSchedule(
            operator=operator,
            version=self.version,
            term=1,
            workers=tuple(
                WorkerPlace(self.workers[node].name, node, "127.0.0.1", self.workers[node].uid)
                for node in nodes
            ),
            executors=tuple(
                ExecutorPlace(f"{operator}-{node}", self.workers[node].name, 1) for node in nodes
            ),
            shards={
                shard: ShardPlace(f"{operator}-{home}", home, self.born.get(shard, 0))
                for shard, home in self.homes.items()
                if shard.startswith(f"{operator}/")
            },
            stores=tuple(StorePlace(node, node, server.address) for node, server in self.servers.items()),
            is_source=operator == "src",
        )

    def publish(self, **extra: Any) -> None:
        """Write the Schedules as they should be now."""
        for operator in ("src", "mid", "end"):
            self.api.put(f"words-{operator}", to_spec(self.schedule(operator), "words", UID, **extra))

    def wait_applied(self) -> None:
        """Until every node has reported the newest version of every Schedule."""

        def applied() -> bool:
            return all(
                self.api.applied(f"words-{operator}").get(node, {}).get("version") == self.version
                for operator in ("src", "mid", "end")
                for node in self.servers
            )

        eventually(applied, "all nodes have applied the schedules")

    def store(self, node: str) -> RedisStore:
        return RedisStore(self.servers[node].url, UID)

    def counters(self, shard: str, node: str = "") -> ShardCounters | None:
        store = self.store(node or self.homes[shard])
        try:
            return store.call(Measure((shard,)))[0]
        finally:
            store.close()

    def counts(self, operator: str) -> Counter[str]:
        """Key -> rows that arrived at this operator, over all stores."""
        counts: Counter[str] = Counter()
        for shard in self.targets[operator]:
            store = self.store(self.homes[shard])
            try:
                for (_, name), value in store.call(StateSnapshot(shard)).items():
                    if name.startswith(b"count "):
                        counts[name.decode().removeprefix("count ")] += int(value)
            except PenstockError:
                return Counter()
            finally:
                store.close()
        return counts

    def expected(self) -> Counter[str]:
        return Counter(key for rows in self.rows.values() for _, key, _ in rows)

    def wait_done(self) -> None:
        """Until everything has arrived, and exactly once."""
        expected = self.expected()
        total = expected.total()
        eventually(lambda: self.counts("end").total() >= total, "all rows have arrived")
        assert self.counts("mid") == expected
        assert self.counts("end") == expected
        assert [fault for worker in self.workers.values() for fault in worker.faults] == []


def _rows(source: str, count: int) -> list[Row]:
    return [(source, str(n * 7 % 12), n) for n in range(1, count + 1)]
