"""The loop of `penstock run`: looks at processes and store, decides, carries out, shows.

All deciding is `run_decisions`; what is done here can fail half-way (a store that is away), so actions
wait in a line and are carried out in order. Single-threaded: nothing here waits for anything but the
next tick. Neighbours: `run_start` puts the parts together, `console_delivery` empties console sinks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.dataflow.partitions import part_of
from penstock.metrics.heard_rows import HeardRows
from penstock.metrics.rows import ShardRow, TaskRow, WorkerRow, shard_row_name, unpack
from penstock.sla.look import Leeway, Places, Samples, SlaLook
from penstock.sla.loop import SlaLoop
from penstock.store.port import (
    ClearFailure,
    Failures,
    Measure,
    NodeStore,
    ReadMemory,
    ReadMetrics,
    Reopen,
    ShardCounters,
    StoreFull,
    StoreMemory,
    StoreUnreachable,
    told_here,
)
from penstock.store.publishing import to_publish
from penstock_operator.fleet.port import Fleet, WorkerNotStartedError, WorkerState
from penstock_operator.local.kept.grown_files import GrownFiles
from penstock_operator.local.run_decisions import (
    adopt,
    begin,
    decide,
    held_back,
    room_for_tasks,
    tasks_in_all,
    want_worker,
    warm_workers,
)
from penstock_operator.local.run_state import (
    Action,
    Backlog,
    Decision,
    Phase,
    PublishSchedules,
    Result,
    RunState,
    Say,
    Seen,
    StartSparkWorker,
    StartWorker,
    StopWorker,
    WorkerCare,
)
from penstock_operator.local.showing.console_delivery import ConsoleDelivery
from penstock_operator.local.showing.plan_outline import console_targets, is_source, outline
from penstock_operator.local.showing.progress import (
    OperatorProgress,
    Placement,
    ProgressReader,
    Reading,
    task_and_worker_rows,
    unknown,
)
from penstock_operator.local.showing.run_output import DISK_FULL, RunOutput
from penstock_operator.local.showing.run_status import RunEvent, RunStatus, WorkerLine
from penstock_operator.local.showing.run_summary import RunSummary
from penstock_operator.local.store.memory_watch import MemoryWatch

TICK_S = 0.15
FOLLOW_S = 0.02
"""While shards wait for tasks that start, so often is looked whether these are up."""
_REST_S = 0.005
_SHARDS_LOOKED_AT_PER_S = 4000
"""The store answers for about a hundred shards a millisecond; looking must not keep it busy."""
_LOG_LINES = 30
_NOBODY = "-"
"""No operator's name: clearing its failure changes nothing, but a store that takes no writes refuses it."""


class Ticks(Protocol):
    """Time, and signals: `now_s` is monotonic, `now_us` the node's steady clock, as source timestamps are."""

    @property
    def interrupts(self) -> int: ...

    def now_s(self) -> float: ...

    def now_us(self) -> int: ...

    def wait(self, seconds: float) -> None: ...


class StoreKeeper(Protocol):
    """Keeps the store's process running, beside the run. `restarts` counts how often it had to; `answers` is
    whether the store answered when it was last asked. Nothing here waits."""

    restarts: int
    answers: bool

    def keep(self) -> str:
        """A sentence when to keep it running is hopeless, "" otherwise."""

    def news(self) -> Sequence[str]:
        """What people should know of it, since the last call."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What the store said in one go. `packed` are all metric rows as they are there, `told` those of tasks
    and workers of this run."""

    at_us: int
    shards: Mapping[str, tuple[ShardCounters | None, ...]]
    packed: Mapping[str, bytes]
    memory: StoreMemory
    told: Mapping[str, TaskRow | WorkerRow]
    failures: Mapping[str, str]


