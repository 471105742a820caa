"""Tells when a worker first commits to a shard: runs in a node agent's container, beside the store asked.

    python -c "$(cat bench/first_commits.py)" TOPOLOGY-UID

Each line on stdin is JSON, {"shards": [names], "worker": name}: the answer is the time, in seconds since
1970, at which one of the shards was seen to have a commit of that worker; null after half a minute.
The store is asked every two milliseconds: asking more often takes the cores from what is measured. Neighbour:
`schedule`, which starts it and knows what to ask.
"""

from __future__ import annotations

import json
import sys
import time

from penstock.store.port import Measure
from penstock.store.redis_store import RedisStore

EVERY_S = 0.002
WITHIN_S = 30.0


def first_commit(store: RedisStore, shards: tuple[str, ...], worker: str) -> float | None:
    before: dict[str, int] = {}
    end_s = time.monotonic() + WITHIN_S
    while time.monotonic() < end_s:
        for shard, counters in zip(shards, store.call(Measure(shards)), strict=True):
            if counters is None:
                continue
            if not counters.executor.endswith(worker):
                before[shard] = counters.commit
            elif counters.commit > before.setdefault(shard, counters.commit):
                return time.time()
        time.sleep(EVERY_S)
    return None


def main() -> None:
    store = RedisStore("redis://agent@127.0.0.1:6379", sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(first_commit(store, tuple(asked["shards"]), asked["worker"])), flush=True)


if __name__ == "__main__":
    main()
