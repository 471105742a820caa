"""From a checked plan to a run: state directory, private store, shards, first schedules, fleet.

Everything that the run starts is ended here again, whatever happens in between. Neighbours: `cli.run` checks
manifest and machine before, `local_run` is the loop, `run_record` the state directory.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from penstock.api.launch.spark_worker_launch import SparkWorkerLaunch
from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.dataflow.identity import identity_of
from penstock.dataflow.outline import sink_files
from penstock.dataflow.partitions import part_of, shard_name, shards_of
from penstock.dataflow.plan import Plan, Tasks
from penstock.dataflow.sink_files import earlier_files
from penstock.dataflow.source import ADDED, Source
from penstock.errors import PermanentError
from penstock.locality.loop import LocalityLoop
from penstock.locality.routed_plan import keyed_operators, routed_plan
from penstock.schedule.record import OperatorSchedule, WorkerPlace
from penstock.sla.loop import SlaLoop
from penstock.sla.policies import has_single_tasks, policy_of
from penstock.sla.promise import Promise, keyed_edges
from penstock.sla.standing import SlaSummary
from penstock.sla.treatment import single_tasks
from penstock.store.port import (
    ClearFailure,
    Create,
    DropPairs,
    Measure,
    NodeStore,
    PairNames,
    ShardCounters,
)
from penstock.store.port import Tasks as TasksOf
from penstock.store.redis.store import RedisStore
from penstock_operator.local.added_partitions import AddedPartitions
from penstock_operator.local.kept.decision_log import DecisionLog
from penstock_operator.local.kept.grown_files import GrownFiles
from penstock_operator.local.kept.run_record import (
    FORMAT,
    RunRecord,
    Start,
    StateDirectory,
    StateUnusableError,
    check_state,
    decide_start,
)
from penstock_operator.local.kept.sink_folders import SinkFolders
from penstock_operator.local.local_run import LocalRun
from penstock_operator.local.processes.fleet import LocalFleet, worker_command
from penstock_operator.local.processes.marked_processes import MARK
from penstock_operator.local.processes.sentinel import Sentinel
from penstock_operator.local.run_locality import tables_in
from penstock_operator.local.run_placement import first_schedules
from penstock_operator.local.run_state import (
    Result,
    RunState,
    StartSparkWorker,
    StartWorker,
    WorkerCare,
    worker_name,
    worker_uid,
)
from penstock_operator.local.showing.run_output import RunOutput
from penstock_operator.local.showing.run_summary import RunSummary
from penstock_operator.local.showing.sla_picture import draw
from penstock_operator.local.spark_worker_care import BESIDE
from penstock_operator.local.store.kept_store import KeptStore
from penstock_operator.local.store.private_store import PrivateStore
from penstock_operator.local.ticks import SystemTicks
from penstock_operator.partitioning.choice import installed_partitioner
from penstock_operator.words import figure_words

NODE = "local"
STORE_ID = NODE
_CALLS_PER_PIPELINE = 256
_ANSWER_S = 1.5
"""What the run itself asks the store is answered within this time, or asked again later."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the command line asks for. `manifest_text` is the manifest with all overrides in it."""

    plan: Plan
    manifest_text: str
    base_dir: Path
    state_folder: Path
    workers: int
    time_limit_s: float | None
    fresh: bool
    metrics_port: int | None
    promises: tuple[Promise, ...] = ()
    """The LatencySLAs to keep."""
    store_memory_bytes: int | None = None
    """What the private store may hold; None for a quarter of the machine's memory."""
    state: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Operator -> state variable -> what the code declares it as, in words."""


def run_topology(
    request: RunRequest,
    output: RunOutput,
    command: Callable[[Path], Sequence[str]] = worker_command,
) -> RunSummary:
    """Run to the end. Raises PenstockError with a sentence when the run cannot begin.

    `command` turns a launch file into a worker's process.
    """
    plan = request.plan
    policies = [(promise, policy_of(promise, keyed_edges(plan))) for promise in request.promises]
    shards_now = {of.operator: shards_of(of, request.base_dir) for of in plan.stages if not of.initial_of}
    token = secrets.token_hex(6)
    with ExitStack() as stack:
        stack.enter_context(_file_faults(request.state_folder))
        directory = StateDirectory(request.state_folder)
        lock = directory.lock()
        stack.callback(directory.unlock)
        sentinel = Sentinel(token, [lock])
        stack.callback(sentinel.dismiss)
        stack.callback(os.environ.pop, MARK, None)
        os.environ[MARK] = f"{token}/store/"
        ticks = stack.enter_context(SystemTicks())
        record, start, removed, held = _open_state(request, directory, shards_now)
        # Initial state is what there was at the first start, whatever became of it.
        shards_now |= {of.operator: record.shards[of.operator] for of in plan.stages if of.initial_of}
        for descriptor in held:
            stack.callback(os.close, descriptor)
        server = PrivateStore(
            directory.folder, plan.durability, STORE_ID, memory_bytes=request.store_memory_bytes
        )
        stack.callback(server.stop, lambda: ticks.interrupts > 1)
        server.start(lambda: ticks.interrupts > 0)
        store = RedisStore(server.url, record.topology_uid)
        stack.callback(store.close)
        ticks.clock.share(store)
        if start is Start.RESUME:
            _check_store_kept(store, record, directory.folder)
        _create_shards(store, plan, shards_now, are_late=start is Start.RESUME)
        measured = _measure(store, record.shards)
        record = check_state(record, request.state, _worked(record, measured), directory.folder)
        directory.write(record)
        news = _resume_news(plan, measured)
        shards = _shards_to_run(plan, record.shards, shards_now, measured)
        fleet = LocalFleet(directory.workers_folder, token, command, memory_bytes=plan.memory_bytes)
        stack.callback(fleet.close)
        stack.callback(output.close)
        manifest = directory.write_manifest(request.manifest_text)
        key_file = directory.write_spark_key(secrets.token_hex(32)) if plan.remote_tasks else None

        def launch(action: StartWorker | StartSparkWorker) -> None:
            if isinstance(action, StartSparkWorker):
                folder = directory.workers_folder.absolute() / f"{action.name}-spark"
                fleet.start(_spark_worker_launch(action, key_file, folder))
                return
            number = int(action.worker.removeprefix("w"))
            fleet.start(
                WorkerLaunch(
                    topology_uid=record.topology_uid,
                    manifest=str(manifest),
                    base_dir=str(request.base_dir.absolute()),
                    worker=action.worker,
                    uid=action.uid,
                    attempt=action.attempt,
                    store_id=STORE_ID,
                    store_url=server.url,
                    metrics_port=None if request.metrics_port is None else request.metrics_port + number,
                    spark_key_file=str(key_file or ""),
                    spark_folder=str(directory.workers_folder.absolute() / f"{action.worker}-spark"),
                    kills_file=str(fleet.kills_file(action.worker).absolute()),
                )
            )

        log = DecisionLog(directory.folder)
        disks = [directory.folder, *{Path(file).parent for file in record.sink_files}]
        keeper = stack.enter_context(KeptStore(server, sentinel.keep, disks))
        asked = RedisStore(server.url, record.topology_uid, timeout_s=_ANSWER_S)
        stack.callback(asked.close)
        added = AddedPartitions(plan, request.base_dir)
        stack.callback(added.stop)
        added.start()
        run = LocalRun(
            _first_state(request, token, store, shards),
            record.shards,
            asked,
            keeper,
            fleet,
            launch,
            output,
            ticks,
            resumed=start is Start.RESUME,
            grown=GrownFiles(plan, request.base_dir),
            added=added,
            locality=_locality(plan, store, log),
            slas=[
                SlaLoop(promise, policy, record.shards, keyed_edges(plan), log)
                for promise, policy in policies
            ],
        )
        fleet.tell = partial(run.tell, is_trouble=True)
        run.tell(_beginning(start, record, removed, plan, measured, directory.folder))
        for told in news:
            run.tell(told)
        for promise, _ in policies:
            run.tell(_promised(promise))
        summary = run.run()
        if summary.result == Result.FAILED:
            logs = f"The logs of the workers are in {directory.workers_folder}."
            summary = replace(summary, message=f"{summary.message.rstrip()}\n{logs}")
        return replace(summary, slas=tuple(_with_picture(sla, directory.folder) for sla in summary.slas))


def _locality(plan: Plan, store: NodeStore, log: DecisionLog) -> LocalityLoop | None:
    """What decides on tables; None where none are asked for, and the store has none of earlier times."""
    # No task runs yet: what there is was counted by an earlier run.
    store.call(DropPairs(store.call(PairNames())))
    there = tables_in(store, keyed_operators(plan))
    asked = routed_plan(plan)
    unrouted = frozenset(name for name, table in there.items() if not table.is_bare) - frozenset(asked.names)
    routed = routed_plan(plan, unrouted)
    if not routed.operators:
        return None
    loop = LocalityLoop(routed, installed_partitioner(), log, unrouted=unrouted)
    for name, table in there.items():
        loop.recorded(name, table)
    return loop


def _spark_worker_launch(action: StartSparkWorker, key_file: Path | None, folder: Path) -> SparkWorkerLaunch:
    return SparkWorkerLaunch(
        worker=action.name,
        uid=f"{action.home_uid}-{BESIDE}",
        attempt=action.attempt,
        master=action.master,
        node=BESIDE,
        host="127.0.0.1",
        key_file=str(key_file or ""),
        home_uid=action.home_uid,
        folder=str(folder),
    )


@contextmanager
def _file_faults(folder: Path) -> Iterator[None]:
    """A file or directory that cannot be made, read, written or removed is told in a sentence; so is a disk
    that has no room for what is written below `folder`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StateUnusableError(
                f"The disk of {folder} is full: free some space, or choose another directory "
                "with --state-dir."
            ) from error
        if error.filename is None:
            raise
        raise StateUnusableError(
            f"{error.filename} cannot be used ({error.strerror}): mend that, or choose another directory "
            "with --state-dir."
        ) from error


