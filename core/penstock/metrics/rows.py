"""The metric rows that workers leave in their node's store, and their one codec.

Rows are cumulative since their writer started, so a lost one costs nothing; a reader takes
differences, and a difference across another (epoch, generation) or another writer is missing,
never zero (promise 7).
"""

from __future__ import annotations

import msgspec

from penstock.metrics.latency import LatencyHistogram

ROW_AGE_US_MAX = 5_000_000
"""Tasks and workers write theirs at least once a second; one that is older tells nothing about now."""


class ShardRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a task did for one shard under one epoch. Times in microseconds.

    `waited_us` is the sum over rows of (start of work - placed in the inbox), `served_us` the same of (commit
    applied - start of work): both over `rows` are their mean latency at the operator. `busy_us` is work only.
    """

    epoch: int
    generation: int
    at_us: int
    rows: int
    busy_us: int
    waited_us: int
    served_us: int = 0


class TaskRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One resident task. `latency` maps an operator or sink fused into the task to its sparse histogram
    of (now - source timestamp), as `LatencyHistogram.counts`; `rows` maps operators, steps and sinks to rows
    that came out (for a sink: were committed to it) in this task. Totals are with the shards
    (`ShardCounters.counts`). `lag` maps partitions of a source that can tell it to (records that are there
    and were not read, how long ago what was read last was made, in milliseconds)."""

    executor: str
    operator: str
    task: int
    ready: str
    pid: int
    at_us: int
    latency: dict[str, dict[int, int]]
    rows: dict[str, int]
    batches: int
    fenced: int
    lag: dict[str, tuple[int, int]] = {}


class WorkerRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One worker process. `state` is starting, ready, stopping or failed (with `message`)."""

    worker: str
    uid: str
    attempt: int
    pid: int
    state: str
    message: str
    at_us: int
    tasks: dict[str, int]
    """executor -> resident tasks that run now."""
    sources: tuple[str, ...] = ()
    """The sources whose partitions it has announced (`PartitionsRow`)."""
    spark_master: str = ""
    """Where Spark workers on other nodes join it (spark://host:port); "" without remote tasks."""


class PartitionsRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The partitions of a source, as worker `worker` found them, announced under the store's `generation`.

    `shards` are names of shards, sorted. When none could be found `message` says why.
    """

    operator: str
    worker: str
    uid: str
    generation: int
    at_us: int
    shards: tuple[str, ...]
    message: str = ""


class HeldRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a topology holds in a store's memory, as the agent of the store (`node` is its id) has estimated
    it: `held_bytes` over `shards` shards. `limit_bytes` is the store's limit while it is at it, else 0."""

    node: str
    generation: int
    at_us: int
    held_bytes: int
    shards: int
    limit_bytes: int = 0


class ClockRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """By how much a node's steady clock is ahead of its monotonic one (`store.node_clock`)."""

    offset_us: int


MetricRow = ShardRow | TaskRow | WorkerRow | PartitionsRow | HeldRow | ClockRow

_ENCODER = msgspec.msgpack.Encoder()
_SHARD = msgspec.msgpack.Decoder(ShardRow)
_TASK = msgspec.msgpack.Decoder(TaskRow)
_WORKER = msgspec.msgpack.Decoder(WorkerRow)
_HELD = msgspec.msgpack.Decoder(HeldRow)
_PARTITIONS = msgspec.msgpack.Decoder(PartitionsRow)
_CLOCK = msgspec.msgpack.Decoder(ClockRow)


def tells_of_now(row: TaskRow | WorkerRow, now_us: int) -> bool:
    """Whether its writer still writes; both by one clock."""
    return now_us - row.at_us <= ROW_AGE_US_MAX


def shard_row_name(shard: str) -> str:
    return f"shard:{shard}"


def task_row_name(worker: str, executor: str, task: int) -> str:
    return f"task:{worker}:{executor}:{task}"


def worker_row_name(worker: str) -> str:
    return f"worker:{worker}"


def partitions_row_name(operator: str) -> str:
    return f"partitions:{operator}"


def clock_row_name(boot: str) -> str:
    return f"clock:{boot}"


HELD_ROW_NAME = "held:"


def pack(row: MetricRow) -> bytes:
    return _ENCODER.encode(row)


def unpack(name: str, data: bytes) -> MetricRow:
    """The row called `name`. ValueError for a name of no known kind."""
    kind = name.split(":", 1)[0]
    if kind == "shard":
        return _SHARD.decode(data)
    if kind == "task":
        return _TASK.decode(data)
    if kind == "worker":
        return _WORKER.decode(data)
    if kind == "partitions":
        return _PARTITIONS.decode(data)
    if kind == "held":
        return _HELD.decode(data)
    if kind == "clock":
        return _CLOCK.decode(data)
    raise ValueError(f"metric row {name!r} is of no known kind")


def histogram_of(row: TaskRow, name: str) -> LatencyHistogram:
    return LatencyHistogram(dict(row.latency.get(name, {})))


def is_same_writer(before: TaskRow, row: TaskRow) -> bool:
    """Whether `row` goes on counting where `before` was.

    A restarted task counts from zero, in the same process perhaps.
    """
    shrank = any(row.rows.get(name, 0) < count for name, count in before.rows.items())
    return row.pid == before.pid and row.batches >= before.batches and not shrank
