"""A running topology at one moment, as values that the live view, the log lines and the summary show.

Neighbours: `local_run` makes them, `figure_words` words their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.figures.operators import OperatorFigures
from penstock.locality.record import EdgeLine
from penstock.sla.standing import SlaLine


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened, in a sentence; `at_s` since the start of the run."""

    at_s: float
    text: str
    is_trouble: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A worker as people see it: `state` is starting, ready, stopping, down (to start again) or ended."""

    name: str
    state: str
    restarts: int


@dataclass(frozen=True, slots=True)
class RunStatus:
    """`phase` in a word: starting, running, draining, stopping."""

    topology: str
    durability: str
    phase: str
    elapsed_s: float
    store_away: bool
    workers: tuple[WorkerLine, ...]
    operators: tuple[OperatorFigures, ...]
    events: tuple[RunEvent, ...]
    slas: tuple[SlaLine, ...] = ()
    edges: tuple[EdgeLine, ...] = ()
    """Those whose pairs of keys are counted."""

    @property
    def workers_ready(self) -> int:
        return sum(worker.state == "ready" for worker in self.workers)
