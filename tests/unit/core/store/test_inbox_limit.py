"""An inbox is bounded by what its shard works off in a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from penstock.store.inbox_limit import TARGET_US, InboxLimit

BOUND_BYTES = 1 << 20
ENTRY_BYTES = 2_000
FETCH_US = 8_000
"""What a task fetches is worked on for so long, or is one entry (`task.batch_size`)."""
S = 1_000_000
TARGET_S = TARGET_US / S
Cost = Callable[[int], float]
"""Bytes of a batch -> how long it is worked on (us)."""


def linear(bytes_per_s: float, fixed_s: float = 0.0) -> Cost:
    return lambda size: fixed_s * S + size * S / bytes_per_s


@dataclass
class Shard:
    """An inbox that its producers fill again at each commit, as far as it may be filled."""

    cost: Cost
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
        Task([self]).run(seconds, arriving_per_s=arriving_per_s)

    def fill(self, due: float, arriving_per_s: float) -> float:
        """What is due since then, as far as there is room; answers when the next is."""
        while due <= self.now_us and (
            not self.inbox or (len(self.inbox) + 1) * ENTRY_BYTES <= self.most_bytes
        ):
            self.inbox.append(max(int(due), self.read_us))
            due = max(due, self.read_us) + ENTRY_BYTES * S / arriving_per_s
        return due

    def work(self) -> None:
        entries, largest = 1, len(self.inbox)
        while entries < largest:
            middle = (entries + largest + 1) // 2
            if self.cost(middle * ENTRY_BYTES) <= FETCH_US:
                entries = middle
            else:
                largest = middle - 1
        size_bytes, began_us, first_us = entries * ENTRY_BYTES, self.now_us, self.inbox[0]
        self.waits_us.append(began_us - first_us)
        self.batches.append((began_us, size_bytes))
        self.read_us = began_us + 1_000
        self.now_us += max(1, int(self.cost(size_bytes)))
        for _ in range(entries):
            self.inbox.popleft()
        if self.is_limited:
            self.limit.worked(began_us, first_us, size_bytes)
            self.limit.spent(self.now_us - began_us)

    def pace(self, last_s: float) -> float:
        """Bytes a second."""
        since_us = self.now_us - last_s * S
        return sum(size for began_us, size in self.batches if began_us >= since_us) / last_s


@dataclass
class Task:
    """Works a batch of each of its shards in turn, over and over."""

    shards: list[Shard]

    @classmethod
    def of(cls, shards: int, cost: Cost, *, is_limited: bool = True) -> Task:
        return cls([Shard(cost, is_limited=is_limited) for _ in range(shards)])

    def run(self, seconds: float, *, first: int | None = None, arriving_per_s: float = 1e12) -> None:
        """Rows come to the `first` shards only, to the first of them the most: as by Zipf's law."""
        shards = self.shards[:first]
        parts = sum(1 / rank for rank in range(1, len(shards) + 1))
        rates = [arriving_per_s / rank / parts for rank in range(1, len(shards) + 1)]
        now_us = max(shard.now_us for shard in self.shards)
        end_us = now_us + int(seconds * S)
        due = [float(now_us)] * len(shards)
        while now_us < end_us:
            began_us = now_us
            for at, shard in enumerate(shards):
                shard.now_us = now_us
                due[at] = shard.fill(due[at], rates[at])
                if shard.inbox:
                    shard.work()
                now_us = shard.now_us
            if now_us == began_us:
                now_us = int(min(due)) + 1
        for shard in self.shards:
            shard.now_us = now_us

    def pace(self, last_s: float) -> float:
        return sum(shard.pace(last_s) for shard in self.shards)

    def longest_s(self, last: int) -> float:
        """Of the last waits of each shard."""
        return max(max(shard.waits_us[-last:]) for shard in self.shards) / S


@pytest.mark.parametrize("bytes_per_s", [20_000, 200_000, 1_000_000])
def test_under_load_it_holds_what_is_worked_off_in_its_time(bytes_per_s: int) -> None:
    shard = Shard(linear(bytes_per_s))
    shard.run(120)
    assert shard.most_bytes == pytest.approx(bytes_per_s * TARGET_S, rel=0.3)


def test_one_that_works_off_its_whole_bound_in_less_has_no_smaller_one() -> None:
    shard = Shard(linear(10_000_000))
    shard.run(20)
    assert shard.most_bytes == BOUND_BYTES


def test_it_follows_a_pace_that_changes_both_ways() -> None:
    shard = Shard(linear(400_000))
    shard.run(20)
    shard.cost = linear(40_000)
    shard.run(60)
    assert shard.most_bytes == pytest.approx(40_000 * TARGET_S, rel=0.3)
    shard.cost = linear(400_000)
    shard.run(5)
    assert shard.most_bytes == pytest.approx(400_000 * TARGET_S, rel=0.3)


