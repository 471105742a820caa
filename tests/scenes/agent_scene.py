"""Nodes for tests of the node agent: real redis-servers, agents as processes, and simple tasks as threads.

Neighbours: `node_processes` has the processes, `counting_plan` says what is computed.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from backends.schedule_api_server import ScheduleApiServer
from clocks.eventually import eventually
from penstock.api.schedule_object import to_spec
from penstock.errors import PenstockError
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.store.port import Failures, Measure, ProtocolMismatch, ShardCounters, StateSnapshot
from penstock.store.redis.store import RedisStore
from processes.counting_plan import UID, Row, counted, row_of
from processes.counting_worker import CountingWorker
from processes.free_ports import free_port
from processes.node_processes import AgentProcess, Server


class AgentScene:
    """Two nodes (or more) with their stores, agents and workers, and the API server. `stop` ends all."""

    def __init__(
        self, folder: Path, nodes: Sequence[str] = ("a", "b"), rows: int = 300, shards: int = 4
    ) -> None:
        self.folder = folder
        self.api = ScheduleApiServer()
        self.servers = {node: Server(folder, node, free_port()) for node in nodes}
        self.homes: dict[str, str] = {}
        self.version = 1
        self.born: dict[str, int] = {}
        """Shard -> version that it is fresh since; once they are applied, nobody need say so any more."""
        self.lives: dict[str, int] = {}
        """Of shards that were lost."""
        self.gone: set[str] = set()
        """Nodes that are no more."""
        self.rows = {f"src/{n}": _rows(f"src/{n}", rows) for n in range(2)}
        self.targets = {
            "mid": [f"mid/{n}" for n in range(shards)],
            "end": [f"end/{n}" for n in range(shards)],
        }
        self.api.start()
        self.kubeconfig = self.api.kubeconfig(folder)
        self.agents = {
            node: AgentProcess(folder, server, self.kubeconfig) for node, server in self.servers.items()
        }
        self.workers = {
            node: CountingWorker(f"worker-{node}", server.url, self.rows, shards)
            for node, server in self.servers.items()
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

    @property
    def there(self) -> list[str]:
        """The nodes that are not gone."""
        return [node for node in self.servers if node not in self.gone]

    def lose_node(self, node: str) -> None:
        """It is gone for good, with its worker, its agent and its store."""
        self.gone.add(node)
        self.workers[node].stop()
        self.agents[node].kill()
        self.servers[node].kill()

    def schedule(self, operator: str) -> OperatorSchedule:
        nodes = self.there
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
                shard: ShardPlace(
                    f"{operator}-{home}", home, self.born.get(shard, 0), life=self.lives.get(shard, 0)
                )
                for shard, home in self.homes.items()
                if shard.startswith(f"{operator}/")
            },
            stores=tuple(StorePlace(node, node, self.servers[node].address) for node in nodes),
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
                for node in self.there
            )

        eventually(applied, "all nodes have applied the schedules")

    def store(self, node: str) -> RedisStore:
        return RedisStore(self.servers[node].url, UID)

    def counters(self, shard: str, node: str = "") -> ShardCounters | None:
        """None also while no agent has loaded its store's library."""
        store = self.store(node or self.homes[shard])
        try:
            return store.call(Measure((shard,)))[0]
        except ProtocolMismatch:
            return None
        finally:
            store.close()

    def counts(self, operator: str) -> Counter[str]:
        """Key -> rows that arrived at this operator, over all stores."""
        counts: Counter[str] = Counter()
        for shard in self.targets[operator]:
            store = self.store(self.homes[shard])
            try:
                counts += counted(store.call(StateSnapshot(shard)))
            except PenstockError:
                return Counter()
            finally:
                store.close()
        return counts

    def completed(self, shard: str) -> int:
        """Rows that it has worked off."""
        counters = self.counters(shard)
        return counters.completed_rows if counters is not None else 0

    def keys_at(self, operator: str, node: str) -> set[str]:
        """Keys that shards of the operator which live there have counted rows of."""
        store, found = self.store(node), set[str]()
        for shard in self.targets[operator]:
            if self.homes[shard] == node:
                found |= counted(store.call(StateSnapshot(shard))).keys()
        store.close()
        return found

    def expected(self) -> Counter[str]:
        return Counter(key for rows in self.rows.values() for _, key, _ in rows)

    def wait_done(self) -> None:
        """Until everything has arrived, and exactly once."""
        expected = self.expected()
        total = expected.total()
        for operator in ("end", "mid"):
            # shards that are on the move cannot be asked yet
            eventually(partial(self._has, operator, total), f"all rows have arrived at {operator}")
        assert self.counts("mid") == expected
        assert self.counts("end") == expected
        assert [self.failures(node) for node in self.servers] == [{}] * len(self.servers)

    def _has(self, operator: str, rows: int) -> bool:
        return self.counts(operator).total() >= rows

    def failures(self, node: str) -> dict[str, str]:
        """Rows that came when others were due."""
        store = self.store(node)
        try:
            return store.call(Failures())
        finally:
            store.close()


def _rows(source: str, count: int) -> list[Row]:
    return [row_of(source, number) for number in range(1, count + 1)]
