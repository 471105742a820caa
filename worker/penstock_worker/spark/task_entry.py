"""The entry of a resident task: what Spark's Python process runs.

Puts the parts of one task together from its launch and runs the loop. Neighbours: `task.loop` (the
loop), `keyed_stage` and `source_stage` (the work), `resident_tasks` (who starts this).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StatefulProcessor

from penstock.dataflow.plan import Processor
from penstock.dataflow.source import Source
from penstock.errors import PermanentError
from penstock.store.port import NodeStore
from penstock.store.redis.store import RedisStore
from penstock_worker.kinds.sinks import open_sinks
from penstock_worker.kinds.sources import open_reader
from penstock_worker.kinds.stage_sinks import batch_bounds
from penstock_worker.process.clock import Clock, SystemClock
from penstock_worker.sinks.writer import SinkPlace
from penstock_worker.sources.reader import SourceReader
from penstock_worker.spark.batch_door import transforming_through, writing_through
from penstock_worker.spark.places import check_place
from penstock_worker.stages.batch_stage import BatchBounds, BatchStage, Write
from penstock_worker.stages.failed_stage import FailedStage
from penstock_worker.stages.initial_gate import InitialGate
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.letter_box import LetterBox
from penstock_worker.stages.pair_counts import pair_counts, row_names
from penstock_worker.stages.routed_stage import RoutedStage, routed, with_tables
from penstock_worker.stages.source_stage import SourceStage
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.transform_stage import Place, Run, TransformStage
from penstock_worker.stages.work import StageWork
from penstock_worker.state.cache import StateCache
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.loop import TaskLoop
from penstock_worker.task.metrics import TaskMetrics
from penstock_worker.task.note import TaskNote
from penstock_worker.task.noted_work import NotedRunner, NotedStage
from penstock_worker.user_code.arguments import decoded, processor_maker
from penstock_worker.user_code.forms import WIRE
from penstock_worker.user_code.recent_output import RecentOutput, install
from penstock_worker.user_code.running import ProcessorRunner, UserCodeError
from penstock_worker.windows.processors import join_processor, takes_wire_rows, window_processor

_LOG = logging.getLogger(__name__)

Readers = Callable[[str, Source, Path], SourceReader]
"""As `sources.open_reader`."""
BatchWrites = Callable[[str, str], Write]
"""As `batch_door.writing_through`."""
BatchRuns = Callable[[str, str], Run]
"""As `batch_door.transforming_through`."""


def run_resident_task(launch: TaskLaunch) -> None:
    """Run one task until it retires. Raises PermanentError when it cannot work at all, Misplaced when it is
    not where it should be."""
    check_place(launch.node)
    written = RecentOutput()
    install(written)
    if launch.base_dir not in sys.path:
        sys.path.insert(0, launch.base_dir)
    clock = SystemClock(launch.anchor)
    note = TaskNote(launch.note, careful=launch.careful)
    store, waiter = _connected(launch), _connected(launch)
    try:
        assemble(launch, store, waiter, clock, note, written).run()
    except PermanentError as error:
        _LOG.error("%s: %s", launch.name, error)
        raise
    finally:
        store.close()
        waiter.close()
        note.close()


def _connected(launch: TaskLaunch) -> NodeStore:
    return RedisStore(launch.store_url, launch.topology_uid, launch.bounds)


def assemble(
    launch: TaskLaunch,
    store: NodeStore,
    waiter: NodeStore,
    clock: Clock,
    note: TaskNote | None = None,
    written: RecentOutput | None = None,
    readers: Readers = open_reader,
) -> TaskLoop:
    """The task's loop with everything it works with; with code that cannot be used it reports just that.

    `written` is what user code writes, `readers` open what sources read."""
    note = note or TaskNote(None)
    work = _stage_work(launch, store, clock, note, readers)
    inner = work.inner if isinstance(work, RoutedStage) else work
    return TaskLoop(
        launch,
        store,
        waiter,
        NotedStage(work, note),
        open_sinks(
            launch.stage,
            SinkPlace(
                Path(launch.base_dir),
                launch.topology_uid,
                launch.topology,
                launch.durable,
                launch.owner.ready,
                note.at_work,
            ),
            clock,
            lambda: _connected(launch),
            prints=launch.prints,
        ),
        TaskMetrics(launch, os.getpid(), inner.lags if isinstance(inner, SourceStage) else None),
        clock,
        written,
        work if isinstance(work, RoutedStage) else None,
    )


def _stage_work(
    launch: TaskLaunch, store: NodeStore, clock: Clock, note: TaskNote, readers: Readers
) -> StageWork:
    try:
        return stage_work(launch, store, clock, note, readers)
    except PermanentError as error:
        return FailedStage(str(error) if isinstance(error, UserCodeError) else f"{_of(launch)}: {error}")


def _of(launch: TaskLaunch) -> str:
    kind = "operator" if isinstance(launch.stage.head, Processor) else "source"
    return f"{kind} {launch.stage.operator}"


def _form(head: Processor) -> str:
    """What is handed to the processor; "" where its class says it."""
    return WIRE if head.window is not None and takes_wire_rows(head.window, head.input) else head.form


def _processor(head: Processor, base_dir: Path) -> Any:
    """What makes the instance that a task works with: a class of the user's, or a window or a join."""
    if (aggregation := head.window) is not None:

        def window() -> StatefulProcessor:
            return window_processor(
                aggregation, head.input, head.key_columns, base_dir, wire=_form(head) == WIRE
            )

        return window
    if (joined := head.join) is not None:

        def join() -> StatefulProcessor:
            return join_processor(joined, head.input)

        return join
    return processor_maker(head.target, decoded(head.arguments), base_dir)


