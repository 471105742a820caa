"""Tells when a worker first commits to a shard: runs in a node agent's container, beside the store asked.

    python -c "$(cat bench/first_commits.py)" TOPOLOGY-UID

Each line on stdin is JSON, {"shard": name, "worker": name}: the answer is the times, in seconds since 1970,
at which the shard was first seen to be on its way here, to be active, to be that worker's, and to have a
commit of it; null after half a minute. The store is asked every two milliseconds: asking more often takes the
cores from what is measured. Neighbour: `schedule`, which starts it and knows what to ask.
"""

from __future__ import annotations

import json
import sys
import time

from penstock.store.port import Measure, ShardCounters, ShardStatus
from penstock.store.redis_store import RedisStore

EVERY_S = 0.002
WITHIN_S = 30.0
PARTS = ("arriving", "active", "claimed", "committed")


def parts_reached(now: ShardCounters, worker: str, commits_before: int | None) -> int:
    """How many of `PARTS` a shard has behind it. `commits_before` are those when it was first seen active."""
    if now.status is ShardStatus.INSTALLING:
        return 1
    if now.status is not ShardStatus.ACTIVE or commits_before is None:
        return 0
    if not now.executor.endswith(worker):
        return 2
    return 4 if now.commit > commits_before else 3


def first_commit(store: RedisStore, shard: str, worker: str) -> dict[str, float] | None:
    """When each of `PARTS` was first seen; one that was too short to be seen has the next one's time."""
    seen: dict[str, float] = {}
    before: int | None = None
    end_s = time.monotonic() + WITHIN_S
    while time.monotonic() < end_s:
        (counters,) = store.call(Measure((shard,)))
        now_s = time.time()
        if counters is not None:
            if before is None and counters.status is ShardStatus.ACTIVE:
                before = counters.commit
            for part in PARTS[: parts_reached(counters, worker, before)]:
                seen.setdefault(part, now_s)
            if len(seen) == len(PARTS):
                return seen
        time.sleep(EVERY_S)
    return None


def main() -> None:
    store = RedisStore("redis://agent@127.0.0.1:6379", sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(first_commit(store, asked["shard"], asked["worker"])), flush=True)


if __name__ == "__main__":
    main()
