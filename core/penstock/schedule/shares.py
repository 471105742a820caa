"""Which executor runs which shards: evenly *per task*, with few changes.

An executor's share is in proportion to its tasks, found as seats are allotted by highest averages (D'Hondt),
so equal tasks mean counts within one of each other. Load is not looked at: policies move shards by it later.
Pure. Neighbours: `spread`, `lost_workers`, `returned_workers` and `task_numbers` ask.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence


def shares(total: int, current: Mapping[str, int], tasks: Mapping[str, int]) -> dict[str, int]:
    """How many of `total` shards each executor should have; of equally even answers the one nearest
    to `current`: where averages tie, who has the shard already keeps it."""
    quota = dict.fromkeys(current, 0)
    weights = _weights(tasks)
    heap = [
        (1 / weight, current[name] < 1, order, name) for order, (name, weight) in enumerate(weights.items())
    ]
    heapq.heapify(heap)
    for _ in range(total):
        _, _, order, name = heap[0]
        quota[name] += 1
        after = quota[name] + 1
        heapq.heapreplace(heap, (after / weights[name], current[name] < after, order, name))
    return quota


def deal(
    shards: Iterable[str],
    counts: Mapping[str, int],
    tasks: Mapping[str, int],
    quota: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Each of `shards` to the executor that has the fewest a task after it; shard -> executor.

    `counts` are the shards that the executors have before, `tasks` names those that take some, `quota` bounds
    what each has afterwards.
    """
    heap = [
        ((counts.get(name, 0) + 1) / weight, order, counts.get(name, 0), weight, name)
        for order, (name, weight) in enumerate(_weights(tasks).items())
        if quota is None or counts.get(name, 0) < quota[name]
    ]
    heapq.heapify(heap)
    runs = {}
    for shard in shards:
        _, order, count, weight, name = heap[0]
        runs[shard] = name
        if quota is not None and count + 1 >= quota[name]:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, ((count + 2) / weight, order, count + 1, weight, name))
    return runs


def share_out(
    shards: Sequence[str],
    homes: Mapping[str, str],
    held: Mapping[str, Sequence[str]],
    tasks: Mapping[str, int],
    store_of: Mapping[str, str],
) -> dict[str, str]:
    """shard -> executor for all of `shards`: even shares, as few changes as that needs, within a home where
    it can be.

    `held` is executor -> what it runs now, `homes` shard -> store, `store_of` executor -> store.
    """
    quota = shares(len(shards), {name: len(held[name]) for name in tasks}, tasks)
    kept = {name: list(held[name][: quota[name]]) for name in tasks}
    staying = {shard for names in kept.values() for shard in names}
    loose = [shard for shard in shards if shard not in staying]
    for name, store in store_of.items():
        near = [shard for shard in loose if homes.get(shard) == store][: quota[name] - len(kept[name])]
        kept[name] += near
        taken = set(near)
        loose = [shard for shard in loose if shard not in taken]
    runs = {shard: name for name, mine in kept.items() for shard in mine}
    return runs | deal(loose, {name: len(mine) for name, mine in kept.items()}, tasks, quota)


def _weights(tasks: Mapping[str, int]) -> dict[str, int]:
    """Tasks as weights; where no executor has any, all weigh the same."""
    able = {name: count for name, count in tasks.items() if count > 0}
    return able or dict.fromkeys(tasks, 1)
