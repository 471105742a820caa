"""Finds shards that fell off their owner's ready list without the owner's knowing.

A call whose sender gave up may still take effect: a late `Fetch` takes a shard off the list and nobody
works on it, a late `Claim` mints an epoch that nobody holds. Neither raises anything, and an owner that
has nothing to commit never learns of it. So a task looks now and then at the counters of what it
owns (`Measure`, with every refresh of its task map) and claims again what this finds. No I/O.
"""

from __future__ import annotations

from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, ShardCounters

LOOKS_APART_US = 500_000
"""A second look counts so long after the first: far more than the time that work waits on a ready list. Two
control tokens, one behind the other, make two looks within milliseconds."""


class StrandingWatch:
    """One per task, which may look at any time."""

    def __init__(self, bounds: Bounds, *, source: bool) -> None:
        """`source`: the task's shards are source partitions, which have work until they are finished."""
        self._bounds = bounds
        self._pressed_bounds = bounds.pressed()
        self._source = source
        self._suspects: dict[str, tuple[tuple[int, int], int]] = {}
        """Shard -> (epoch, commit), and since when it is seen so."""

    def is_stranded(
        self,
        owned: OwnedShard,
        seen: ShardCounters | None,
        now_us: int,
        *,
        in_hand: bool,
        pressed: bool = False,
    ) -> bool:
        """Whether `owned` has to be claimed again. `now_us` is of a monotonic clock. `in_hand`: the task was
        handed it and has not committed; `pressed`: it fetches under `Bounds.pressed`, which hold a shard back
        with anything in its outbox. (What is still held back after that, and under its usual bound, is found
        here too.)

        Another epoch or generation is certain; work that is not handed out must be seen at two looks that
        are `LOOKS_APART_US` apart, without a commit or a hand-out in between, as it may just wait its turn.
        """
        before, since_us = self._suspects.pop(owned.shard, (None, now_us))
        if seen is None or (seen.epoch, seen.generation) != (owned.epoch, owned.generation):
            return True
        has_work = not seen.finished if self._source else seen.inbox_entries > 0
        bounds = self._pressed_bounds if pressed else self._bounds
        is_held = bounds.are_passed_by(seen.outbox_bytes, seen.outbox_entries, seen.outbox_limit_bytes)
        if in_hand or not has_work or is_held:
            return False
        found = (seen.epoch, seen.commit)
        if before != found:
            since_us = now_us
        self._suspects[owned.shard] = (found, since_us)
        return now_us - since_us >= LOOKS_APART_US

    def handed_out(self, shard: str) -> None:
        """A fetch answered with the shard."""
        self._suspects.pop(shard, None)
