"""One started resident task, as the executor that it belongs to sees it, and who starts them (no Spark in
here; `resident_tasks` is the one that does)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from penstock_worker.task.launch import TaskLaunch


@dataclass(slots=True)
class ResidentTask:
    """`ended` is set once its Spark job is over, with `error` when it did not end well. `shard` and `key` are
    what its process crashed at, where that is known, `works` how many of the shard's batches it had begun by
    then; a task that raised did not crash."""

    launch: TaskLaunch
    group: str
    ended: threading.Event = field(default_factory=threading.Event)
    error: str = ""
    crashed: bool = False
    shard: str = ""
    key: str = ""
    works: int = 0
    commits: int = 0
    hung_us: int = 0
    """How long its work was waited for, of one that was killed because that did not return."""


class TaskStarter(Protocol):
    """Starts and ends resident tasks of one session."""

    def can_start(self, node: str) -> bool:
        """Whether a task on `node` could be started now; "" is the worker's own."""

    def start(self, launch: TaskLaunch) -> ResidentTask: ...

    def cancel(self, task: ResidentTask) -> None:
        """End it by force; returns at once, and may be called again."""

    def is_standing(self, task: ResidentTask, now_us: int) -> bool:
        """Whether a task has stood still for too long (`standing_rule`). To be asked every cycle."""

    def prepare(self, busy_share: float) -> None:
        """Called every cycle: tasks that others may come beside were busy for this share of their time."""