def _open_state(
    request: RunRequest, directory: StateDirectory, shards_now: Mapping[str, Sequence[str]]
) -> tuple[RunRecord, Start, int, list[int]]:
    """The record of this run, written; how it starts; how many sink files were removed for it; what holds its
    sinks' folders (descriptors)."""
    plan, base_dir = request.plan, request.base_dir
    identity = identity_of(plan)
    before = None
    try:
        before = directory.read()
    except StateUnusableError:
        if not request.fresh:
            raise
    folders = SinkFolders(plan, base_dir, directory.folder, before.topology_uid if before else "")
    folders.refuse_others()
    there = earlier_files(plan, base_dir)
    start = decide_start(before, identity, there, directory.folder, fresh=request.fresh)
    files = [str(file) for file in sink_files(plan, shards_now, base_dir)]
    removed = 0
    if start is Start.RESUME and before is not None:
        initial = {of.operator: before.shards[of.operator] for of in plan.stages if of.initial_of}
        record = before.next_run(identity, {**shards_now, **initial}, files)
    else:
        initial = {of.operator: shards_of(of, base_dir) for of in plan.stages if of.initial_of}
        if start is Start.FRESH:
            written = {Path(name) for name in before.sink_files} if before else set()
            own = folders.removable(written | {file.absolute() for file in there})
            removed = directory.remove_state(own)
        record = RunRecord(
            format=FORMAT,
            topology=plan.topology,
            topology_uid=secrets.token_hex(8),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            runs=1,
            identity=identity,
            shards={stage: tuple(names) for stage, names in {**shards_now, **initial}.items()},
            sink_files=tuple(files),
        )
    durable = plan.durability != "Process"
    held = folders.claim(record.topology_uid, durable=durable, anew=start is not Start.RESUME)
    directory.write(record)
    for folder in (directory.store_folder, directory.workers_folder):
        folder.mkdir(exist_ok=True)
    return record, start, removed, held