class LocalRun:
    """One run, from its first schedule to its last worker's end.

    `shards` are all shards by stage; `launch` turns the start of a worker into its process. With `slas` the
    loop turns as often as the most frequent of them looks.
    """

    def __init__(
        self,
        state: RunState,
        shards: Mapping[str, Sequence[str]],
        store: NodeStore,
        keeper: StoreKeeper,
        fleet: Fleet,
        launch: Callable[[StartWorker | StartSparkWorker], None],
        output: RunOutput,
        ticks: Ticks,
        *,
        resumed: bool = False,
        slas: Sequence[SlaLoop] = (),
        grown: GrownFiles | None = None,
    ) -> None:
        self._state = state
        self._shards = {stage: tuple(names) for stage, names in shards.items()}
        self._store = store
        self._keeper = keeper
        self._fleet = fleet
        self._launch = launch
        self._output = output
        self._ticks = ticks
        self._resumed = resumed
        self._slas = tuple(slas)
        self._grown = grown
        self._grew: set[str] = set()
        self._tick_s = min([TICK_S, *(sla.interval_s for sla in slas)])
        self._sources = {stage.operator for stage in state.plan.stages if is_source(stage)}
        targets = console_targets(state.plan)
        self._progress = ProgressReader(outline(state.plan), [target.sink for target in targets])
        self._console = ConsoleDelivery(targets, self._shards)
        self._todo: deque[Action] = deque()
        self._events: list[RunEvent] = []
        self._extra_interrupts = 0
        self._began_s = ticks.now_s()
        self._began_us = ticks.now_us()
        self._heard = HeardRows()
        self._worked_until_s: float | None = None
        self._shown_s: float | None = None
        self._store_away = False
        self._store_fault = ""
        self._memory = MemoryWatch()
        self._not_started = ""
        self._look_due_s = 0.0

    def tell(self, text: str, *, is_trouble: bool = False) -> None:
        """Something that people should know."""
        event = RunEvent(self._ticks.now_s() - self._began_s, text, is_trouble)
        self._events.append(event)
        self._output.tell(event)

    def run(self) -> RunSummary:
        """Run to the end. Whoever calls ends the fleet and the store afterwards, also after an exception."""
        look = self._look()
        if look is not None:
            self._take(look)
            backlog = self._backlog(look)
            if backlog is not None and self._reopen_grown(look):
                backlog = None
            if backlog is not None and backlog.is_empty and backlog.sources_finished:
                self.tell("the input was used up and worked through by an earlier run; --fresh starts anew")
                return self._summary(Result.FINISHED)
        if self._ticks.interrupts:
            return self._summary(Result.STOPPED)
        self._accept(begin(self._state))
        while self._state.phase is not Phase.ENDED:
            began_s = self._ticks.now_s()
            self._turn()
            # What an interval of an SLA is measured from is its begin; others have time.
            spent_s = self._ticks.now_s() - began_s if self._slas else 0.0
            tick_s = FOLLOW_S if any(sla.awaits_tasks for sla in self._slas) else self._tick_s
            self._ticks.wait(max(_REST_S, tick_s - spent_s))
        look = self._look()
        if look is not None:
            self._deliver(look)
            self._take(look)
        return self._summary(self._state.result or Result.STOPPED)

    # --- one turn -------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._store_fault = self._keeper.keep() or self._store_fault
        for text in self._keeper.news():
            self.tell(text, is_trouble=True)
        self._carry_out()
        look = self._look() if self._ticks.now_s() >= self._look_due_s else None
        seen = self._seen(look)
        self._accept(decide(self._state, seen, self._ticks.now_s()))
        self._keep_slas(look)
        if look is not None:
            self._deliver(look)
            self._tell_of_memory(look)
        self._show(look)

    def _look(self) -> _Look | None:
        """None while the store is away. One that does not answer is not asked: that would take its time."""
        if not self._keeper.answers:
            self._note_away(away=True)
            return None
        names = [name for shards in self._shards.values() for name in shards]
        self._look_due_s = self._ticks.now_s() + len(names) / _SHARDS_LOOKED_AT_PER_S
        # Rows before counters: what tasks have told is never ahead of what the store has counted.
        calls = [
            ClearFailure(_NOBODY),
            ReadMemory(),
            ReadMetrics(),
            Failures(),
            Measure(tuple(names)),
        ]
        at_us = self._ticks.now_us()
        try:
            _, memory, rows, failures, measured = self._store.pipeline(calls)
        except (StoreUnreachable, StoreFull) as error:
            self._note_trouble(error)
            return None
        self._note_away(away=False)
        counters = iter(told_here(measured))
        shards = {stage: tuple(next(counters) for _ in names) for stage, names in self._shards.items()}
        told = task_and_worker_rows(rows, self._heard, self._ticks.now_us(), self._began_us)
        return _Look(at_us, shards, rows, memory, told, failures)

    def _tell_of_memory(self, look: _Look) -> None:
        sentence = self._memory.look(look.memory, (one for shards in look.shards.values() for one in shards))
        if sentence:
            self.tell(sentence, is_trouble=self._memory.is_full)

    def _note_trouble(self, error: StoreUnreachable | StoreFull) -> None:
        if isinstance(error, StoreFull):
            self._store_fault = str(error)
        else:
            self._note_away(away=True)

    def _note_away(self, *, away: bool) -> None:
        if away and not self._store_away:
            self.tell("the store is away", is_trouble=True)
        elif self._store_away and not away:
            self.tell("the store is back")
        self._store_away = away

    def _seen(self, look: _Look | None) -> Seen:
        interrupts = self._ticks.interrupts + self._extra_interrupts
        fleet = self._fleet.workers()
        if look is None:
            return Seen(fleet, None, None, None, interrupts, self._store_fault)
        backlog = self._backlog(look)
        reads = self._state.phase in (Phase.STARTING, Phase.RUNNING)
        if reads and backlog is not None and backlog.sources_finished:
            backlog = replace(backlog, sources_finished=not self._reopen_grown(look))
        return Seen(
            fleet,
            {row.worker: row for row in look.told.values() if isinstance(row, WorkerRow)},
            backlog,
            look.failures,
            interrupts,
            self._store_fault,
        )

    def _backlog(self, look: _Look) -> Backlog | None:
        """None when the store does not know a shard: nothing can be said of all."""
        known = [counters for shards in look.shards.values() for counters in shards if counters is not None]
        if len(known) != sum(len(shards) for shards in look.shards.values()):
            return None
        return Backlog(
            generation=max(counters.generation for counters in known),
            commits=sum(counters.commit for counters in known),
            inbox_entries=sum(counters.inbox_entries for counters in known),
            outbox_entries=sum(counters.outbox_entries for counters in known),
            sources_finished=all(
                counters is not None and counters.finished
                for stage in self._sources
                for counters in look.shards[stage]
            ),
        )

    def _reopen_grown(self, look: _Look) -> bool:
        """Have files read on that changed after they were read to their end; True when there are some."""
        shards = self._grown.among(self._shards, look.shards) if self._grown is not None else []
        try:
            self._store.pipeline([Reopen(shard) for shard in shards])
        except (StoreUnreachable, StoreFull) as error:
            self._note_trouble(error)
        if news := [shard for shard in shards if shard not in self._grew]:
            self._grew.update(news)
            self.tell(
                f"{part_of(news[0])} changed after it was read to its end and is read on "
                f"(so are {len(news)} files in all)"
            )
        return bool(shards)

    # --- carrying out ---------------------------------------------------------------------------

    def _accept(self, decision: Decision) -> None:
        was_working = self._state.phase not in (Phase.STOPPING, Phase.ENDED)
        self._state = decision.state
        if was_working and self._state.phase in (Phase.STOPPING, Phase.ENDED):
            self._worked_until_s = self._ticks.now_s()
        self._todo.extend(decision.actions)
        self._carry_out()

    def _carry_out(self) -> None:
        """In order; what the store is too far away for waits, and all behind it that needs it."""
        while self._todo:
            if not self._keeper.answers:
                self._do_without_store()
                return
            try:
                self._do(self._todo[0])
            except (StoreUnreachable, StoreFull) as error:
                self._note_trouble(error)
                self._do_without_store()
                return
            except WorkerNotStartedError as error:
                if self._state.working_since_s is None:
                    raise
                self._note_not_started(error)
                self._do_without_store()
                return
            self._todo.popleft()

    def _note_not_started(self, error: WorkerNotStartedError) -> None:
        """What it lacks may come: the others go on meanwhile, and it is tried again at each turn."""
        if str(error) != self._not_started:
            self._not_started = str(error)
            self.tell(f"{error} It is tried again.", is_trouble=True)

    def _do_without_store(self) -> None:
        """Stops need no store, nor does what people are told."""
        for action in [action for action in self._todo if isinstance(action, StopWorker | Say)]:
            self._do(action)
            self._todo.remove(action)

    def _do(self, action: Action) -> None:
        match action:
            case PublishSchedules(schedules):
                self._store.pipeline([to_publish(schedule) for schedule in schedules])
            case StartWorker() | StartSparkWorker():
                if self._state.phase not in (Phase.STOPPING, Phase.ENDED):
                    self._launch(action)
            case StopWorker(worker, grace_s):
                self._fleet.stop(worker, grace_s)
            case Say(text, is_trouble):
                self.tell(text, is_trouble=is_trouble)

    def _deliver(self, look: _Look) -> None:
        """Rows of console sinks to stdout."""
        try:
            for sink, ages_us in self._console.deliver(
                self._store, look.shards, self._output.rows, self._ticks.now_us
            ):
                self._progress.deliver(sink, ages_us)
        except (StoreUnreachable, StoreFull) as error:
            self._note_trouble(error)
        except BrokenPipeError:
            if not self._extra_interrupts:
                self._extra_interrupts = 2
                self.tell("nobody reads the output any more")
        except OSError as error:
            # What finds no room is not delivered, and printed at a later look.
            if error.errno not in DISK_FULL:
                raise

    # --- latency SLAs -----------------------------------------------------------------------------

    def _keep_slas(self, look: _Look | None) -> None:
        """Once a task works: what happens before is no latency of this topology."""
        state = self._state
        if state.working_since_s is None or state.phase in (Phase.STOPPING, Phase.ENDED):
            return
        now_us = self._ticks.now_us()
        due = [sla for sla in self._slas if sla.due(now_us)]
        following = [sla for sla in self._slas if sla not in due and sla.awaits_tasks]
        if not (due or following):
            return
        if look is None:
            if self._store_away:
                for sla in due:
                    sla.away(now_us, "the store is away")
            return
        seen = self._sla_look(look)
        for sla in (*following, *due):
            turn = sla.examine(seen) if sla in due else sla.follow(seen)
            for event in turn.events:
                self.tell(event.text, is_trouble=event.is_trouble)
            if turn.schedules:
                self._accept(adopt(self._state, turn.schedules))
                seen = replace(seen, places=self._places())
            if turn.lacks_room:
                self._accept(want_worker(self._state, self._ticks.now_s()))

    def _sla_look(self, look: _Look) -> SlaLook:
        counters = {
            stage: dict(zip(self._shards[stage], found, strict=True)) for stage, found in look.shards.items()
        }
        rows: dict[str, ShardRow] = {}
        for operator in {operator for sla in self._slas for operator in sla.promise.scope.targets}:
            for shard in self._shards[operator]:
                packed = look.packed.get(name := shard_row_name(shard))
                row = unpack(name, packed) if packed is not None else None
                if isinstance(row, ShardRow):
                    rows[shard] = row
        tasks: dict[str, list[int]] = {}
        for told in look.told.values():
            if isinstance(told, TaskRow):
                tasks.setdefault(told.executor, []).append(told.at_us)
        return SlaLook(
            look.at_us,
            Samples(counters, rows, tasks),
            self._places(),
            Leeway(held=held_back(self._state)),
        )

    def _places(self) -> Places:
        """The part of an SLA's look that its own schedules change."""
        return Places(
            schedules=self._state.schedules,
            nodes={self._state.node: tasks_in_all(self._state)},
            room=room_for_tasks(self._state),
            warm=warm_workers(self._state),
        )

    # --- showing --------------------------------------------------------------------------------

    def _take(self, look: _Look) -> None:
        self._progress.take(Reading(self._ticks.now_s(), self._ticks.now_us(), look.shards, look.told))

    def _show(self, look: _Look | None) -> None:
        now_s = self._ticks.now_s()
        if look is not None:
            self._take(look)
        if self._shown_s is None or now_s - self._shown_s >= self._output.tick_s:
            self._shown_s = now_s
            self._output.show(self._status(now_s))

    def _status(self, now_s: float) -> RunStatus:
        state = self._state
        return RunStatus(
            topology=state.plan.topology,
            durability=state.plan.durability,
            phase=state.phase,
            elapsed_s=now_s - self._began_s,
            store_away=self._store_away,
            workers=tuple(self._worker_line(care) for care in state.workers.values()),
            operators=self._operators(),
            events=tuple(self._events[-8:]),
            slas=tuple(sla.line() for sla in self._slas),
        )

    def _operators(self) -> tuple[OperatorProgress, ...]:
        """As they were last seen; while the store is away nobody knows."""
        lines = self._progress.progress(self._placements())
        return tuple(unknown(line) for line in lines) if self._store_away else lines

    def _worker_line(self, care: WorkerCare) -> WorkerLine:
        seen = {worker.worker: worker.state for worker in self._fleet.workers()}.get(care.name)
        if care.restart_at_s is not None:
            shown = "down"
        elif seen is WorkerState.STOPPING or seen is WorkerState.ENDED:
            shown = str(seen)
        elif care.is_up:
            shown = "warm" if care.is_warm else "ready"
        else:
            shown = "starting"
        return WorkerLine(care.name, shown, care.restarts)

    def _placements(self) -> dict[str, Placement]:
        return {
            name: Placement(
                {executor.name: executor.worker for executor in schedule.executors}, len(self._shards[name])
            )
            for name, schedule in self._state.schedules.items()
        }

    def _summary(self, result: Result) -> RunSummary:
        state = self._state
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
            resumed=self._resumed,
            duration_s=now_s - self._began_s,
            worked_s=worked_s,
            operators=self._progress.totals(),
            restarts={care.name: care.restarts for care in state.workers.values() if care.restarts},
            store_restarts=self._keeper.restarts,
            events=tuple(self._events),
            slas=tuple(sla.summary() for sla in self._slas),
        )
