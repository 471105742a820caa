"""What a run's own store says of it: who runs which shard, which processes are tasks, what is kept.

Only asked while the store is not being hit; "nothing" is the answer of one that is away. Neighbours: `scene`
asks, `leftovers` judges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import redis

from faults.topology import Topology
from penstock.metrics.rows import TaskRow
from penstock.store.port import Measure, StoreUnreachable
from processes.run_harness import Run

_EXECUTOR = re.compile(r"-(w\d+)(?:-\d+)?$")


@dataclass(frozen=True, slots=True)
class View:
    """`owners`: shard -> worker. `tasks`: pid -> operator, of all that ever told. `finished`: no input is
    left."""

    owners: Mapping[str, str]
    tasks: Mapping[int, str]
    ready: Mapping[int, str]
    """pid -> the task's ready list."""
    finished: bool


NOTHING = View({}, {}, {}, finished=False)


def view(run: Run, topology: Topology) -> View:
    shards = [shard for named in topology.shards().values() for shard in named]
    sources = {shard for source in topology.sources for shard in topology.shards()[source.name]}
    try:
        with run.store() as store:
            measured = dict(zip(shards, store.call(Measure(tuple(shards))), strict=True))
    except (StoreUnreachable, FileNotFoundError):
        return NOTHING
    rows = [row for row in run.rows() if isinstance(row, TaskRow)]
    owners = {
        shard: found[1]
        for shard, known in measured.items()
        if known is not None and (found := _EXECUTOR.search(known.executor))
    }
    return View(
        owners,
        {row.pid: row.operator for row in rows},
        {row.pid: row.ready for row in rows},
        all(known is not None and known.finished for shard, known in measured.items() if shard in sources),
    )


def used_memory_bytes(run: Run) -> int:
    """Of the store; 0 while it is away."""
    try:
        with redis.Redis.from_url(str(run.launch("w0")["store_url"])) as client:
            info: Mapping[str, int] = client.info("memory")
            return info["used_memory"]
    except (redis.ConnectionError, FileNotFoundError):
        return 0


def ready_lists(run: Run) -> list[str]:
    """The names of all ready lists that stay; one that was left goes by itself in a while."""
    try:
        with redis.Redis.from_url(str(run.launch("w0")["store_url"])) as client:
            keys = list(client.scan_iter(match="penstock:*:ready:*", count=1000))
            return sorted(key.decode().partition(":ready:")[2] for key in keys if client.ttl(key) == -1)
    except (redis.ConnectionError, FileNotFoundError):
        return []