def _check_store_kept(store: NodeStore, record: RunRecord, folder: Path) -> None:
    """Output beside a store that knows nothing: the store was removed, and would write over that output."""
    if not _measure(store, record.shards) and any(Path(name).exists() for name in record.sink_files):
        raise StateUnusableError(
            f"The store in {folder} is empty, though this topology has written output: "
            "start anew with --fresh."
        )


def _create_shards(
    store: NodeStore, plan: Plan, shards: Mapping[str, Sequence[str]], *, are_late: bool
) -> None:
    """Records for shards that have none yet (late: they were added since an earlier run); failures of an
    earlier run are forgotten."""
    creates = [
        Create(
            shard,
            position=ADDED if are_late and stage.is_source else b"",
            source=stage.is_source,
        )
        for stage in plan.stages
        for shard in shards[stage.operator]
    ]
    for first in range(0, len(creates), _CALLS_PER_PIPELINE):
        store.pipeline(creates[first : first + _CALLS_PER_PIPELINE])
    store.pipeline([ClearFailure(stage.operator) for stage in plan.stages])


def _measure(store: NodeStore, shards: Mapping[str, Sequence[str]]) -> dict[str, ShardCounters]:
    names = tuple(name for named in shards.values() for name in named)
    answers = store.call(Measure(names))
    return {name: known for name, known in zip(names, answers, strict=True) if known is not None}


