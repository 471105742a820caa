"""One seeded run of the store's protocol: nodes, agents, workers and tasks under faults, then calm.

A run is a random sequence of turns, each about a call on its way. While it is rough, calls are lost, come
late or twice, tasks, workers and agents stop, go on and die, stores restart, schedules change; when it is
calm nothing fails any more and everything must drain. What must hold is in `promises`. The same seed makes
the same run.

Tasks, workers and agents are the product's (`hosted_task`, `hosted_worker`, `hosted_agent`). While one actor
waits for an answer others act, inside its call (`link`), and others again inside theirs, `NESTED_MAX` deep.
"""

from __future__ import annotations

import gc
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.store.memory.node import ShardRecord
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Assignment, Publish, ShardStatus
from penstock_simulation.protocol.agents import Agents
from penstock_simulation.protocol.chaos import Chaos
from penstock_simulation.protocol.drawn_runs import SHARES, Shares, drawn
from penstock_simulation.protocol.event_workload import Timed
from penstock_simulation.protocol.hosted_agent import AGENT_PARTS, AgentParts
from penstock_simulation.protocol.hosted_task import HostedTask
from penstock_simulation.protocol.hosted_worker import PACE_MAX, PACE_MIN
from penstock_simulation.protocol.layout import NODES, WORKERS
from penstock_simulation.protocol.link import Link, Watcher
from penstock_simulation.protocol.node import (
    CALM,
    FaultRates,
    SimulatedNode,
    StoreFactory,
)
from penstock_simulation.protocol.promises import PromiseBroken, Promises
from penstock_simulation.protocol.schedule_api import ROUGH, ScheduleApi
from penstock_simulation.protocol.scheduling import Schedules
from penstock_simulation.protocol.stages import LIMITS_BYTES, Runners, SimulatedSinks
from penstock_simulation.protocol.table_hand import TableHand
from penstock_simulation.protocol.trace import Trace
from penstock_simulation.protocol.watermark_promises import WatermarkPromises
from penstock_simulation.protocol.workers import Workers
from penstock_worker.main_process.loop import MainProcess
from penstock_worker.stages.initial_gate import InitialGate
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.routed_stage import ROUTED_PARTS, RoutedParts
from penstock_worker.state.cache import StateCache
from penstock_worker.task.loop import TaskLoop
from penstock_worker.windows.interval_join import IntervalJoinProcessor

TURN_US = 1_500
"""What a turn takes, in virtual time."""
NESTED_MAX = 4
"""So many actors may wait for each other's turns."""
START_US = 1_000_000_000
DRAIN_TURNS_MAX = 600
AGENT_PACE_MIN, AGENT_PACE_MAX = 8, 80
"""How much faster than their node's tasks' agents' time goes."""
RELIST_FACTOR = 8
"""How much faster than that a feed lists anew by itself."""
CALM_BIRTHS = 0.8
"""In so many runs, 0..1, nothing fails before all shards are made."""
BIRTH_ROUNDS_MAX = 50
TWO_AGENTS = 0.5
"""In so many of the runs with moves, 0..1, an earlier start of each agent was taken for dead and runs."""
LIMITED = 0.3
"""In so many of the runs, 0..1, owners say what their inboxes may hold."""
DRAIN_CYCLE_TURNS = 10
"""How often agents and main processes look by themselves while everything drains."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of; a test puts a part with a planted bug in its place."""

    store: StoreFactory = MemoryStore
    main: type[MainProcess] = MainProcess
    loop: type[TaskLoop] = TaskLoop
    cache: type[StateCache] = StateCache
    keyed: type[KeyedStage] = KeyedStage
    sinks: type[SimulatedSinks] = SimulatedSinks
    node: type[SimulatedNode] = SimulatedNode
    agent: AgentParts = AGENT_PARTS
    moves: bool = False
    """Whether shards change their home."""
    pressure: bool = False
    """Whether stores come to their memory limits."""
    event_time: bool = False
    """Whether rows have event times, and both keyed stages go by them."""
    tables: bool = False
    """Whether both keyed stages have routing tables, which change."""
    routed: RoutedParts = ROUTED_PARTS
    table_hand: type[TableHand] = TableHand
    shares: Shares = SHARES
    """How many of the runs have what, beside."""
    gate: type[InitialGate] = InitialGate
    join: type[IntervalJoinProcessor] = IntervalJoinProcessor
    schedules: type[Schedules] = Schedules


@dataclass(frozen=True, slots=True)
class Outcome:
    """`broken` names the promise that a run broke, "" for none; `trace` holds its last steps then."""

    seed: int
    turns: int
    broken: str
    trace: str


