"""One started resident task, as the executor that it belongs to sees it (no Spark in here)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from penstock_worker.task_launch import TaskLaunch


@dataclass(slots=True)
class ResidentTask:
    """`ended` is set once its Spark job is over, with `error` when it did not end well."""

    launch: TaskLaunch
    group: str
    ended: threading.Event = field(default_factory=threading.Event)
    error: str = ""
