"""One operator while it is simulated: its executors, their tasks, which shard is where, what happens next.

Both ways of simulating share it: they ask where a shard is worked and how fast, tell of queues and loads, and
pass time on from one happening to the next. Neighbours: `switching` says what a change of hands costs and
when, `exact` and `slots` do the work.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.control.decision import Action, AddExecutor, AssignCores, MoveShards, RemoveExecutor
from penstock.control.elasticutor.intra_executor_balance import THETA, rebalance
from penstock.control.snapshot import ExecutorSeen
from penstock.simulation.queueing.model import FloatArray, IntArray, Sharing, SimulatedOperator, Switch
from penstock.simulation.queueing.switching import Move, Pause, moves_of, task_moves_of

BALANCE_US = 500_000
"""How often tasks of an executor are balanced (Elasticutor, section 3.1)."""

LOAD_US = 1_000_000
"""Over how long a shard's load is measured for that."""

NOWHERE = -1


@dataclass(slots=True)
class _Executor:
    """`cores` is what it is given: node -> tasks there. `servers` are those of its tasks that run."""

    name: str
    node: str
    speed: float
    cores: dict[str, int]
    servers: list[int] = field(default_factory=list)
    is_paused: bool = False

    @property
    def tasks(self) -> int:
        return sum(self.cores.values())


@dataclass(frozen=True, slots=True)
class Server:
    """What works rows: a task, or all tasks of an executor (`width`) where they share rows."""

    executor: int
    node: str
    speed: float
    width: int
    is_remote: bool


@dataclass(order=True, frozen=True, slots=True)
class _Happening:
    at_us: float
    number: int
    what: Callable[[float], None] = field(compare=False)


