"""What stands in Spark's place under a simulated main process: starts tasks, ends them, says which stand.

The tasks are the world's (`hosted_task`), the main process is the product's (`hosted_worker`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock_simulation.protocol.hosted_task import HostedTask
from penstock_worker.main_process.resident_task import ResidentTask
from penstock_worker.task.launch import TaskLaunch

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World


class SimulatedTasks:
    """Those of one start of a worker. Keeps the port `TaskStarter`; `wake` is called when one ends."""

    def __init__(self, world: World, node: str, wake: Callable[[], None]) -> None:
        self.running: dict[str, HostedTask] = {}
        """By ready list."""
        self.standing: set[str] = set()
        """Those that are believed to stand still. They may go on all the same."""
        self._world = world
        self._node = node
        self._wake = wake
        self._seen: dict[str, ResidentTask] = {}

    def can_start(self, node: str) -> bool:
        return not node

    def start(self, launch: TaskLaunch) -> ResidentTask:
        ready = launch.owner.ready
        self.running[ready] = HostedTask(self._world, launch, self._node)
        self._seen[ready] = task = ResidentTask(launch, ready)
        return task

    def cancel(self, task: ResidentTask) -> None:
        """What ends tasks takes its time now and then; it is asked again."""
        ready = task.launch.owner.ready
        if ready in self.running and self._world.is_at_once():
            self._world.trace.event(ready, "is killed by its main process")
            self.running[ready].die()
            self.ended(ready, "killed")

    def is_standing(self, task: ResidentTask, now_us: int) -> bool:
        return task.launch.owner.ready in self.standing

    def prepare(self, busy_share: float) -> None:
        """Nobody stands by."""

    def ended(self, ready: str, error: str = "", *, crashed: bool = False) -> None:
        """A task is over; its main process sees that when it looks."""
        if ready not in self.running:
            return
        at = self.running.pop(ready).unfinished()
        self.standing.discard(ready)
        task = self._seen.pop(ready)
        task.error, task.crashed = error or ("crashed" if crashed else ""), crashed
        task.shard = at[0] if crashed and at else ""
        task.ended.set()
        self._wake()

    def die(self) -> None:
        """All of them, at once."""
        for task in self.running.values():
            task.die()
