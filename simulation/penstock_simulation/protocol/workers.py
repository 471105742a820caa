"""All starts of all workers in a run: those that run, and those that died while their tasks go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_simulation.protocol.hosted_task import HostedTask
from penstock_simulation.protocol.hosted_worker import HostedWorker
from penstock_simulation.protocol.layout import WORKERS

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World


class Workers:
    """`running` are never none: who leaves, or dies, is started again."""

    def __init__(self, world: World) -> None:
        self.running: list[HostedWorker] = []
        self._left: list[HostedWorker] = []
        self._world = world
        self._attempts = dict.fromkeys(WORKERS, 0)

    def start(self, worker: str) -> None:
        self._attempts[worker] += 1
        self.running.append(HostedWorker(self._world, worker, self._attempts[worker]))
        self.running[-1].wake()

    def replace(self, worker: HostedWorker) -> None:
        """Start the worker anew, unless that was done before: an earlier start may still run."""
        if worker.attempt == self._attempts[worker.worker]:
            self.start(worker.worker)

    def step_due(self) -> None:
        """A round of each main process that is due."""
        for worker in list(self.running):
            if worker.is_due:
                self.step(worker)

    def step(self, worker: HostedWorker) -> None:
        """A round of its main process."""
        if worker in self.running and not worker.is_in_step:
            worker.step()
            if worker.over and worker in self.running:
                self.running.remove(worker)
                self.replace(worker)

    def kill(self, worker: HostedWorker, *, alone: bool) -> None:
        """It dies, with its tasks or `alone`."""
        self.running.remove(worker)
        worker.die(alone=alone)
        if alone:
            self._left.append(worker)
        self.replace(worker)

    def calm_down(self) -> None:
        """Tasks whose worker died end as well."""
        for worker in self._left:
            worker.die()
        self._left.clear()

    def tasks(self) -> list[HostedTask]:
        """All that run."""
        return [task for worker in (*self.running, *self._left) for task in worker.tasks.running.values()]

    def task_is_over(self, task: HostedTask, *, crashed: bool = False) -> None:
        """Whoever started it will see that."""
        for worker in (*self.running, *self._left):
            worker.tasks.ended(task.name, crashed=crashed)
