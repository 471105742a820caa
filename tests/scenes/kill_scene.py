"""Two nodes with two workers each, under a paced load without end, for tests that kill in the midst of it.

Everything is a process: redis-servers, agents (the product's, with a gate, see `gated_agent`), workers
(`counting_process`). A move is held at a step, the stores' own records of it are asked until they say so,
then somebody is struck. `settle` lets the sources pause until all has arrived, and compares.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from backends.schedule_api_server import ScheduleApiServer
from clocks.eventually import eventually
from penstock.api.schedule_object import to_spec
from penstock.dataflow.routing_table import RoutingTable, encode_table, is_carried_out
from penstock.errors import PenstockError
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.store.codec import decode_counts
from penstock.store.port import (
    Answer,
    Failures,
    Measure,
    Outgoing,
    PutTable,
    ReadPairs,
    ShardCounters,
    ShardStatus,
    StateSnapshot,
)
from penstock.store.port.moves import MoveState, ReadMove
from penstock.store.redis.store import RedisStore
from processes.counting_plan import KEYS, UID, counted, row_of
from processes.counting_process import Settings
from processes.free_ports import free_port
from processes.gated_agent import Gate, Step
from processes.node_processes import AgentProcess, Server, python_path

NODES = ("a", "b")
WORKERS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
SOURCES = ["src/0", "src/1"]
TARGETS = {"mid": [f"mid/{n}" for n in range(4)], "end": [f"end/{n}" for n in range(4)]}
STEP_S = 0.01


class WorkerProcess:
    """One worker, started again and again."""

    def __init__(self, folder: Path, name: str, server: Server, *, tables: bool = False) -> None:
        self.name = name
        self._tables = tables
        self._folder = folder
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = Settings(str(self._folder), self.name, self._server.url, SOURCES, STEP_S, self._tables)
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "processes.counting_process", msgspec.json.encode(settings).decode()],
                env={"PYTHONPATH": python_path()},
                stdout=log,
                stderr=log,
            )

    def kill(self, number: int = signal.SIGKILL, *, wait: bool = True) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            if wait:
                self._process.wait(10)

    def journal(self) -> list[str]:
        """What was refused in any start: "loss SHARD: ANSWER", by lines."""
        file = self._folder / f"{self.name}.journal"
        return file.read_text().splitlines() if file.exists() else []


class KillScene:
    """Shards begin spread over all workers. `stop` ends everything. `tables`: keys may go to other shards."""

    def __init__(self, folder: Path, *, tables: bool = False) -> None:
        self.folder = folder
        self.version = 0
        self.api = ScheduleApiServer()
        self.api.start()
        kubeconfig = self.api.kubeconfig(folder)
        self.servers = {node: Server(folder, node, free_port()) for node in NODES}
        self.gates = {node: folder / f"gate-{node}" for node in NODES}
        self.agents = {}
        for node, server in self.servers.items():
            self.gates[node].mkdir()
            gate = str(self.gates[node])
            self.agents[node] = AgentProcess(
                folder, server, kubeconfig, "processes.gated_agent", PENSTOCK_GATE=gate
            )
        self.workers = {
            name: WorkerProcess(folder, name, self.servers[node], tables=tables)
            for name, node in WORKERS.items()
        }
        self._stores = {node: RedisStore(server.url, UID) for node, server in self.servers.items()}
        names = list(WORKERS)
        self.places = {
            shard: names[(number + len(operator)) % len(names)]
            for operator, shards in (("src", SOURCES), *TARGETS.items())
            for number, shard in enumerate(shards)
        }

    def start(self) -> None:
        for one in (*self.servers.values(), *self.agents.values(), *self.workers.values()):
            one.start()
        self.publish()
        eventually(lambda: all(self.commits(shard) for shard in TARGETS["mid"]), "rows flow")

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.kill(signal.SIGCONT, wait=False)
            worker.kill()
        for agent in self.agents.values():
            agent.kill()
        for server in self.servers.values():
            server.kill(signal.SIGCONT, wait=False)
            server.kill()
        for store in self._stores.values():
            store.close()
        self.api.stop()

    # --- the operator's hand

    def home(self, shard: str) -> str:
        return WORKERS[self.places[shard]]

    def give(self, *shards: str, to: str) -> None:
        """Shards go to a worker, and to its node's store."""
        self.places.update(dict.fromkeys(shards, to))

    def publish(self) -> None:
        """Write the Schedules as they should be now. An executor that has no shard is not named."""
        self.version += 1
        for operator in ("src", *TARGETS):
            shards = {shard: at for shard, at in self.places.items() if shard.startswith(f"{operator}/")}
            holders = sorted(set(shards.values()))
            schedule = OperatorSchedule(
                operator=operator,
                version=self.version,
                term=1,
                workers=tuple(WorkerPlace(w, WORKERS[w], "127.0.0.1", f"uid-{w}") for w in holders),
                executors=tuple(ExecutorPlace(f"{operator}-{w}", w, 1) for w in holders),
                shards={
                    shard: ShardPlace(f"{operator}-{at}", WORKERS[at], 1 if self.version == 1 else 0)
                    for shard, at in shards.items()
                },
                stores=tuple(StorePlace(node, node, self.servers[node].address) for node in NODES),
                is_source=operator == "src",
            )
            self.api.put(f"words-{operator}", to_spec(schedule, "words", UID))

    def wait_applied(self) -> None:
        """Until both nodes have told that they have the newest Schedules."""

        def applied() -> bool:
            return all(
                self.api.applied(f"words-{operator}").get(node, {}).get("version") == self.version
                for operator in ("src", *TARGETS)
                for node in NODES
            )

        eventually(applied, "both nodes have applied the schedules")

    # --- a move, step by step

    @contextmanager
    def held_at(self, step: Step, shard: str, source: str) -> Iterator[None]:
        """While this lasts, the source's agent goes with the shard's move no further than to the step."""
        gate = self.gates[source]
        (gate / "held").unlink(missing_ok=True)
        (gate / "hold.new").write_bytes(msgspec.json.encode(Gate(shard, step)))
        (gate / "hold.new").rename(gate / "hold")
        try:
            yield
        finally:
            (gate / "hold").unlink(missing_ok=True)

    def wait_recorded(self, step: Step, shard: str, source: str) -> None:
        """Until both stores' records of the move say that it is there, and its driver has seen so."""
        target = _other(source)
        eventually(lambda: self._is_recorded(step, shard, source, target), f"{shard} is at {step}")
        eventually((self.gates[source] / "held").exists, f"the driver is held at {step}")
        assert self._is_recorded(step, shard, source, target)

    def _is_recorded(self, step: Step, shard: str, source: str, target: str) -> bool:
        here, there = self._record(source, shard), self._record(target, shard)
        if here is None:
            return False
        installed = there.installed if there is not None and there.move == here.move else None
        complete = installed is not None and installed.complete
        match step:
            case Step.PRECOPY:
                return here.status is ShardStatus.COPYING and installed is None
            case Step.ROUND:
                return here.status is ShardStatus.COPYING and installed is not None and installed.rounds >= 1
            case Step.FROZEN:
                return here.status is ShardStatus.FROZEN and not complete
            case Step.COPIED:
                return here.status is ShardStatus.FROZEN and complete
            case Step.DEPARTED:
                return here.status is ShardStatus.DEPARTED and complete
            case Step.ACTIVATED | Step.DROPPED:
                left = ShardStatus.DEPARTED if step is Step.ACTIVATED else ShardStatus.MOVED
                return here.status is left and there is not None and there.status is ShardStatus.ACTIVE

    def _record(self, node: str, shard: str) -> MoveState | None:
        try:
            return self._stores[node].call(ReadMove(shard))
        except PenstockError:
            return None

    # --- what is there

    def wait_at_home(self) -> None:
        """Until each shard is active at its home alone, owned by the executor that the schedule names."""
        for shard, worker in self.places.items():
            executor = f"{shard.split('/')[0]}-{worker}"

            def is_there(shard: str = shard, executor: str = executor) -> bool:
                here, there = self._look(self.home(shard), shard), self._look(_other(self.home(shard)), shard)
                return (
                    here is not None
                    and (here.status, here.executor) == (ShardStatus.ACTIVE, executor)
                    and (there is None or there.status is ShardStatus.MOVED)
                )

            eventually(is_there, f"{shard} is with {executor}, and nowhere else")

    def owner(self, shard: str) -> str:
        """The executor that has it at its home; "" for none."""
        seen = self._look(self.home(shard), shard)
        return seen.executor if seen is not None else ""

    def put_table(self, operator: str, table: RoutingTable) -> None:
        """A routing table comes into both stores."""
        call = PutTable(operator, table.version, encode_table(table))
        for node, store in self._stores.items():
            eventually(lambda store=store: self._is_put(store, call), f"{node} has the table")

    def _is_put(self, store: RedisStore, call: PutTable) -> bool:
        try:
            return store.call(call) is Answer.OK
        except PenstockError:
            return False

    def is_carried_out(self, operator: str, table: RoutingTable) -> bool:
        """Whether nobody routes by an earlier table, or waits for keys of this one."""
        return is_carried_out(operator, table, self.counts())

    def counts(self) -> dict[str, dict[str, int]]:
        """Shard -> what its record counts, of those of which that is known."""
        return {
            shard: decode_counts(seen.counts)
            for shard in self.places
            if (seen := self._look(self.home(shard), shard)) is not None
        }

    def counted_pairs(self) -> dict[str, bytes]:
        """The rows of counted pairs of both stores."""
        rows: dict[str, bytes] = {}
        for store in self._stores.values():
            with suppress(PenstockError):
                rows |= store.call(ReadPairs())
        return rows

    def keys_on(self, shard: str) -> set[str]:
        """The keys that it has state of."""
        return set(counted(self._state(shard)))

    def commits(self, shard: str) -> int:
        seen = self._look(self.home(shard), shard)
        return seen.commit if seen is not None else 0

    def _look(self, node: str, shard: str) -> ShardCounters | None:
        try:
            return self._stores[node].call(Measure((shard,)))[0]
        except PenstockError:
            return None

    def settle(self) -> None:
        """The sources pause until all has arrived, exactly once and in order; then they go on."""
        pause = self.folder / "pause"
        pause.touch()
        try:
            eventually(self._is_exact, "each row that was read has arrived once")
            assert [store.call(Failures()) for store in self._stores.values()] == [{}] * len(NODES)
        finally:
            pause.unlink()

    def _is_exact(self) -> bool:
        expected = self._expected()
        return (
            all(self._counts(operator) == expected for operator in TARGETS) and self._expected() == expected
        )

    def _expected(self) -> Counter[str]:
        expected: Counter[str] = Counter()
        for source in SOURCES:
            seen = self._look(self.home(source), source)
            whole, rest = divmod(int(seen.position or b"0") if seen is not None else 0, len(KEYS))
            expected.update(dict.fromkeys(KEYS, whole) if whole else {})
            expected.update(row_of(source, number)[1] for number in range(1, rest + 1))
        return expected

    def _state(self, shard: str) -> dict[tuple[bytes, bytes], bytes]:
        try:
            return self._stores[self.home(shard)].call(StateSnapshot(shard))
        except PenstockError:
            return {}

    def _counts(self, operator: str) -> Counter[str]:
        counts: Counter[str] = Counter()
        for shard in TARGETS[operator]:
            counts += counted(self._state(shard))
        return counts

    def describe(self) -> str:
        """Where everything stands, for whoever reads of a failure."""
        lines = [f"read and counted: {self._expected().total()} {[self._counts(o).total() for o in TARGETS]}"]
        for shard, worker in self.places.items():
            lines.append(f"{shard} on {worker}: {[self._look(node, shard) for node in NODES]}")
        for node in NODES:
            with suppress(PenstockError):
                lines.append(f"outgoing of {node}: {self._stores[node].call(Outgoing(20))}")
            lines.append(f"agent {node}: ..." + self.agents[node].log()[-1500:])
        for name, worker in self.workers.items():
            lines.append(
                f"{name}: {worker.journal()[-5:]} {(self.folder / f'{name}.log').read_text()[-800:]}"
            )
        return "\n".join(lines)


def let_pass(seconds: float) -> None:
    """Time itself is what somebody stopped is to miss: nothing else tells that it was long enough."""
    threading.Event().wait(seconds)


def _other(node: str) -> str:
    return next(other for other in NODES if other != node)
