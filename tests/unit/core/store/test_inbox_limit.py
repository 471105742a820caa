"""An inbox is bounded by what its shard works off in a quarter of a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from penstock.store.inbox_limit import InboxLimit

BOUND_BYTES = 1 << 20
ENTRY_BYTES = 2_000
S = 1_000_000
Cost = Callable[[int], float]
"""Bytes of a batch -> how long it is worked on (us)."""


def linear(bytes_per_s: float, fixed_s: float = 0.0) -> Cost:
    return lambda size: fixed_s * S + size * S / bytes_per_s


@dataclass
class Shard:
    """An inbox that its producers fill again at each commit, as far as it may be filled."""

    cost: Cost
    batch_bytes: int = BOUND_BYTES
    is_limited: bool = True
    now_us: int = 1_000 * S
    limit: InboxLimit = field(default_factory=InboxLimit)
    inbox: deque[int] = field(default_factory=deque)
    """When each entry was placed."""
    read_us: int = 0
    """The source read what comes next then, when the last batch had made room."""
    waits_us: list[int] = field(default_factory=list)
    batches: list[tuple[int, int]] = field(default_factory=list)
    """When each was begun, and its bytes."""

    @property
    def most_bytes(self) -> int:
        return min(self.limit.told_bytes or BOUND_BYTES, BOUND_BYTES)

    def run(self, seconds: float, *, arriving_per_s: float = 1e12) -> None:
        end_us = self.now_us + int(seconds * S)
        due = float(self.now_us)
        while self.now_us < end_us:
            while due <= self.now_us and (
                not self.inbox or (len(self.inbox) + 1) * ENTRY_BYTES <= self.most_bytes
            ):
                self.inbox.append(max(int(due), self.read_us))
                due = max(due, self.read_us) + ENTRY_BYTES * S / arriving_per_s
            if not self.inbox:
                self.now_us = int(due) + 1
                continue
            self._work()

    def _work(self) -> None:
        entries = max(1, min(len(self.inbox), self.batch_bytes // ENTRY_BYTES))
        size_bytes, began_us, first_us = entries * ENTRY_BYTES, self.now_us, self.inbox[0]
        self.waits_us.append(began_us - first_us)
        self.batches.append((began_us, size_bytes))
        self.read_us = began_us + 1_000
        self.now_us += max(1, int(self.cost(size_bytes)))
        for _ in range(entries):
            self.inbox.popleft()
        if self.is_limited:
            self.limit.worked(began_us, first_us, size_bytes)

    def pace(self, last_s: float) -> float:
        """Bytes a second."""
        since_us = self.now_us - last_s * S
        return sum(size for began_us, size in self.batches if began_us >= since_us) / last_s


@pytest.mark.parametrize("bytes_per_s", [20_000, 200_000, 1_000_000])
@pytest.mark.parametrize("batch_bytes", [4_000, 64_000, BOUND_BYTES])
def test_under_load_it_holds_what_is_worked_off_in_a_quarter_of_a_second(
    bytes_per_s: int, batch_bytes: int
) -> None:
    shard = Shard(linear(bytes_per_s), batch_bytes)
    shard.run(240)
    assert shard.most_bytes == pytest.approx(bytes_per_s / 4, rel=0.3)


def test_one_that_works_off_its_whole_bound_in_less_has_no_smaller_one() -> None:
    shard = Shard(linear(10_000_000), 64_000)
    shard.run(20)
    assert shard.most_bytes == BOUND_BYTES


def test_it_follows_a_pace_that_changes_both_ways() -> None:
    shard = Shard(linear(400_000), 16_000)
    shard.run(20)
    shard.cost = linear(40_000)
    shard.run(60)
    assert shard.most_bytes == pytest.approx(10_000, rel=0.3)
    shard.cost = linear(400_000)
    shard.run(5)
    assert shard.most_bytes == pytest.approx(100_000, rel=0.3)


@pytest.mark.parametrize("fixed_s", [0.1, 0.25, 0.4, 2.0])
def test_a_shard_whose_batches_take_long_whatever_is_in_them_is_not_made_slow(fixed_s: float) -> None:
    """As when a service is asked once for each key: the fewer rows at once, the more often."""
    free = Shard(linear(1_000_000, fixed_s), is_limited=False)
    free.run(600)
    shard = Shard(linear(1_000_000, fixed_s))
    shard.run(600)
    assert shard.pace(300) > 0.6 * free.pace(1_800)


def test_a_small_fixed_part_leaves_it_its_bound_in_time() -> None:
    shard = Shard(linear(1_000_000, 0.02))
    shard.run(60)
    assert shard.most_bytes < 300_000


def test_what_keeps_up_has_none() -> None:
    shard = Shard(linear(1_000_000))
    shard.run(60, arriving_per_s=600_000)
    assert shard.limit.told_bytes is None


def test_it_ends_where_nothing_waits_any_more() -> None:
    shard = Shard(linear(100_000), 8_000)
    shard.run(20)
    assert shard.limit.told_bytes
    shard.run(20, arriving_per_s=20_000)
    assert shard.limit.told_bytes == 0


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_was_set_costs_it_for_a_short_time_only(hours: int) -> None:
    shard = Shard(linear(400_000), 16_000)
    shard.run(20)
    shard.now_us += hours * 3_600 * S
    shard.run(30)
    assert shard.most_bytes == pytest.approx(100_000, rel=0.3)


@pytest.mark.parametrize("fixed_s", [0.25, 0.3, 0.5])
def test_such_a_shard_takes_more_when_more_comes(fixed_s: float) -> None:
    """What keeps up with batches of a few rows has never seen how much faster it is with many."""
    shard = Shard(linear(1_000_000, fixed_s))
    for rate in (20_000, 50_000, 100_000, 200_000, 400_000):
        shard.run(60, arriving_per_s=rate)
    assert shard.pace(30) > 300_000


def test_a_shard_that_gets_a_smaller_part_of_its_task_keeps_a_limit() -> None:
    shard = Shard(linear(400_000), 16_000)
    shard.run(20)
    shard.cost = lambda size: 70_000 + size * 10
    shard.run(60)
    shard.cost = linear(100_000)
    shard.run(60)
    late = [wait_us for wait_us in shard.waits_us[-200:] if wait_us > S]
    assert not late
    assert shard.most_bytes < 60_000


def test_pieces_of_a_row_count_as_bytes_that_were_done() -> None:
    limit = InboxLimit()
    now_us = 1_000 * S
    for _ in range(40):
        limit.passed(90_000)
        limit.worked(now_us, now_us - 2 * S, 10_000)
        now_us += S // 10
    assert limit.told_bytes == pytest.approx(250_000, rel=0.3)