def test_what_keeps_up_has_none() -> None:
    shard = Shard(linear(1_000_000))
    shard.run(60, arriving_per_s=600_000)
    assert shard.limit.told_bytes is None


def test_it_ends_where_nothing_waits_any_more() -> None:
    shard = Shard(linear(100_000))
    shard.run(20)
    assert shard.limit.told_bytes
    shard.run(20, arriving_per_s=20_000)
    assert shard.limit.told_bytes == 0


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_was_set_costs_it_for_a_short_time_only(hours: int) -> None:
    shard = Shard(linear(400_000))
    shard.run(20)
    shard.now_us += hours * 3_600 * S
    shard.run(30)
    assert shard.most_bytes == pytest.approx(400_000 * TARGET_S, rel=0.3)


def test_pieces_of_a_row_count_as_bytes_that_were_done() -> None:
    limit = InboxLimit()
    now_us = 1_000 * S
    for _ in range(40):
        limit.passed(90_000)
        limit.worked(now_us, now_us - 2 * S, 10_000)
        limit.spent(S // 10)
        now_us += S // 10
    assert limit.told_bytes == pytest.approx(1_000_000 * TARGET_S, rel=0.3)


# --- several shards of a task


@pytest.mark.parametrize("shards", [1, 4, 16, 64])
@pytest.mark.parametrize("fixed_s", [0.0002, 0.002])
def test_all_shards_of_a_busy_task_have_a_limit(shards: int, fixed_s: float) -> None:
    """Each works off the less the more the others do, in batches of whatever size."""
    free = Task.of(shards, linear(1_000_000, fixed_s), is_limited=False)
    free.run(60)
    task = Task.of(shards, linear(1_000_000, fixed_s))
    task.run(240)
    assert task.longest_s(last=100) < 2 * TARGET_S
    assert task.pace(60) > 0.95 * free.pace(30)


def test_very_many_shards_wait_for_as_long_as_their_batches_take() -> None:
    free = Task.of(128, linear(1_000_000, 0.001), is_limited=False)
    free.run(30)
    task = Task.of(128, linear(1_000_000, 0.001))
    task.run(400)
    assert task.longest_s(last=10) < 2 * 128 * FETCH_US / S
    assert task.pace(60) > 0.9 * free.pace(30)


@pytest.mark.parametrize("shards", [1, 8, 16])
@pytest.mark.parametrize("fixed_s", [0.02, 0.25])
def test_a_task_whose_every_batch_takes_long_is_not_made_slow(shards: int, fixed_s: float) -> None:
    """It fetches an entry at a time, whatever there is."""
    paces = []
    for is_limited in (False, True):
        task = Task.of(shards, linear(1_000_000, fixed_s), is_limited=is_limited)
        task.run(300)
        paces.append(task.pace(150))
    assert paces[1] > 0.95 * paces[0]


@pytest.mark.parametrize(("shards", "fixed_s"), [(8, 0.0002), (8, 0.005), (16, 0.001), (16, 0.05)])
def test_nor_is_one_whose_shards_get_work_one_after_another(shards: int, fixed_s: float) -> None:
    """Each smaller batch of one is a small part of what the task works."""
    paces = []
    for is_limited in (False, True):
        task = Task.of(shards, linear(1_000_000, fixed_s), is_limited=is_limited)
        for first in range(1, shards + 1):
            task.run(10, first=first)
        task.run(600 if fixed_s > 0.01 else 60)
        paces.append(task.pace(60))
    assert paces[1] > 0.95 * paces[0]
    assert task.longest_s(last=20) < max(2 * TARGET_S, 3 * shards * fixed_s)


@pytest.mark.parametrize(
    ("shards", "fixed_s"), [(1, 0.0002), (4, 0.005), (64, 0.0002), (64, 0.002), (64, 0.005), (16, 0.05)]
)
def test_a_task_that_keeps_up_without_limits_keeps_up_with_them(shards: int, fixed_s: float) -> None:
    """Also where its busiest shard has a third of all rows."""
    rate = 0.0
    for is_limited in (False, True):
        task = Task.of(shards, linear(1_000_000, fixed_s), is_limited=is_limited)
        task.run(120, arriving_per_s=rate or 1e12)
        rate = rate or 0.9 * task.pace(60)
    free = Task.of(shards, linear(1_000_000, fixed_s), is_limited=False)
    free.run(120, arriving_per_s=rate)
    assert task.pace(60) > 0.97 * free.pace(60)


def test_a_shard_that_gets_a_smaller_part_of_its_task_keeps_a_limit() -> None:
    task = Task.of(2, linear(400_000))
    task.run(20, first=1)
    task.shards[1].cost = linear(20_000)
    task.run(60)
    late = [wait_us for wait_us in task.shards[0].waits_us[-200:] if wait_us > 3 * TARGET_US]
    assert not late
    assert 0 < (task.shards[0].limit.told_bytes or 0) < 60_000
