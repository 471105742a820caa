"""A policy's samples, from what a store counts and what tasks tell of it."""

from __future__ import annotations

from msgspec import structs

from penstock.control.samples.sampling import ShardSampler
from penstock.control.snapshot import ShardSample
from penstock.metrics.rows import ShardRow
from penstock.store.port import ShardCounters

SHARD = "count/0"


def counters(arrived: int, completed: int, epoch: int = 1, generation: int = 1) -> ShardCounters:
    return ShardCounters(epoch, generation, completed, arrived, completed, 0, 0, 0, 0, "a", finished=False)


def row(rows: int, epoch: int = 1, generation: int = 1) -> ShardRow:
    return ShardRow(epoch, generation, 0, rows, busy_us=rows * 10, waited_us=rows * 5, served_us=rows * 20)


def sample(sampler: ShardSampler, known: ShardCounters | None, told: ShardRow | None) -> ShardSample | None:
    return sampler.take({SHARD: known}, {} if told is None else {SHARD: told})[SHARD]


def test_completed_is_what_the_tasks_sums_account_for() -> None:
    sampler = ShardSampler()
    assert sample(sampler, counters(10, 8), row(8)) == ShardSample(10, 8, 40, 160, 80, writer=(1, 1))
    # Three more were committed; the task has told of one of them.
    assert sample(sampler, counters(12, 11), row(9)) == ShardSample(12, 9, 45, 180, 90, writer=(1, 1))


def test_rows_from_before_the_owner_came_count_as_completed() -> None:
    sampler = ShardSampler()
    first = sample(sampler, counters(110, 104, epoch=2), row(4, epoch=2))
    assert first is not None
    assert first.completed == 104


def test_what_was_complete_before_a_writer_is_found_once_its_rows_are_in_step() -> None:
    sampler = ShardSampler()
    # Two rows are committed and not told yet: the first look takes them for earlier ones.
    late = sample(sampler, counters(20, 14, epoch=2), row(2, epoch=2))
    in_step = sample(sampler, counters(20, 14, epoch=2), row(4, epoch=2))
    assert late is not None
    assert in_step is not None
    assert (late.completed, in_step.completed) == (14, 14)


def test_the_sums_of_an_old_owner_say_nothing_of_a_new_one() -> None:
    sampler = ShardSampler()
    sample(sampler, counters(10, 8), row(8))
    assert sample(sampler, counters(12, 9, epoch=2), row(8)) == ShardSample(12, 9, writer=(1, 2))


def test_the_sums_of_another_generation_of_the_store_say_nothing() -> None:
    known = structs.replace(counters(12, 9), generation=2)
    assert sample(ShardSampler(), known, row(8)) == ShardSample(12, 9, writer=(2, 1))


def test_a_shard_that_the_store_does_not_know_has_no_sample() -> None:
    assert sample(ShardSampler(), None, row(8)) is None
