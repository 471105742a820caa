"""Which batches rest on, and which are worked on again."""

from __future__ import annotations

from penstock.store.port import Entry, FetchedShard
from penstock_worker.stages.work import Rest
from penstock_worker.task.resting_shards import RestingShards


def batch(shard: str, *payloads: bytes) -> FetchedShard:
    return FetchedShard(shard, 1, 0, tuple(Entry(n, 0, payload) for n, payload in enumerate(payloads, 1)))


def names(batches: list[FetchedShard]) -> list[str]:
    return [of.shard for of in batches]


def test_a_batch_rests_until_its_time() -> None:
    resting = RestingShards()
    resting.add(batch("a"), Rest(500))
    resting.add(batch("b"), Rest(300))
    assert resting.first_due_us() == 300
    assert resting.take_due(299, told=False) == []
    assert names(resting.take_due(300, told=False)) == ["b"]
    assert (resting.first_due_us(), "b" in resting, "a" in resting) == (500, False, True)


def test_news_wakes_those_that_wait_for_it_alone() -> None:
    resting = RestingShards()
    resting.add(batch("for room"), Rest(500, for_outbox=True))
    resting.add(batch("for news"), Rest(500, for_news=True))
    assert resting.take_due(0, told=False) == []
    assert names(resting.take_due(0, told=True)) == ["for news"]


def test_what_is_handed_out_for_its_timers_waits_for_rows_that_rest() -> None:
    resting = RestingShards()
    assert resting.gives_way("elsewhere")
    resting.add(batch("rows", b"x"), Rest(500))
    resting.add(batch("timers"), Rest(500))
    assert not resting.gives_way("rows")
    assert "rows" in resting
    assert resting.gives_way("timers")
    assert "timers" not in resting
    resting.forget("rows")
    assert not resting