def _resume_news(plan: Plan, measured: Mapping[str, ShardCounters]) -> list[str]:
    """What sources have to say of the positions that they are read on from. Raises PermanentError where
    those do not fit what the manifest says."""
    told = []
    for stage in plan.stages:
        if isinstance(stage.head, Source):
            prefix = shard_name(stage.operator, "")
            positions = {
                part_of(shard): known.position
                for shard, known in measured.items()
                if shard.startswith(prefix)
            }
            try:
                news = stage.head.resume_news(positions)
            except PermanentError as error:
                raise StateUnusableError(f"Source {stage.operator}: {error}.") from error
            told += [f"source {stage.operator}: {news}"] if news else []
    return told


def _worked(record: RunRecord, measured: Mapping[str, ShardCounters]) -> set[str]:
    """The operators that have committed something."""
    return {
        operator
        for operator, shards in record.shards.items()
        if any(shard in measured and measured[shard].commit for shard in shards)
    }


def _shards_to_run(
    plan: Plan,
    recorded: Mapping[str, Sequence[str]],
    now: Mapping[str, Sequence[str]],
    measured: Mapping[str, ShardCounters],
) -> dict[str, list[str]]:
    """All shards but partitions that are gone and were read to their end."""
    to_run: dict[str, list[str]] = {}
    for stage in plan.stages:
        gone = set(recorded[stage.operator]) - set(now[stage.operator])
        if isinstance(stage.head, Source):
            unread = sorted(part_of(name) for name in gone if not _is_finished(measured.get(name)))
            if unread:
                raise StateUnusableError(
                    f"Source {stage.operator}: {unread[0]} is gone and was not read to its end "
                    f"({len(unread)} {stage.head.parts_are} are): put it back, or start anew with --fresh."
                )
        to_run[stage.operator] = [name for name in recorded[stage.operator] if name not in gone]
    return to_run


def _is_finished(known: ShardCounters | None) -> bool:
    return known is not None and known.finished


