"""What people are shown of a run: events as they happen, a status now and then, a summary at its end.

Neighbours: `local_run` says what happened and gives its looks, `run_output` writes, `progress` keeps the
figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.dataflow.outline import console_targets, outline
from penstock.dataflow.plan import Plan
from penstock.figures.operators import OperatorFigures
from penstock.locality.loop import LocalityLoop
from penstock.locality.record import EdgeLine
from penstock.schedule.remote import with_remote
from penstock.sla.loop import SlaLoop
from penstock_operator.fleet.port import Fleet, WorkerState
from penstock_operator.local.run_ports import Ticks
from penstock_operator.local.run_state import Result, RunState, WorkerCare
from penstock_operator.local.showing.progress import ProgressReader, Reading
from penstock_operator.local.showing.run_output import RunOutput
from penstock_operator.local.showing.run_status import RunEvent, RunStatus, WorkerLine
from penstock_operator.local.showing.run_summary import RunSummary
from penstock_operator.local.store_watch import StoreLook

_LOG_LINES = 30
_EVENTS = 8


class RunView:
    """Of one run, from now on."""

    def __init__(
        self,
        plan: Plan,
        output: RunOutput,
        fleet: Fleet,
        ticks: Ticks,
        slas: Sequence[SlaLoop] = (),
        locality: LocalityLoop | None = None,
    ) -> None:
        self._output = output
        self._fleet = fleet
        self._ticks = ticks
        self._slas = tuple(slas)
        self._locality = locality
        self._progress = ProgressReader(outline(plan), [target.sink for target in console_targets(plan)])
        self._events: list[RunEvent] = []
        self._began_s = ticks.now_s()
        self._worked_until_s: float | None = None
        self._shown_s: float | None = None

    def tell(self, text: str, *, is_trouble: bool = False) -> None:
        """Something that people should know."""
        event = RunEvent(self._ticks.now_s() - self._began_s, text, is_trouble)
        self._events.append(event)
        self._output.tell(event)

    def rows(self, lines: list[str]) -> None:
        """Of a console sink."""
        self._output.rows(lines)

    def delivered(self, sink: str, ages_us: Sequence[int]) -> None:
        self._progress.deliver(sink, ages_us)

    def work_is_over(self) -> None:
        self._worked_until_s = self._ticks.now_s()

    def take(self, look: StoreLook) -> None:
        """A look, for the figures."""
        self._progress.take(Reading(self._ticks.now_s(), self._ticks.now_us(), look.shards, look.told))

    def show(self, state: RunState, *, is_store_away: bool) -> None:
        """The status, if it is time for one."""
        now_s = self._ticks.now_s()
        if self._shown_s is None or now_s - self._shown_s >= self._output.tick_s:
            self._shown_s = now_s
            self._output.show(self._status(state, now_s, is_store_away=is_store_away))

    def _status(self, state: RunState, now_s: float, *, is_store_away: bool) -> RunStatus:
        seen = {worker.worker: worker.state for worker in self._fleet.workers()}
        return RunStatus(
            topology=state.plan.topology,
            durability=state.plan.durability,
            phase=state.phase,
            elapsed_s=now_s - self._began_s,
            store_away=is_store_away,
            workers=tuple(_worker_line(care, seen) for care in state.workers.values()),
            operators=self._operators(state, is_store_away=is_store_away),
            events=tuple(self._events[-_EVENTS:]),
            slas=tuple(sla.line() for sla in self._slas),
            edges=self._edges(),
        )

    def _operators(self, state: RunState, *, is_store_away: bool) -> tuple[OperatorFigures, ...]:
        """As they were last seen; while the store is away nobody knows."""
        figures = self._progress.progress(
            {name: with_remote(schedule, state.remote) for name, schedule in state.schedules.items()}
        )
        return tuple(one.unseen() for one in figures) if is_store_away else figures

    def summary(self, state: RunState, result: Result, *, resumed: bool, store_restarts: int) -> RunSummary:
        now_s = self._ticks.now_s()
        worked_s = 0.0
        if state.working_since_s is not None:
            worked_s = (self._worked_until_s or now_s) - state.working_since_s
        message = state.message
        if state.log_of:
            message += f"\n{self._fleet.log_tail(state.log_of, _LOG_LINES)}"
        return RunSummary(
            topology=state.plan.topology,
            result=result,
            message=message,
            resumed=resumed,
            duration_s=now_s - self._began_s,
            worked_s=worked_s,
            operators=self._progress.totals(),
            restarts={care.name: care.starts.again for care in state.workers.values() if care.starts.again},
            store_restarts=store_restarts,
            events=tuple(self._events),
            slas=tuple(sla.summary() for sla in self._slas),
            edges=self._edges(),
        )

    def _edges(self) -> tuple[EdgeLine, ...]:
        return self._locality.lines() if self._locality is not None else ()


def _worker_line(care: WorkerCare, seen: Mapping[str, WorkerState]) -> WorkerLine:
    state = seen.get(care.name)
    if care.is_down:
        shown = "down"
    elif state is WorkerState.STOPPING or state is WorkerState.ENDED:
        shown = str(state)
    elif care.is_up:
        shown = "warm" if care.is_warm else "ready"
    else:
        shown = "starting"
    return WorkerLine(care.name, shown, care.starts.again)
