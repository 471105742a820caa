"""The loop of `penstock run`: looks at processes and store, decides, carries out, shows.

All deciding is `run_decisions`; what is done here can fail half-way (a store that is away), so actions
wait in a line and are carried out in order. Single-threaded: nothing here waits for anything but the
next tick. Neighbours: `run_start` puts the parts together, `store_watch` looks, `run_slas` keeps SLAs,
`run_locality` tables, `run_view` shows, `console_delivery` empties console sinks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from penstock.dataflow.outline import console_targets
from penstock.dataflow.partitions import part_of
from penstock.dataflow.source import ADDED
from penstock.locality.loop import LocalityLoop
from penstock.metrics.rows import WorkerRow
from penstock.sla.loop import SlaLoop
from penstock.store.port import Create, NodeStore, Reopen, StoreFull, StoreUnreachable
from penstock.store.publishing import put_table, to_publish
from penstock_operator.fleet.port import Fleet, WorkerNotStartedError
from penstock_operator.local.added_partitions import AddedPartitions
from penstock_operator.local.kept.grown_files import GrownFiles
from penstock_operator.local.run_decisions import adopt, begin, decide
from penstock_operator.local.run_locality import RunLocality
from penstock_operator.local.run_placement import with_shards
from penstock_operator.local.run_ports import StoreKeeper, Ticks
from penstock_operator.local.run_slas import RunSlas
from penstock_operator.local.run_state import (
    Action,
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
)
from penstock_operator.local.run_view import RunView
from penstock_operator.local.showing.console_delivery import ConsoleDelivery
from penstock_operator.local.showing.run_output import DISK_FULL, RunOutput
from penstock_operator.local.showing.run_summary import RunSummary
from penstock_operator.local.store_watch import StoreLook, StoreWatch

TICK_S = 0.15
FOLLOW_S = 0.02
"""While shards wait for tasks that start, so often is looked whether these are up."""
_REST_S = 0.005


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
        locality: LocalityLoop | None = None,
        grown: GrownFiles | None = None,
        added: AddedPartitions | None = None,
    ) -> None:
        self._state = state
        self._shards = {stage: tuple(names) for stage, names in shards.items()}
        self._store = store
        self._keeper = keeper
        self._fleet = fleet
        self._launch = launch
        self._ticks = ticks
        self._resumed = resumed
        self._grown = grown
        self._added = added
        self._grew: set[str] = set()
        # What an interval of an SLA is measured from is its begin; others have time.
        self._counts_time = bool(slas)
        self._tick_s = min([TICK_S, *(sla.interval_s for sla in slas)])
        self._plan = state.plan
        self._view = RunView(state.plan, output, fleet, ticks, slas, locality)
        self._watch = StoreWatch(store, keeper, self._shards, ticks, self.tell)
        self._slas = RunSlas(slas, self._shards, ticks, lambda: self._state, self._accept, self.tell)
        self._locality = RunLocality(
            locality, store, self._shards, ticks, lambda: self._state, self._accept, self.tell
        )
        self._console = ConsoleDelivery(console_targets(state.plan), self._shards)
        self._todo: deque[Action] = deque()
        self._extra_interrupts = 0
        self._not_started = ""

    def tell(self, text: str, *, is_trouble: bool = False) -> None:
        """Something that people should know."""
        self._view.tell(text, is_trouble=is_trouble)

    def run(self) -> RunSummary:
        """Run to the end. Whoever calls ends the fleet and the store afterwards, also after an exception."""
        look = self._watch.look()
        if look is not None:
            self._view.take(look)
            backlog = look.backlog(self._plan)
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
            spent_s = self._ticks.now_s() - began_s if self._counts_time else 0.0
            tick_s = FOLLOW_S if self._slas.await_tasks else self._tick_s
            self._ticks.wait(max(_REST_S, tick_s - spent_s))
        look = self._watch.look()
        if look is not None:
            self._deliver(look)
            self._view.take(look)
        return self._summary(self._state.result or Result.STOPPED)

    def _turn(self) -> None:
        self._watch.keep()
        self._carry_out()
        self._take_added()
        look = self._watch.look() if self._watch.is_due else None
        seen = self._seen(look)
        self._accept(decide(self._state, seen, self._ticks.now_s()))
        self._slas.keep(look, is_store_away=self._watch.is_away)
        self._keep_locality(look)
        if look is not None:
            self._deliver(look)
            self._watch.tell_of_memory(look)
            self._view.take(look)
        self._view.show(self._state, is_store_away=self._watch.is_away)

    def _keep_locality(self, look: StoreLook | None) -> None:
        try:
            self._locality.keep(look)
        except (StoreUnreachable, StoreFull) as error:
            self._watch.note_trouble(error)

    def _seen(self, look: StoreLook | None) -> Seen:
        interrupts = self._ticks.interrupts + self._extra_interrupts
        fleet = self._fleet.workers()
        if look is None:
            return Seen(fleet, None, None, None, interrupts, self._watch.fault)
        backlog = look.backlog(self._plan)
        reads = self._state.phase in (Phase.STARTING, Phase.RUNNING)
        if reads and backlog is not None and backlog.sources_finished:
            backlog = replace(backlog, sources_finished=not self._reopen_grown(look))
        return Seen(
            fleet,
            {row.worker: row for row in look.told.values() if isinstance(row, WorkerRow)},
            backlog,
            look.failures,
            interrupts,
            self._watch.fault,
        )

    def _reopen_grown(self, look: StoreLook) -> bool:
        """Have files read on that changed after they were read to their end; True when there are some."""
        shards = self._grown.among(self._shards, look.shards) if self._grown is not None else []
        try:
            self._store.pipeline([Reopen(shard) for shard in shards])
        except (StoreUnreachable, StoreFull) as error:
            self._watch.note_trouble(error)
        if news := [shard for shard in shards if shard not in self._grew]:
            self._grew.update(news)
            self.tell(
                f"{part_of(news[0])} changed after it was read to its end and is read on "
                f"(so are {len(news)} files in all)"
            )
        return bool(shards)

    def _take_added(self) -> None:
        """Have partitions read that were added to a source. Until a schedule names them they are tried again:
        a shard that is made already answers so."""
        if self._added is None or self._state.phase is not Phase.RUNNING or not self._keeper.answers:
            return
        scheduled = {operator: tuple(of.shards) for operator, of in self._state.schedules.items()}
        for operator, names in self._added.beyond(scheduled).items():
            try:
                self._store.pipeline([Create(name, position=ADDED, source=True) for name in names])
            except (StoreUnreachable, StoreFull) as error:
                self._watch.note_trouble(error)
                return
            schedule = self._state.schedules[operator]
            self._accept(adopt(self._state, [with_shards(schedule, names, self._state.node)]))
            if set(names) <= self._state.schedules[operator].shards.keys():
                # Everybody who looks at shards has this one dictionary.
                self._shards[operator] += tuple(name for name in names if name not in self._shards[operator])
                self.tell(f"source {operator}: {', '.join(map(part_of, names))} came and is read")

    # --- carrying out ---------------------------------------------------------------------------

    def _accept(self, decision: Decision) -> None:
        was_working = self._state.phase not in (Phase.STOPPING, Phase.ENDED)
        self._state = decision.state
        if was_working and self._state.phase in (Phase.STOPPING, Phase.ENDED):
            self._view.work_is_over()
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
                self._watch.note_trouble(error)
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
                for schedule in schedules:
                    put_table(self._store, schedule)
                self._store.pipeline([to_publish(schedule) for schedule in schedules])
            case StartWorker() | StartSparkWorker():
                if self._state.phase not in (Phase.STOPPING, Phase.ENDED):
                    self._launch(action)
            case StopWorker(worker, grace_s):
                self._fleet.stop(worker, grace_s)
            case Say(text, is_trouble):
                self.tell(text, is_trouble=is_trouble)

    def _deliver(self, look: StoreLook) -> None:
        """Rows of console sinks to stdout."""
        try:
            for sink, ages_us in self._console.deliver(
                self._store, look.shards, self._view.rows, self._ticks.now_us
            ):
                self._view.delivered(sink, ages_us)
        except (StoreUnreachable, StoreFull) as error:
            self._watch.note_trouble(error)
        except BrokenPipeError:
            if not self._extra_interrupts:
                self._extra_interrupts = 2
                self.tell("nobody reads the output any more")
        except OSError as error:
            # What finds no room is not delivered, and printed at a later look.
            if error.errno not in DISK_FULL:
                raise

    def _summary(self, result: Result) -> RunSummary:
        return self._view.summary(
            self._state, result, resumed=self._resumed, store_restarts=self._keeper.restarts
        )