def stage_work(
    launch: TaskLaunch,
    store: NodeStore,
    clock: Clock,
    note: TaskNote,
    readers: Readers = open_reader,
    batch_writes: BatchWrites = writing_through,
    batch_runs: BatchRuns = transforming_through,
) -> StageWork:
    """What a task does with rows. `batch_writes` write the batches of a sink that is a stage of its own,
    `batch_runs` work out those of a transform. Raises PermanentError for code that cannot be used."""
    stage = launch.stage
    base_dir = Path(launch.base_dir)
    fanout = FanoutRunner(stage.out, base_dir)
    letters = LetterBox(stage, store.call)
    match stage.head:
        case Processor(batches_to=sink) as head if sink is not None:
            write = batch_writes(launch.batch_door, stage.operator)
            return BatchStage(stage.operator, head.input, batch_bounds(sink), write, store.call, clock)
        case Processor(transform=transform) as head if transform is not None:
            transformed = TransformStage(
                Place(stage.operator, head.input, stage.out.schema),
                BatchBounds(transform.rows_max),
                transform.every_ms * 1000,
                batch_runs(launch.batch_door, stage.operator),
                fanout, letters, launch.bounds, store.call, clock,
            )  # fmt: skip
            return routed(stage, transformed, (), fanout, store, launch.bounds, clock)
        case Processor() as head:
            kind = NotedRunner if note.careful else ProcessorRunner
            runner = kind(
                _processor(head, base_dir),
                head.input,
                head.key_columns,
                stage.out.schema,
                stage.operator,
                _form(head),
                time_mode=head.time_mode,
                initial=head.initial,
                calls=head.calls,
            )
            if isinstance(runner, NotedRunner):
                runner.note = note
            cache = StateCache(runner.variables, runner.key_types, store.call, deleted=runner.deleted)
            pairs = pair_counts(stage, fanout, launch.executor, launch.task, clock)
            keyed = KeyedStage(
                stage.operator, head, runner, cache, fanout, launch.bounds, clock,
                tells_watermark=stage.tells_watermark, on_error=stage.on_error, letters=letters,
                poison=launch.poison, pairs=pairs,
            )  # fmt: skip
            earlier = row_names(stage, fanout, launch.executor, launch.task) if pairs is None else ()
            also = with_tables(stage, fanout, store, clock, earlier)
            return routed(
                stage, keyed, runner.variables, fanout, store, launch.bounds, clock, pairs=pairs, also=also
            )
        case source:
            reader = readers(stage.operator, source, base_dir)
            gate = InitialGate(stage.waits_for, store.call, clock) if stage.waits_for else None
            work = SourceStage(stage, reader, fanout, launch.bounds, clock, gate, letters)
            also = with_tables(stage, fanout, store, clock)
            return routed(stage, work, (), fanout, store, launch.bounds, clock, also=also)
