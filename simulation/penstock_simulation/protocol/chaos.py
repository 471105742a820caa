"""What the world does to a run: stops, deaths, restarts, late calls, new schedules."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.store.port import ShardStatus

if TYPE_CHECKING:
    from penstock_simulation.protocol.hosted_agent import HostedAgent
    from penstock_simulation.protocol.hosted_task import HostedTask
    from penstock_simulation.protocol.world import World

PAUSE_TURNS_MAX = 70
FOREVER = 1 << 60


class Chaos:
    """Strikes a world with one event at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._events: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.30, self._late_call_arrives),
            (0.08, self._task_stops_for_a_while),
            (0.04, self._task_stops_for_good),
            (0.16, self._task_at_work_is_taken_for_standing),
            (0.40, self._owner_is_late),
            (0.08, self._task_dies),
            (0.04, self._worker_dies),
            (0.06, self._worker_is_replaced_while_it_runs),
            (0.06, self._store_restarts),
            (0.16, self._shard_moves),
            (0.04, self._worker_is_stopped),
            (0.08, self._shard_becomes_hot),
            (0.04, self._executor_goes),
            (0.12, self._executor_is_resized),
            (0.05, self._agent_dies),
            (0.06, self._agent_stops_for_a_while),
            (0.04, self._agent_is_replaced_while_it_runs),
            (0.05, self._late_report_arrives),
        )
        if world.moves:
            self._events += (
                (0.2, self._move_is_taken_back),
                (0.3, self._shard_moves),
                (0.1, self._store_restarts),
                (0.1, self._executor_goes),
                (0.1, self._owner_changes_while_its_shard_is_copied),
                (0.4, self._agent_is_late_with_a_move),
            )
        if world.tables is not None:
            tables = world.tables
            self._events += ((0.8, tables.propose), (0.6, tables.put_somewhere))
        if world.pressure:
            self._events += ((0.3, self._memory_runs_out),)
        self._upto = list(accumulate(chance for chance, _ in self._events))

    def strike(self) -> None:
        """One event."""
        draw = self._world.rng.random() * self._upto[-1]
        for upto, (_, event) in zip(self._upto, self._events, strict=True):
            if draw <= upto:
                event()
                return

    def _pick(self, count: int) -> int:
        return int(self._world.rng.random() * count)

    def _late_call_arrives(self) -> None:
        waiting = [node for node in self._world.nodes.values() if node.late]
        if waiting:
            node = waiting[self._pick(len(waiting))]
            call, answer = node.deliver_late_call()
            self._world.trace.calls("somebody late", node.name, (call,), [answer])

    def _task_stops_for_a_while(self) -> None:
        tasks = self._world.workers.tasks()
        if tasks:
            self._stop(tasks[self._pick(len(tasks))])

    def _task_stops_for_good(self) -> None:
        tasks = [task for task in self._world.workers.tasks() if not task.is_in_turn]
        if tasks:
            task = tasks[self._pick(len(tasks))]
            task.link.stops_until = FOREVER
            self._world.trace.event(task.name, "stops for good")
            self._believed_standing({task.name})

    def _task_at_work_is_taken_for_standing(self) -> None:
        owners = [task.name for task in self._world.workers.tasks() if task.loop.owned]
        if owners:
            self._believed_standing({owners[self._pick(len(owners))]})

    def _stop(self, task: HostedTask) -> None:
        until = self._world.turn + 1 + self._pick(PAUSE_TURNS_MAX)
        task.link.stops_until = until
        self._world.trace.event(task.name, f"stops until turn {until}")

    def _owner_is_late(self) -> None:
        """A task stops in the middle of its work, and the shard is given to another one meanwhile."""
        world = self._world
        busy = [task for task in world.workers.tasks() if task.unfinished()]
        if not busy:
            return
        task = busy[self._pick(len(busy))]
        shards = task.unfinished()
        self._stop(task)
        if world.rng.random() < 0.3:
            self._move(shards[self._pick(len(shards))])
        else:
            self._believed_standing({task.name})

    def _task_dies(self) -> None:
        world = self._world
        tasks = world.workers.tasks()
        if tasks:
            task = tasks[self._pick(len(tasks))]
            task.die()
            world.workers.task_is_over(task, crashed=True)
            world.trace.event(task.name, "dies")

    def _worker_dies(self) -> None:
        world = self._world
        worker = world.workers.running[self._pick(len(world.workers.running))]
        alone = world.rng.random() < 0.5
        world.workers.kill(worker, alone=alone)
        world.trace.event(worker.name, "dies, and its tasks go on" if alone else "dies with its tasks")

    def _worker_is_replaced_while_it_runs(self) -> None:
        world = self._world
        worker = world.workers.running[self._pick(len(world.workers.running))]
        world.trace.event(worker.name, "is taken for dead")
        world.workers.replace(worker)

    def _store_restarts(self) -> None:
        world = self._world
        names = list(world.nodes)
        name = names[self._pick(len(names))]
        lost = world.nodes[name].restart()
        world.trace.event(f"store {name}", f"restarts without its last {lost} calls")

    def _agent_dies(self) -> None:
        agent = self._any_agent()
        self._world.trace.event(agent.name, "dies")
        self._world.agents.kill(agent)

    def _agent_stops_for_a_while(self) -> None:
        agent = self._any_agent()
        until = self._world.turn + 1 + self._pick(PAUSE_TURNS_MAX)
        agent.stop(until)
        self._world.trace.event(agent.name, f"stops until turn {until}")

    def _agent_is_replaced_while_it_runs(self) -> None:
        agent = self._any_agent()
        self._world.trace.event(agent.name, "is taken for dead")
        self._world.agents.start(agent.node)

    def _agent_is_late_with_a_move(self) -> None:
        """It stops in the middle of a step, is taken for dead, and goes on when another has taken over."""
        moving = [agent for agent in self._world.agents.running if agent.is_moving]
        if moving:
            agent = moving[self._pick(len(moving))]
            agent.stop(self._world.turn + 30 + self._pick(2 * PAUSE_TURNS_MAX))
            self._world.trace.event(agent.name, f"is late, and stops until turn {agent.stops_until}")
            self._world.agents.start(agent.node)

    def _any_agent(self) -> HostedAgent:
        agents = self._world.agents.running
        return agents[self._pick(len(agents))]

    def _late_report_arrives(self) -> None:
        self._world.api.late_report_arrives()

    def _memory_runs_out(self) -> None:
        """A store comes to its memory limit, or has room again."""
        nodes = list(self._world.nodes.values())
        node = nodes[self._pick(len(nodes))]
        node.fill(full=not node.is_full)
        self._world.trace.event(f"store {node.name}", "is full" if node.is_full else "has room again")

    def _shard_moves(self) -> None:
        shards = list(self._world.schedules.homes)
        self._move(shards[self._pick(len(shards))])

    def _move_is_taken_back(self) -> None:
        """In the middle of a shard's way to another store, the schedule says otherwise."""
        under_way = [
            shard
            for name, node in self._world.nodes.items()
            for shard, record in node.records()
            if record.status in {ShardStatus.COPYING, ShardStatus.FROZEN}
            and self._world.schedules.homes[shard] != name
        ]
        if under_way:
            self._move(under_way[self._pick(len(under_way))])

    def _move(self, shard: str) -> None:
        self._world.schedules.move(shard)
        self._world.trace.event(shard, "is given to another executor")

    def _executor_goes(self) -> None:
        operator = self._any_operator()
        worker = self._world.schedules.drop_executor(operator)
        self._world.trace.event(f"{operator}-{worker}", "goes, and its shards to others")

    def _any_operator(self) -> str:
        operators = self._world.layout.operators
        return operators[self._pick(len(operators))]

    def _executor_is_resized(self) -> None:
        operator = self._any_operator()
        self._world.schedules.resize(operator)
        self._world.trace.event(operator, "has an executor with another number of tasks")

    def _owner_changes_while_its_shard_is_copied(self) -> None:
        """What its commits noted is not its own."""
        copied = {
            record.owner.ready
            for node in self._world.nodes.values()
            for _, record in node.records()
            if record.owner is not None and record.note is not None and record.note.noted
        }
        self._believed_standing(copied)

    def _believed_standing(self, tasks: set[str]) -> None:
        """Their main processes give their shards to others."""
        for worker in self._world.workers.running:
            if standing := worker.tasks.running.keys() & tasks:
                worker.tasks.standing |= standing
                worker.wake()
                self._world.trace.event(worker.name, f"takes {sorted(standing)} for standing still")

    def _shard_becomes_hot(self) -> None:
        """User code takes its time over it, and executors with several tasks spread their shards anew."""
        shards = list(self._world.schedules.homes)
        self._world.hot_shard = shards[self._pick(len(shards))]
        for worker in self._world.workers.running:
            worker.wake()
        self._world.trace.event(self._world.hot_shard, "becomes hot")

    def _worker_is_stopped(self) -> None:
        """As whoever runs it does: it has its tasks retire, leaves, and is started again."""
        worker = self._world.workers.running[self._pick(len(self._world.workers.running))]
        worker.process.request_stop()
        worker.wake()
        self._world.trace.event(worker.name, "is to leave")
