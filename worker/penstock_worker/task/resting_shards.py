"""Shards whose batch rests until its next row is due, its outbox has room, or there is news for it.

Pure. Neighbour: `task.loop` has them worked on again.
"""

from __future__ import annotations

from penstock.store.port import FetchedShard
from penstock_worker.stages.work import Rest


class RestingShards:
    """Of one task. A batch that rests was fetched, and is committed by nobody yet."""

    def __init__(self) -> None:
        self._resting: dict[str, tuple[FetchedShard, Rest]] = {}

    def __bool__(self) -> bool:
        return bool(self._resting)

    def __contains__(self, shard: str) -> bool:
        return shard in self._resting

    def add(self, fetched: FetchedShard, rest: Rest) -> None:
        self._resting[fetched.shard] = (fetched, rest)

    def forget(self, shard: str) -> None:
        self._resting.pop(shard, None)

    def take_due(self, now_us: int, *, told: bool) -> list[FetchedShard]:
        """Those that have rested for long enough; where the task was `told` of something new also those that
        wait for that."""
        due = [
            shard
            for shard, (_, rest) in self._resting.items()
            if rest.until_us <= now_us or (told and rest.for_news)
        ]
        return [self._resting.pop(shard)[0] for shard in due]

    def gives_way(self, shard: str) -> bool:
        """Whether a shard that is handed out is worked on with what is handed out now."""
        rested = self._resting.get(shard)
        if rested is None:
            return True
        if rested[0].entries:
            # It is handed out again for its timers: they wait for its rows.
            return False
        del self._resting[shard]
        return True

    def first_due_us(self) -> int:
        """When the first one has rested for long enough. There have to be some."""
        return min(rest.until_us for _, rest in self._resting.values())
