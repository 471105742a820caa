"""What a worker has counted never gets less, whatever comes and goes."""

from __future__ import annotations

from penstock.store.codec import encode_counts
from penstock.store.port import ShardCounters
from penstock_worker.main_process.worker_counts import Counts, WorkerCounts, WorkerReading


def shard(rows: int, *, epoch: int = 1, generation: int = 1, **out: int) -> ShardCounters:
    """One that has completed all but one of the rows that arrived, and put `out` out."""
    return ShardCounters(
        epoch,
        generation,
        1,
        rows + 1,
        rows,
        1,
        9,
        0,
        0,
        "count-w0",
        finished=False,
        counts=encode_counts(out),
    )


def read(counts: WorkerCounts, **shards: ShardCounters) -> tuple[int, int]:
    """(arrived, completed) after a reading."""
    counted = counts.read(WorkerReading((), {"count": shards}))
    return counted.arrived["count"], counted.completed["count"]


def out(counts: WorkerCounts, **shards: ShardCounters) -> dict[str, int]:
    return dict(counts.read(WorkerReading((), {"count": shards})).out)


def test_a_shard_that_moves_away_takes_nothing_with_it() -> None:
    counts = WorkerCounts()
    assert read(counts, a=shard(10), b=shard(5)) == (17, 15)
    assert read(counts, b=shard(7)) == (19, 17)
    assert counts.read(WorkerReading((), {})) == Counts({"count": 19}, {"count": 17}, {}, {}, {})


def test_what_a_shard_had_before_it_came_was_counted_by_others() -> None:
    counts = WorkerCounts()
    assert read(counts, a=shard(1000, epoch=4)) == (0, 0)
    assert read(counts, a=shard(1003, epoch=5)) == (3, 3)


def test_a_shard_that_was_away_brings_nothing_of_that_time() -> None:
    counts = WorkerCounts()
    read(counts, a=shard(10))
    read(counts)
    assert read(counts, a=shard(500, epoch=3)) == (11, 10)
    assert read(counts, a=shard(501, epoch=3)) == (12, 11)


def test_a_difference_across_generations_is_missing() -> None:
    counts = WorkerCounts()
    read(counts, a=shard(10))
    assert read(counts, a=shard(4, generation=2)) == (11, 10)
    assert read(counts, a=shard(6, generation=2)) == (13, 12)
    assert read(counts, a=shard(90, generation=3)) == (13, 12)


def test_what_came_out_is_counted_as_it_was_committed() -> None:
    counts = WorkerCounts()
    assert out(counts, a=shard(9, totals=60), b=shard(9, totals=40)) == {"totals": 100}
    assert out(counts, a=shard(9, epoch=2, totals=61), b=shard(9, totals=45, words=2)) == {
        "totals": 106,
        "words": 2,
    }


def test_what_came_out_of_a_shard_before_it_came_or_in_another_generation_is_missing() -> None:
    counts = WorkerCounts()
    assert out(counts, a=shard(9, epoch=4, totals=1000)) == {"totals": 0}
    assert out(counts, a=shard(9, epoch=4, totals=1003)) == {"totals": 3}
    assert out(counts, a=shard(9, epoch=4, generation=2, totals=900)) == {"totals": 3}
    assert out(counts) == {"totals": 3}


def test_late_rows_are_counted_apart_from_what_came_out_and_stay_when_their_shard_goes() -> None:
    counts = WorkerCounts()
    shards = {"count": {"a": shard(9, **{"count": 5, "count/late": 2}), "b": shard(9, **{"count/late": 1})}}
    counted = counts.read(WorkerReading((), shards))
    assert (counted.out, counted.late) == ({"count": 5}, {"count": 3})
    assert counts.read(WorkerReading((), {})).late == {"count": 3}
