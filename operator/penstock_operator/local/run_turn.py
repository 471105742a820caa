"""One call of the run's decision: the state as it becomes, the actions as they gather.

Pure. Neighbours: `run_decisions` calls those that work on one turn in order, `run_workers` and `run_end`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.metrics.rows import WorkerRow
from penstock.schedule.record import OperatorSchedule
from penstock.supervision.since_when import SinceWhen
from penstock_operator.local.run_publishing import publish_changed
from penstock_operator.local.run_state import (
    Action,
    Decision,
    Phase,
    Result,
    RunState,
    Say,
    Seen,
    StopWorker,
    WorkerCare,
)

GRACE_S = 10.0
"""From the wish that a worker leaves to its SIGKILL."""
NOTHING_SEEN = Seen((), None, None, None)


class RunTurn:
    """`state` is replaced as it changes."""

    def __init__(self, state: RunState, seen: Seen = NOTHING_SEEN, now_s: float = 0.0) -> None:
        self.state = state
        self.seen = seen
        self.now_s = now_s
        self.since = SinceWhen(state.since_s, now_s)
        self.actions: list[Action] = []

    @property
    def decision(self) -> Decision:
        return Decision(self.state, tuple(self.actions))

    @property
    def is_ending(self) -> bool:
        return self.state.phase in (Phase.STOPPING, Phase.ENDED)

    def current_rows(self) -> list[tuple[WorkerCare, WorkerRow]]:
        """Rows of the starts that count; older ones are last words."""
        rows = self.seen.rows or {}
        return [
            (care, rows[name])
            for name, care in self.state.workers.items()
            if name in rows and rows[name].uid == care.uid
        ]

    def keep(self, care: WorkerCare) -> None:
        self.state = replace(self.state, workers={**self.state.workers, care.name: care})

    def say(self, text: str, *, is_trouble: bool = False) -> None:
        self.actions.append(Say(text, is_trouble))

    def publish(self, schedules: Mapping[str, OperatorSchedule]) -> None:
        self.state, actions = publish_changed(self.state, schedules)
        self.actions += actions

    def fail(self, message: str, log_of: str = "") -> None:
        self.state = replace(self.state, message=message, log_of=log_of)
        self.stop(Result.FAILED)

    def stop(self, result: Result, grace_s: float = GRACE_S) -> None:
        """The run ends once all workers have."""
        self.state = replace(self.state, phase=Phase.STOPPING, result=result)
        self.stop_workers(grace_s)

    def stop_workers(self, grace_s: float) -> None:
        beside = (care.name for care in self.state.spark_workers.values())
        self.actions.extend(StopWorker(name, grace_s) for name in (*self.state.workers, *beside))