@dataclass(frozen=True, slots=True)
class Roughness:
    """How a run is made hard; drawn from its seed, so that some runs are long and others wild."""

    turns: int
    rates: FaultRates
    event_rate: float
    rows_max: int


def simulate(seed: int, parts: Parts | None = None) -> Outcome:
    """One run, whole. Answers what it broke; a bug of the simulation itself raises."""
    world = World(seed, parts or Parts())
    logging.disable(logging.WARNING)
    # What a run makes is garbage together at its end: looking for some before costs a third of its time.
    gc.disable()
    try:
        world.run()
    except PromiseBroken as broken:
        world.trace.event("world", f"broken: {broken}")
        return Outcome(seed, world.trace.turn, str(broken), world.trace.text())
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)
        world.runners.take_back()
    return Outcome(seed, world.trace.turn, "", "")


def _roughness(rng: random.Random, *, moves: bool) -> Roughness:
    level = rng.random() * 0.06
    return Roughness(
        turns=100 + int(rng.random() * (700 if moves else 300)),
        rates=FaultRates(
            lost_call=level * rng.random(),
            lost_reply=level * 2 * rng.random(),
            late_call=level * rng.random(),
            run_twice=level * rng.random(),
            crash=0.3,
        ),
        event_rate=0.02 + (0.2 if moves else 0.12) * rng.random(),
        rows_max=50 if moves else 30,
    )


