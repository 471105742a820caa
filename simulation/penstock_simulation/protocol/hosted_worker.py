"""One start of a worker in the world: the product's `MainProcess`, in virtual time, over simulated links.

It goes through a round when its control stream has news or a task of its ends, and else when it is due. A
worker may be started again while its earlier start still runs (it was only slow): the store tells them apart.
Neighbours: `workers` has them all, `simulated_tasks` starts their tasks, `link` is how calls travel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.store.port import Enroll, Request, StoreUnreachable
from penstock_simulation.protocol.hosted_task import SKEW_US_MAX, TaskClock
from penstock_simulation.protocol.layout import WORKERS
from penstock_simulation.protocol.link import ActorGone
from penstock_simulation.protocol.node import BOUNDS, TOPOLOGY_UID
from penstock_simulation.protocol.promises import PromiseBroken
from penstock_simulation.protocol.simulated_tasks import SimulatedTasks
from penstock_worker.main_process.control_watch import ControlStream
from penstock_worker.main_process.loop import Replaced
from penstock_worker.main_process.prometheus import WorkerCollector
from penstock_worker.main_process.vitals import Vitals
from penstock_worker.main_process.worker_report import WorkerReport

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

PACE_MIN, PACE_MAX = 4, 16
"""How much faster than their tasks' main processes' time goes."""


class MainClock(TaskClock):
    """A main process' clock, `pace` times as fast as that of its tasks: what it does every half a second, or
    after five, comes in runs of half a second too."""

    def __init__(self, now_us: Callable[[], int], skew_us: int, pace: float) -> None:
        super().__init__(now_us, skew_us, lambda _: None)
        self._pace = pace

    def monotonic_us(self) -> int:
        return int(self._now_us() * self._pace)


class HostedWorker:
    """`attempt` is the number of the start. `over`: it has left, or died."""

    def __init__(self, world: World, worker: str, attempt: int) -> None:
        rng = world.rng
        self.worker = worker
        self.attempt = attempt
        self.node = WORKERS[worker]
        self.link = world.link(self.name, self.node, watcher=self)
        self.is_in_step = False
        self.over = False
        self.tasks = SimulatedTasks(world, self.node, self.wake)
        self._world = world
        self._hears = world.link(f"{self.name} hears", self.node)
        self._control = ControlStream(self._hears, worker)
        self._is_hearing = False
        self._number = 0
        """Under which it enrols."""
        self._is_woken = False
        self._due_us = 0
        self._pace = world.pace
        clock = MainClock(world.now_us, int((rng.random() - 0.5) * 2 * SKEW_US_MAX), world.pace)
        launch = WorkerLaunch(
            topology_uid=TOPOLOGY_UID,
            manifest="",
            base_dir="",
            worker=worker,
            uid=f"uid-{worker}",
            # In a pod nobody counts.
            attempt=0 if world.in_cluster else attempt,
            store_id=self.node,
            store_url="",
            runtime="cluster" if world.in_cluster else "local",
        )
        self.process = world.parts.main(
            launch,
            world.topology.plan,
            self.link,
            self.tasks,
            WorkerReport(launch, self.link, WorkerCollector(TOPOLOGY_UID, worker), clock, pid=1),
            clock,
            Vitals(clock),
            bounds=BOUNDS,
        )

    @property
    def name(self) -> str:
        return f"{self.worker}.{self.attempt}"

    @property
    def is_due(self) -> bool:
        """Whether it has waited for long enough."""
        return self._is_woken or self._world.now_us() >= self._due_us

    def wake(self) -> None:
        """Something is new: it goes through a round soon."""
        if not self._is_woken:
            self._is_woken = True
            self._world.hurry.append(self._step_if_woken)

    def _step_if_woken(self) -> None:
        """Unless it went through a round since: that has seen what is new."""
        if self._is_woken:
            self._world.workers.step(self)

    def hear(self) -> None:
        """Look at the control stream."""
        if self._is_hearing or self.over:
            return
        self._is_hearing = True
        try:
            if self._control.has_news():
                self.wake()
        except ActorGone:
            return
        except StoreUnreachable:
            self._world.hurry.append(self.hear)
        finally:
            self._is_hearing = False

    def step(self) -> None:
        """One round of the main process. One that leaves takes its tasks along."""
        self._is_woken = False
        self.is_in_step = True
        try:
            wait_s = self.process.step()
            self._due_us = self._world.now_us() + int(wait_s * 1e6 / self._pace)
        except ActorGone:
            return
        except (Replaced, StoreUnreachable) as why:
            self._leave(str(why))
        finally:
            self.is_in_step = False
        if self.process.ended:
            self._leave("it was told to")

    def die(self, *, alone: bool = False) -> None:
        """Nothing more of it happens; nor of its tasks, unless it dies `alone`."""
        self.over = True
        self.link.is_gone = self._hears.is_gone = True
        if not alone:
            self.tasks.die()

    # --- what it is told

    def took_effect(self, calls: Sequence[Request[Any]], answers: list[Any]) -> None:
        """It is nobody's before it is told."""

    def told(self, calls: Sequence[Request[Any]], answers: list[Any], order: int) -> None:
        for call in calls:
            if isinstance(call, Enroll):
                if self._number not in (0, call.start):
                    numbers = f"{call.start}, and was {self._number}"
                    raise PromiseBroken(5, f"{self.name} comes back as start {numbers}")
                self._number = call.start

    def failed(self) -> None:
        """It asks again."""

    def _leave(self, why: str) -> None:
        self._world.trace.event(self.name, f"leaves: {why}")
        self.die()
