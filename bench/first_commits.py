"""Tells when a worker takes up a shard: runs in a node agent's container, beside the store that is asked.

    python -c "$(cat bench/first_commits.py)" TOPOLOGY-UID

Each line on stdin is JSON, {"shards": [names], "worker": name}, and of a schedule that is to give them to it
{"executor": name, "version": its number} as well. The answer is about the shard that had a commit of that
worker first: {part: seconds since 1970 at which it was first seen}, by `FACTS` and `PARTS`; null after half a
minute. The store is asked every two milliseconds: asking more often takes the cores from what is measured.
Neighbour: `commit_watch`, which starts it.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from penstock.store.port import Measure, Request, ShardCounters, ShardStatus, TaskMap, Tasks
from penstock.store.redis.store import RedisStore

EVERY_S = 0.002
WITHIN_S = 30.0
FACTS = ("published", "named")
"""The store's maps have the schedule; they name a task for the shard. Seen if an executor was asked for."""
PARTS = ("arriving", "active", "claimed", "committed")
"""In this order; one that was too short to be seen has the next one's time."""


@dataclass(slots=True)
class Arrival:
    """What was seen of one shard on its way to `worker`."""

    shard: str
    worker: str
    seen_s: dict[str, float] = field(default_factory=dict)
    commits_before: int | None = None

    def look(self, now: ShardCounters | None, now_s: float) -> bool:
        """Note what the store says at a moment; True once the worker has committed."""
        for part in PARTS[: self._behind(now)]:
            self.seen_s.setdefault(part, now_s)
        return PARTS[-1] in self.seen_s

    def look_at_maps(self, tasks: TaskMap, version: int, now_s: float) -> None:
        if tasks.version >= version:
            self.seen_s.setdefault("published", now_s)
            if self.shard in tasks.mapping:
                self.seen_s.setdefault("named", now_s)

    def _behind(self, now: ShardCounters | None) -> int:
        """How many of `PARTS` the shard has behind it."""
        if now is None or now.status not in {ShardStatus.INSTALLING, ShardStatus.ACTIVE}:
            return 0
        if now.status is ShardStatus.INSTALLING:
            # a record whose counters have not come yet has none
            self.commits_before = now.commit or None
            return 1
        if not now.executor.endswith(self.worker):
            self.commits_before = now.commit
            return 2
        if self.commits_before is None:
            self.commits_before = now.commit
        return 4 if now.commit > self.commits_before else 3


def first_commit(store: RedisStore, asked: dict[str, Any]) -> dict[str, float] | None:
    """When each part was seen of the first shard that the worker commits to."""
    arrivals = [Arrival(shard, asked["worker"]) for shard in asked["shards"]]
    calls: list[Request[Any]] = [Measure(tuple(asked["shards"]))]
    if "executor" in asked:
        calls.append(Tasks(asked["executor"], arrivals[0].shard.partition("/")[0]))
    end_s = time.monotonic() + WITHIN_S
    while time.monotonic() < end_s:
        counters, *maps = store.pipeline(calls)
        now_s = time.time()
        for arrival, now in zip(arrivals, counters, strict=True):
            for tasks in maps:
                arrival.look_at_maps(tasks, asked["version"], now_s)
            if arrival.look(now, now_s):
                return arrival.seen_s
        time.sleep(EVERY_S)
    return None


def main() -> None:
    store = RedisStore("redis://agent@127.0.0.1:6379", sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(first_commit(store, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