class World:
    """Everybody in one run."""

    def __init__(self, seed: int, parts: Parts) -> None:
        self.rng = rng = random.Random(seed)  # noqa: S311 - a seeded run
        self.trace = Trace()
        self.roughness = _roughness(rng, moves=parts.moves)
        self.paced = rng.random() < 0.5
        self.in_cluster = rng.random() < 0.5
        self.pace = PACE_MIN + rng.random() * (PACE_MAX - PACE_MIN)
        rows_max = self.roughness.rows_max
        self.workload, self.topology = drawn(
            seed, rng, rows_max, parts.shares, parts.join, event_time=parts.event_time, tables=parts.tables
        )
        self.layout = self.workload.layout
        self.promises = Promises(self.workload)
        self._calm = False
        self.nodes = {name: parts.node(name, rng, parts.store) for name in NODES}
        for node in self.nodes.values():
            node.publish = partial(self._publish, node)
        self.agent_pace: float = AGENT_PACE_MIN * (AGENT_PACE_MAX / AGENT_PACE_MIN) ** rng.random()
        self.relist_pace = RELIST_FACTOR * self.agent_pace
        self.agents = Agents(self)
        self.hurry: deque[Callable[[], None]] = deque()
        self.api = ScheduleApi(rng, self.agents.hear)
        self.schedules = parts.schedules(
            self.api, rng, self.layout, moves=parts.moves, names_all=not self.in_cluster
        )
        self._is_born = False
        self.workers = Workers(self)
        self.hot_shard = ""
        self.runners = Runners(self.topology)
        self.moves = parts.moves
        self.pressure = parts.pressure
        self.parts = parts
        # By a lot of its own: other runs stay as they were.
        lot = random.Random(f"limits {seed}")  # noqa: S311 - a seeded run
        self._limits = lot if lot.random() < LIMITED else None
        self._time_us = START_US
        self._order = 0
        self._nested = 0
        self._on_their_way: dict[Link, None] = {}
        self.tables = parts.table_hand(self) if parts.tables else None
        self._chaos = Chaos(self)
        self.watermarks: WatermarkPromises | None = None
        if isinstance(self.workload, Timed):
            self.watermarks = WatermarkPromises(self.workload, self.nodes)
            # What comes back from a rest is not late; with a gap before it its partition might be idle too.
            self.paced = self.paced and self.workload.rest is None

    # --- making

    def link(
        self,
        who: str,
        node: str,
        *,
        before: Callable[[], None] | None = None,
        watcher: Watcher | None = None,
    ) -> Link:
        return Link(self.nodes[node], who, self, before=before, watcher=watcher)

    # --- time, and calls on their way

    @property
    def turn(self) -> int:
        return self.trace.turn

    def now_us(self) -> int:
        """Virtual time. It goes on a little with each look."""
        self._time_us += 1
        return self._time_us

    @property
    def time_us(self) -> int:
        """Virtual time, for who only looks whether something is due."""
        return self._time_us

    def take_time(self, microseconds: int) -> None:
        """Somebody works for so long."""
        self._time_us += microseconds

    @property
    def is_rough(self) -> bool:
        """Whether anything may fail."""
        return self._is_born and not self._calm

    def limit_bytes(self) -> int | None:
        """What the next commit says that its shard's inbox may hold; None: nothing."""
        if self._limits is None or self._limits.random() > 0.2:
            return None
        return self._limits.choice(LIMITS_BYTES)

    def is_hot(self, shard: str) -> bool:
        """Whether work on a shard takes long."""
        return shard == self.hot_shard

    def is_at_once(self) -> bool:
        """Whether what takes its time now and then is done at once."""
        return self._calm or self.rng.random() < 0.5

    def next_order(self) -> int:
        """The place of an effect among those of all stores."""
        self._order += 1
        return self._order

    def sent(self, link: Link) -> None:
        """Calls are on their way over this link, and may take effect at any time."""
        self._on_their_way[link] = None

    def arrived(self, link: Link) -> None:
        """Nothing is on its way over this link."""
        self._on_their_way.pop(link, None)

    def pass_turn(self, link: Link) -> None:
        """An actor waits for its answers, and others act meanwhile; many of them while it is stopped."""
        self._next_turn()
        if self._nested >= NESTED_MAX:
            return
        self._nested += 1
        if self.rng.random() < 0.3:
            self.anything_happens()
        while link.stops_until > self.trace.turn and not (self._calm or link.is_gone):
            before = self.trace.turn
            self.anything_happens()
            if self.trace.turn == before:
                self._next_turn()
        self._nested -= 1

    def answers_on_their_way(self, link: Link) -> None:
        """The calls took effect, and whoever made them does not know yet."""
        if self._nested < NESTED_MAX and self.rng.random() < 0.1:
            self._nested += 1
            self.anything_happens()
            self._nested -= 1

    def _next_turn(self) -> None:
        self.trace.turn += 1
        self._time_us += TURN_US
        while self._on_their_way and self.rng.random() < 0.4:
            links = list(self._on_their_way)
            links[int(self.rng.random() * len(links))].deliver_first()
        if any(node.has_changed for node in self.nodes.values()):
            self.check_bounds()

    # --- a run

    def run(self) -> None:
        """Rough, then calm. Raises PromiseBroken."""
        for name in WORKERS:
            self.workers.start(name)
        for name in NODES:
            self.agents.start(name)
        if self.rng.random() < CALM_BIRTHS:
            self._be_born()
        self._is_born = True
        if self.moves and self.rng.random() < TWO_AGENTS:
            for name in NODES:
                self.agents.start(name)
        self.api.faults = ROUGH
        for node in self.nodes.values():
            node.rates = self.roughness.rates
        while self.trace.turn < self.roughness.turns:
            before = self.trace.turn
            self.anything_happens()
            if self.trace.turn == before:
                self._next_turn()
        self._calm_down()
        self._relieve()
        self._drain(self._left_over)
        self.promises.check_marks(self.records_at_home())
        self.promises.check_counts(self.records_at_home())
        self.promises.check_results(self.records_at_home())

    def _be_born(self) -> None:
        """Agents make the shards, and publish the first schedules, before anything fails."""
        for _ in range(BIRTH_ROUNDS_MAX):
            self.agents.step_due()
            if not self._agents_left():
                return
        raise PromiseBroken(5, f"{self._agents_left()} after so many rounds")

    def anything_happens(self) -> None:
        """The world strikes, or somebody takes a step."""
        if self.is_rough and self.rng.random() < self.roughness.event_rate:
            self._chaos.strike()
        else:
            self.anybody_steps()

    def _pick_task(self) -> HostedTask | None:
        """A random one of the tasks that can run. Where none can, time goes on to when one will."""
        tasks = self.workers.tasks()
        while tasks:
            place = int(self.rng.random() * len(tasks))
            if tasks[place].can_run(self.trace.turn):
                return tasks[place]
            tasks[place] = tasks[-1]
            tasks.pop()
        self._pass_idle_time()
        return None

    def _pass_idle_time(self) -> None:
        going = [task for task in self.workers.tasks() if task.link.stops_until <= self.turn]
        wakes_us = [task.wakes_us for task in going if task.wakes_us]
        if wakes_us:
            self._time_us = max(self._time_us, min(wakes_us))

    def anybody_steps(self) -> None:
        """One step of a random actor; those that a change has just woken come first, mostly."""
        if self.hurry and self.rng.random() < 0.5:
            self.hurry.popleft()()
            return
        draw = self.rng.random()
        is_move = self.moves and draw < 0.25
        if draw < (0.5 if self.moves else 0.2) and (due := self.agents.due(movers=is_move)):
            agent, thread = due[int(self.rng.random() * len(due))]
            agent.step(thread)
            return
        if self.rng.random() < 0.95:
            task = self._pick_task()
            if task is not None:
                self.step_task(task)
                return
        worker = self.workers.running[int(self.rng.random() * len(self.workers.running))]
        if worker.is_due:
            self.workers.step(worker)

    def _publish(self, node: SimulatedNode, call: Publish) -> Any:
        before = self._assigned(node)
        answer = node.store.call(call)
        self.promises.check_kept(before, self._assigned(node), dict(node.records()))
        # the node's workers hear of it
        self.hurry.extend(worker.hear for worker in self.workers.running if worker.node == node.name)
        return answer

    def _assigned(self, node: SimulatedNode) -> dict[str, list[str]]:
        """Shard -> executors that this node gives it to."""
        assigned: dict[str, list[str]] = {}
        for worker, home in WORKERS.items():
            if home == node.name:
                for executor in node.store.call(Assignment(worker)).executors:
                    for shard in executor.shards:
                        assigned.setdefault(shard, []).append(executor.executor)
        return assigned

    def step_task(self, task: HostedTask) -> None:
        task.step()
        if task.retired:
            self.workers.task_is_over(task)

    def check_bounds(self) -> None:
        for node in self.nodes.values():
            node.has_changed = False
        records = {name: node.records() for name, node in self.nodes.items()}
        for in_store in records.values():
            self.promises.check_bounds(in_store)
        if self.moves:
            self.promises.check_homes(records)
        if self.watermarks is not None:
            self.watermarks.check()

    # --- the end

    def _calm_down(self) -> None:
        """No faults from here on; what is on its way arrives, who was stopped goes on."""
        self.trace.event("world", "calms down")
        self._calm = True
        self.workers.calm_down()
        self.api.calm_down()
        self.agents.calm_down()
        for node in self.nodes.values():
            node.rates = CALM
            while node.late:
                call, answer = node.deliver_late_call()
                self.trace.calls("somebody late", node.name, (call,), [answer])

    def _relieve(self) -> None:
        """Full stores work off all that waits in them; then they have room again, and sources go on."""
        full = [node for node in self.nodes.values() if node.is_full]
        if full and not self.moves:
            self._drain(lambda: self.promises.waiting(self.records_at_home()))
        for node in full:
            node.fill(full=False)

    def _drain(self, left: Callable[[], str]) -> None:
        """Rounds of everybody's turn until nothing is left. Raises PromiseBroken when it takes too long."""
        left_over = ""
        for _ in range(DRAIN_TURNS_MAX // DRAIN_CYCLE_TURNS):
            self.hurry.clear()
            self.workers.step_due()
            for _ in range(DRAIN_CYCLE_TURNS):
                self._next_turn()
                can_run = [task for task in self.workers.tasks() if task.can_run(self.trace.turn)]
                for task in can_run:
                    if task.can_run(self.trace.turn):
                        self.step_task(task)
                if not can_run:
                    self._pass_idle_time()
                self.agents.step_due()
            left_over = left()
            if not left_over:
                return
        raise PromiseBroken(5, left_over)

    def _left_over(self) -> str:
        return (
            self._moves_left()
            or self._agents_left()
            or (self.tables.left_over() if self.tables is not None else "")
            or (self.watermarks.not_ended() if self.watermarks is not None else "")
            or self.promises.left_over(self.records_at_home(), self._owners())
            or (self.watermarks.left_over() if self.watermarks is not None else "")
        )

    def records_at_home(self) -> dict[str, ShardRecord]:
        return {shard: self.nodes[home].record(shard) for shard, home in self.schedules.homes.items()}

    def _moves_left(self) -> str:
        """A record that is not where it should be, or a copy that should be gone."""
        for name, node in self.nodes.items():
            records = dict(node.records())
            for shard, home in self.schedules.homes.items():
                if home == name and shard not in records:
                    return f"{shard} is not in {name}, its home"
            for shard, record in records.items():
                home = self.schedules.homes[shard]
                if record.status is not (ShardStatus.ACTIVE if home == name else ShardStatus.MOVED):
                    return f"{shard} is {record.status} in {name}, its home is {home}"
        return ""

    def _agents_left(self) -> str:
        """A schedule that is not applied, or not reported as it is."""
        if self._calm and not all(agent.has_heard_all for agent in self.agents.running):
            return "an agent has not heard of all"
        for operator in self.layout.operators:
            version = self.schedules.version(operator)
            told = {entry["node"]: entry for entry in self.api.entries(operator)}
            for name, node in self.nodes.items():
                if (published := node.published(operator)) != version:
                    return f"{operator} is at version {published} in {name}, not {version}"
                entry = told.get(name, {})
                is_told = (entry.get("version"), entry.get("generation"), entry.get("shardsMoving"))
                if is_told != (version, node.generation, 0):
                    return f"{operator} is reported as {entry} by {name}, at version {version}"
        return ""

    def _owners(self) -> dict[str, list[int]]:
        owners: dict[str, list[int]] = {}
        for task in self.workers.tasks():
            for shard, epoch in task.loop.owned.items():
                owners.setdefault(shard, []).append(epoch)
        return owners