def _first_state(
    request: RunRequest, token: str, store: NodeStore, shards: Mapping[str, Sequence[str]]
) -> RunState:
    """Versions go on from those that the store has seen. Warm workers start once the others work."""
    plan = _with_workers(_within(request.plan, request.promises), request.workers)
    names = [worker_name(number) for number in range(request.workers)]
    workers = {name: WorkerCare(name, worker_uid(token, name, 0)) for name in names}
    seen = store.pipeline([TasksOf("", stage.operator) for stage in plan.stages])
    schedules = first_schedules(
        plan,
        shards,
        [WorkerPlace(care.name, NODE, NODE, care.uid) for care in workers.values()],
    )
    for promise in request.promises:
        if has_single_tasks(promise.policy):
            schedules = _split(schedules, promise)
    version = max(answer.version for answer in seen)
    return RunState(plan, token, NODE, workers, schedules, request.time_limit_s, version_before=version)


def _with_workers(plan: Plan, initial: int) -> Plan:
    """`plan` with a range of workers that `initial` is in."""
    workers = plan.workers
    least, most = min(workers.least, initial), max(workers.most, initial)
    return replace(plan, workers=replace(workers, least=least, most=most))


def _within(plan: Plan, promises: Sequence[Promise]) -> Plan:
    """`plan` with tasks at the start that the SLAs allow."""
    limits = {operator: given for promise in promises for operator, given in promise.scope.limits.items()}

    def tasks(operator: str, asked: Tasks) -> Tasks:
        if operator not in limits:
            return asked
        least, most = limits[operator].min, limits[operator].max
        return Tasks(least, most, min(max(asked.initial, least), most))

    stages = tuple(replace(stage, tasks=tasks(stage.operator, stage.tasks)) for stage in plan.stages)
    return replace(plan, stages=stages)


def _split(schedules: Mapping[str, OperatorSchedule], promise: Promise) -> dict[str, OperatorSchedule]:
    """The first schedules, with executors of one task each for the operators in scope."""
    split = dict(schedules)
    for operator in promise.scope.targets:
        taken = {executor.name for schedule in split.values() for executor in schedule.executors}
        split[operator] = single_tasks(split[operator], taken)
    return split


def _with_picture(sla: SlaSummary, folder: Path) -> SlaSummary:
    picture = folder / f"{sla.name}.png"
    return replace(sla, picture=str(picture)) if draw(picture, sla) else sla


def _promised(promise: Promise) -> str:
    about = promise.operator or "from end to end"
    bound, window = promise.latency_us / 1000, promise.window_us / 1000
    dry = "; a dry run: nothing is moved" if promise.dry_run else ""
    return (
        f"{promise.name}: {about} is to stay within {figure_words.latency(bound)} over any "
        f"{figure_words.latency(window)}, by {promise.policy}{dry}"
    )


def _beginning(
    start: Start,
    record: RunRecord,
    removed: int,
    plan: Plan,
    measured: Mapping[str, ShardCounters],
    folder: Path,
) -> str:
    """Which of the three ways this run begins, with what is known."""
    match start:
        case Start.FIRST:
            return f"starts with nothing read; state is kept in {folder}"
        case Start.FRESH:
            files = f" and {removed} sink files" if removed else ""
            return f"starts anew: the state in {folder}{files} of earlier runs were removed"
        case Start.RESUME:
            sources = [stage.operator for stage in plan.stages if stage.is_source]
            read = sum(measured[name].completed_rows for stage in sources for name in record.shards[stage])
            waiting = sum(known.inbox_entries + known.outbox_entries for known in measured.values())
            return (
                f"resumes run {record.runs - 1} of {record.created}: {figure_words.count(read)} records were "
                f"read, {waiting} entries wait; --fresh would start anew"
            )


def state_folder(state_dir: Path | None, topology: str) -> Path:
    """Where a topology's state is: in the current directory, unless said otherwise."""
    return state_dir if state_dir is not None else Path(".penstock") / topology
