"""A worker's main process in the simulation: enrols, starts tasks, says which task runs what.

A worker may be started again while its earlier start still runs (it was only slow): the later one
is told apart by its incarnation, and the store refuses the earlier one's claims and task maps.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.store.port import (
    Answer,
    AssignedExecutor,
    Assignment,
    Enroll,
    MintStart,
    Owner,
    SetTasks,
    StoreUnreachable,
    Tasks,
)
from penstock_simulation.protocol.hosted_task import HostedTask
from penstock_simulation.protocol.link import ActorGone, Link

StartTask = Callable[["SimulatedWorker", Owner, str], HostedTask]


class SimulatedWorker:
    """One start of one worker. `tasks` are those it started, by ready list name."""

    def __init__(
        self, name: str, node: str, attempt: int, link: Link, rng: random.Random, start_task: StartTask
    ) -> None:
        self.worker = name
        self.node = node
        self.uid = f"uid-{name}"
        self.attempt = attempt
        self.tasks: dict[str, HostedTask] = {}
        self.retired = False
        self.is_in_step = False
        self.rebalance_due = False
        self.given_up: set[str] = set()
        """Tasks that it believes dead. They may go on all the same."""
        self._link = link
        self._rng = rng
        self._start_task = start_task
        self._number = 0
        self._enrolled = False
        self._started = 0
        self._mappings: dict[str, dict[str, str]] = {}

    @property
    def name(self) -> str:
        return f"{self.worker}.{self.attempt}"

    @property
    def incarnation(self) -> str:
        return f"{self.uid}/{self._number}/{self.attempt}"

    def step(self) -> None:
        """One cycle: enrol, or read the assignment and act on it. Nothing changes when the store is away."""
        self.is_in_step = True
        try:
            self._step()
        except (StoreUnreachable, ActorGone):
            return
        finally:
            self.is_in_step = False

    def die(self) -> None:
        """Nothing more of it happens, nor of its tasks."""
        self._link.is_gone = True
        for task in self.tasks.values():
            task.die()

    def _step(self) -> None:
        if not self._enrolled:
            self._enroll()
            return
        for executor in self._link.call(Assignment(self.worker)).executors:
            if executor.shards:
                self._run(executor)
        self.rebalance_due = False

    def _enroll(self) -> None:
        if not self._number:
            minted = self._link.call(MintStart(self.worker))
            self._number = minted if isinstance(minted, int) else 0
        answer = self._link.call(Enroll(self.worker, self.uid, self._number, self.attempt))
        self._enrolled = answer is Answer.OK
        self.retired = answer is Answer.STALE

    def _run(self, executor: AssignedExecutor) -> None:
        """Keep a task or two for the executor, and the store's task map as it should be."""
        mapping = self._map(executor)
        seen = self._link.call(Tasks(executor.executor, executor.operator))
        if (seen.incarnation, seen.mapping) == (self.incarnation, mapping):
            return
        call = SetTasks(self.worker, self.incarnation, executor.executor, tuple(mapping.items()))
        answer = self._link.call(call)
        self.retired = answer is Answer.STALE

    def _map(self, executor: AssignedExecutor) -> dict[str, str]:
        """The mapping wanted now: as before where it can be, over fresh tasks where one died."""
        before = self._mappings.get(executor.executor, {})
        alive = [
            ready
            for ready in dict.fromkeys(before.values())
            if ready in self.tasks and ready not in self.given_up
        ]
        # One that is too many goes on until it sees that it is named no more.
        del alive[max(1, executor.tasks) :]
        if self.rebalance_due or not alive:
            while len(alive) < executor.tasks and (not alive or self._rng.random() < 0.5):
                alive.append(self._start(executor))
        mapping = {}
        for shard in executor.shards:
            ready = before.get(shard, "")
            if ready not in alive or self.rebalance_due:
                ready = alive[int(self._rng.random() * len(alive))]
            mapping[shard] = ready
        self._mappings[executor.executor] = mapping
        return mapping

    def _start(self, executor: AssignedExecutor) -> str:
        self._started += 1
        ready = f"{executor.executor}.{self.attempt}.{self._started}"
        owner = Owner(executor.executor, self.incarnation, ready)
        self.tasks[ready] = self._start_task(self, owner, executor.operator)
        return ready