class Station:
    """`shard_server` is [shards] -> key of `servers`, NOWHERE for a shard under way. `version` grows with
    every change of who works what, `asked` with every treatment: what it asks for is there, and works nothing
    yet. `backlog_us` answers how long an executor's queue takes to work off, by
    key."""

    def __init__(
        self,
        operator: SimulatedOperator,
        upstream_executors: Callable[[], int],
        nodes: Mapping[str, int],
        bandwidth_bytes_per_s: float | None,
        slot_us: int,
        rng: np.random.Generator,
    ) -> None:
        self.operator = operator
        self.backlog_us: Callable[[int], float] = lambda _: 0.0
        self.node_demand: Callable[[str], float] = self.remote_demand
        """Of all operators; the bandwidth of a node is theirs together."""
        self.recored: Callable[[], None] = lambda: None
        self.free_cores: Callable[[str], int] = lambda node: nodes.get(node, 0)
        self.executors: dict[int, _Executor] = {}
        self.servers: dict[int, Server] = {}
        self.shard_executor = np.zeros(operator.shards, dtype=np.int64)
        self.shard_server = np.full(operator.shards, NOWHERE, dtype=np.int64)
        self.version = 0
        self.asked = 0
        self.treatment = False
        self.switches: list[Switch] = []
        self._is_open = np.ones(operator.shards, dtype=bool)
        self._upstream_executors = upstream_executors
        self._nodes = nodes
        self._bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self._slot_us = slot_us
        self._rng = rng
        self._happenings: list[_Happening] = []
        self._keys = 0
        self._is_balancing = False
        self._mean_us = float(operator.service_means_us.mean())
        self._row_bytes = operator.bytes_in + operator.bytes_out
        self._asked_us = 0.0
        self._served: list[tuple[float, FloatArray]] = []
        self._shard_index = {name: k for k, name in enumerate(operator.shard_names)}
        for initial in operator.executors:
            key = self._new(
                initial.name,
                initial.node,
                dict(initial.cores) or {initial.node: initial.tasks},
                initial.speed,
            )
            self._start_servers(key, 0)
        keys = np.fromiter(self.executors, dtype=np.int64)
        self.shard_executor = keys[operator.initial_assignment]
        for key in self.executors:
            self._home(key)

    # --- what engines and snapshots ask ---------------------------------------------------------

    @property
    def tasks(self) -> int:
        """What it costs now."""
        return sum(executor.tasks for executor in self.executors.values())

    @property
    def mixed_tasks(self) -> int:
        """Of these, those of executors whose speed is not 1."""
        return sum(executor.tasks for executor in self.executors.values() if executor.speed != 1.0)

    @property
    def next_us(self) -> float:
        """When something happens next; inf when nothing will."""
        return self._happenings[0].at_us if self._happenings else float("inf")

    def seen(self) -> tuple[ExecutorSeen, ...]:
        return tuple(
            ExecutorSeen(
                name=executor.name,
                tasks=executor.tasks,
                tasks_ready=sum(self.servers[key].width for key in executor.servers),
                node=executor.node,
                cores=dict(executor.cores) if executor.node else {},
            )
            for executor in self.executors.values()
        )

    def assigned(self) -> IntArray:
        """[shards] -> position in `seen()`; a shard under way is with the executor that it leaves."""
        keys = np.fromiter(self.executors, dtype=np.int64)
        return np.searchsorted(keys, self.shard_executor)

    def is_idle(self, server: int) -> bool:
        """It stands still: its executor is paused."""
        return self.executors[self.servers[server].executor].is_paused

    def remote_shares(self) -> dict[int, float]:
        """Server -> how much of its speed a remote task has, for the bytes that its executor's node sends: 1
        where the node could send what all its remote tasks can take at full speed. Others are 1 and left
        out."""
        if self._bandwidth_bytes_per_s is None or not self._row_bytes:
            return {}
        shares: dict[int, float] = {}
        of_node: dict[str, float] = {}
        for key, server in self.servers.items():
            if server.is_remote:
                node = self.executors[server.executor].node
                if node not in of_node:
                    of_node[node] = min(1.0, self._bandwidth_bytes_per_s / self.node_demand(node))
                shares[key] = of_node[node]
        return shares

    def remote_demand(self, node: str) -> float:
        """Bytes a second that remote tasks of executors on `node` take at full speed."""
        return sum(
            1e6 * server.speed / self._mean_us * self._row_bytes
            for server in self.servers.values()
            if server.is_remote and self.executors[server.executor].node == node
        )

    # --- what replay does -----------------------------------------------------------------------

    def happen(self, now_us: float, served_us: FloatArray) -> None:
        """Everything that is due. `served_us` is [shards], the work done so far."""
        if self._is_balancing:
            self._served.append((now_us, served_us.copy()))
        while self._happenings and self._happenings[0].at_us <= now_us:
            heapq.heappop(self._happenings).what(now_us)

    def treat(self, actions: Sequence[Action], now_us: float) -> None:
        """Begin: executors and tasks are asked for and cost from now on; moves begin once they work.

        ValueError for actions that do not fit, or during a treatment: the policy is wrong then.
        """
        if self.treatment:
            raise ValueError(f"operator {self.operator.name} is treated already")
        self.treatment, self._asked_us = True, now_us
        self.asked += 1
        names: dict[str, str] = {}
        delay_us = 0.0
        for action in actions:
            if isinstance(action, AddExecutor):
                names[action.name] = self._unique(action.name)
                node = action.node if action.node is not None else self._roomiest()
                self._new(names[action.name], node, {node: action.tasks}, None)
                delay_us = max(delay_us, self.operator.start_delay_us)
        cores = {
            self._key(names.get(action.name, action.name)): {n: c for n, c in action.cores.items() if c > 0}
            for action in actions
            if isinstance(action, AssignCores)
        }
        for key, given in cores.items():
            executor = self.executors[key]
            for node, count in given.items():
                more = count - executor.cores.get(node, 0)
                if more > 0:
                    executor.cores[node] = count
                    delay_us = max(delay_us, self.operator.task_start_delay_us)
        self._at(now_us + delay_us, lambda at_us: self._begin(actions, names, cores, at_us))

    # --- a treatment ----------------------------------------------------------------------------

    def _begin(
        self,
        actions: Sequence[Action],
        names: Mapping[str, str],
        cores: Mapping[int, dict[str, int]],
        now_us: float,
    ) -> None:
        """What was asked for works; moves begin."""
        for key, executor in self.executors.items():
            if not executor.servers and key not in cores:
                self._start_servers(key, now_us)
        ends_us = now_us
        for key, given in cores.items():
            ends_us = max(ends_us, self._recore(key, given, now_us))
        moves = [
            Move(
                tuple(self._shard_index[shard] for shard in action.shards),
                self._key(names.get(action.source, action.source)),
                self._key(names.get(action.destination, action.destination)),
            )
            for action in actions
            if isinstance(action, MoveShards)
        ]
        where = self.shard_executor.copy()
        for move in moves:
            for shard in move.shards:
                if where[shard] != move.source:
                    raise ValueError(f"shard {self.operator.name}/{shard} is not where it is to leave from")
                where[shard] = move.destination
        plan = moves_of(
            self.operator,
            moves,
            is_same_node=lambda a, b: self.executors[a].node == self.executors[b].node,
            executors=tuple(self.executors),
            backlog_us=self.backlog_us,
            upstream_executors=self._upstream_executors(),
            batch_us=self._slot_us,
        )
        for pause in plan.pauses:
            self._pause(pause, now_us)
        ends_us = max(ends_us, now_us + plan.ends_us)
        gone = [names.get(a.name, a.name) for a in actions if isinstance(a, RemoveExecutor)]
        switch = Switch(
            self._asked_us, ends_us, plan.switching_us, sum(len(m.shards) for m in moves), plan.bytes
        )
        self._at(ends_us, lambda _: self._end(gone, switch))

    def _end(self, gone: Sequence[str], switch: Switch) -> None:
        for name in gone:
            key = self._key(name)
            if (self.shard_executor == key).any():
                raise ValueError(f"executor {name} is to go, and still has shards")
            for server in self.executors.pop(key).servers:
                del self.servers[server]
        if switch.shards or switch.bytes:
            self.switches.append(switch)
        self.treatment = False
        self.version += 1

    def _pause(self, pause: Pause, now_us: float) -> None:
        """`pause` as two happenings: some stand still, then they go on, and its shards are where they go
        to."""

        def begins(_: float) -> None:
            for key in pause.executors:
                self.executors[key].is_paused = True
            shards = list(pause.shards)
            self._is_open[shards] = False
            self.shard_server[shards] = NOWHERE
            self.version += 1

        def ends(_: float) -> None:
            for key in pause.executors:
                self.executors[key].is_paused = False
            shards = list(pause.shards)
            self._is_open[shards] = True
            if pause.destinations:
                self.shard_executor[shards] = list(pause.destinations)
                for key in dict.fromkeys(pause.destinations):
                    self._home(key)
            else:
                # A task that went meanwhile is none: the executor finds another.
                self.shard_server[shards] = list(pause.servers)
                for key in {int(key) for key in self.shard_executor[shards]}:
                    self._home(key)
            self.version += 1

        self._at(now_us + pause.begins_us, begins)
        self._at(now_us + pause.ends_us, ends)

    # --- executors and their tasks --------------------------------------------------------------

    def _new(self, name: str, node: str, cores: dict[str, int], speed: float | None) -> int:
        if speed is None:
            mix = self.operator.speeds
            speed = mix.alpha if mix.beta > 0 and self._rng.random() < mix.beta else 1.0
        self._keys += 1
        self.executors[self._keys] = _Executor(name, node, speed, cores)
        return self._keys

    def _start_servers(self, key: int, now_us: float) -> None:
        executor = self.executors[key]
        if self.operator.sharing is Sharing.BY_ROW:
            self._add_server(key, executor.node, executor.tasks, now_us)
            return
        for node, count in executor.cores.items():
            for _ in range(count):
                self._add_server(key, node, 1, now_us)

    def _add_server(self, key: int, node: str, width: int, now_us: float) -> None:
        executor = self.executors[key]
        self._keys += 1
        self.servers[self._keys] = Server(key, node, executor.speed, width, node != executor.node)
        executor.servers.append(self._keys)
        self.version += 1
        if len(executor.servers) > 1 and not self._is_balancing:
            self._is_balancing = True
            self._at((now_us // BALANCE_US + 1) * BALANCE_US, self._balance_all)

    def _recore(self, key: int, cores: dict[str, int], now_us: float) -> float:
        """Tasks as `cores` has them; shards of tasks that go find others. Answers when that is over."""
        executor = self.executors[key]
        executor.cores = cores
        if self.operator.sharing is Sharing.BY_ROW:
            for server in executor.servers:
                del self.servers[server]
            executor.servers.clear()
            self._add_server(key, executor.node, executor.tasks, now_us)
            self._home(key)
            return now_us
        going: list[int] = []
        # In an order that does not depend on how strings are hashed: a run is the same for the same seed.
        for node in dict.fromkeys([*(self.servers[server].node for server in executor.servers), *cores]):
            here = [server for server in executor.servers if self.servers[server].node == node]
            going += here[cores.get(node, 0) :]
            for _ in range(cores.get(node, 0) - len(here)):
                self._add_server(key, node, 1, now_us)
        executor.servers = [server for server in executor.servers if server not in going]
        ends_us = self._balance(key, now_us, going)

        def let_go(_: float) -> None:
            # Until its last shard has left, a task works on.
            for server in going:
                del self.servers[server]
            self.version += 1
            self.recored()

        self._at(ends_us, let_go)
        self.version += 1
        self.recored()
        return ends_us

    def _home(self, key: int) -> None:
        """A task for each of the executor's shards that has none."""
        executor = self.executors[key]
        mine = (self.shard_executor == key) & self._is_open
        if len(executor.servers) == 1:
            self.shard_server[mine] = executor.servers[0]
            return
        homeless = mine & ~np.isin(self.shard_server, executor.servers)
        if not homeless.any():
            return
        names = {int(k): str(k) for k in np.flatnonzero(mine)}
        load = self._load()
        spread = rebalance(
            tuple(names.values()),
            {name: int(self.shard_server[k]) for k, name in names.items() if not homeless[k]},
            executor.servers,
            {name: None if load is None else float(load[k]) for k, name in names.items()},
            theta=float("inf"),
        )
        for k in np.flatnonzero(homeless):
            self.shard_server[k] = spread.assignment[names[int(k)]]

    # --- balance within executors ---------------------------------------------------------------

    def _balance_all(self, now_us: float) -> None:
        for key, executor in self.executors.items():
            if len(executor.servers) > 1 and not executor.is_paused and not self.treatment:
                self._balance(key, now_us, ())
        self._served = [(at_us, served) for at_us, served in self._served if at_us >= now_us - LOAD_US]
        self._at(now_us + BALANCE_US, self._balance_all)

    def _load(self) -> FloatArray | None:
        """[shards], work over about the last second; None while nothing is known."""
        if len(self._served) < 2:
            return None
        load: FloatArray = self._served[-1][1] - self._served[0][1]
        return load if load.any() else None

    def _balance(self, key: int, now_us: float, going: Sequence[int]) -> float:
        """One round of it, off the servers `going` in any case; answers when its last shard is there."""
        executor = self.executors[key]
        servers = executor.servers
        mine = np.flatnonzero((self.shard_executor == key) & self._is_open)
        load = self._load()
        now_on = self.shard_server[mine]
        if not going and len(servers) > 1:
            if load is None:
                return now_us
            held = np.array([load[mine[now_on == server]].sum() for server in servers])
            if held.max() * len(servers) < THETA * held.sum() and np.isin(servers, now_on).all():
                return now_us
        names = [str(k) for k in mine]
        spread = rebalance(
            names,
            {name: int(server) for name, server in zip(names, now_on, strict=True) if server in servers},
            servers,
            None if load is None else {name: float(load[k]) for name, k in zip(names, mine, strict=True)},
        )
        to = np.array([spread.assignment[name] for name in names], dtype=np.int64)
        changed = to != now_on
        if not changed.any():
            return now_us
        away = [
            self.servers[int(a)].node != self.servers[int(b)].node
            for a, b in zip(now_on[changed], to[changed], strict=True)
        ]
        plan = task_moves_of(
            self.operator, mine[changed].tolist(), to[changed].tolist(), away, batch_us=self._slot_us
        )
        for pause in plan.pauses:
            if pause.ends_us > 0:
                self._pause(pause, now_us)
            else:
                self.shard_server[list(pause.shards)] = list(pause.servers)
        self.version += 1
        ends_us = now_us + plan.ends_us
        self.switches.append(Switch(now_us, ends_us, plan.switching_us, int(changed.sum()), plan.bytes))
        return ends_us

    # --- small ones -----------------------------------------------------------------------------

    def _at(self, at_us: float, what: Callable[[float], None]) -> None:
        self._keys += 1
        heapq.heappush(self._happenings, _Happening(at_us, self._keys, what))

    def _key(self, name: str) -> int:
        for key, executor in self.executors.items():
            if executor.name == name:
                return key
        raise ValueError(f"operator {self.operator.name} has no executor {name}")

    def _unique(self, name: str) -> str:
        taken = {executor.name for executor in self.executors.values()}
        number, unique = 1, name
        while unique in taken:
            number += 1
            unique = f"{name}-{number}"
        return unique

    def _roomiest(self) -> str:
        return max(self._nodes, key=self.free_cores, default="")
