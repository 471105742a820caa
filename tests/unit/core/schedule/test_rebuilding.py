"""A schedule made again from what stores know of it."""

from __future__ import annotations

from penstock.schedule.book import ScheduleBook
from penstock.schedule.rebuilding import Kept, rebuilt
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace


def schedule(version: int, term: int = 1, **homes: tuple[str, int]) -> OperatorSchedule:
    """`homes`: shard's part -> (store, fresh since)."""
    return OperatorSchedule(
        operator="count",
        version=version,
        term=term,
        workers=(WorkerPlace("w0", "a", "a", "u"),),
        executors=(ExecutorPlace("e0", "w0", 1),),
        shards={f"count/{part}": ShardPlace("e0", *place) for part, place in homes.items()},
        stores=(StorePlace("a", "a", "a:1"), StorePlace("b", "b", "b:1")),
    )


def test_the_newest_that_a_store_keeps_counts() -> None:
    found = rebuilt({"a": Kept(schedule(3, x=("b", 0)), 3), "b": Kept(schedule(2, x=("a", 0)), 2)})
    assert found is not None
    assert (found.schedule.version, found.seen, found.keepers) == (3, 3, ("a",))
    assert found.schedule.shards["count/x"].home == "b"
    assert found.applied == {"a": 3, "b": 2}


def test_what_is_written_is_newer_than_what_any_store_has_seen() -> None:
    """A store may have written its maps and died before it kept what it wrote."""
    found = rebuilt({"a": Kept(schedule(3, x=("a", 0)), 4), "b": Kept(None, 5)})
    assert found is not None
    assert (found.schedule.version, found.seen) == (3, 5)
    assert found.applied == {"a": 3}
    book = ScheduleBook({"count": found.schedule}, seen_by_stores={"count": found.seen})
    (written,) = book.written((), anew=["count"], term=2).schedules
    assert (written.version, written.term) == (6, 2)


def test_every_shard_counts_as_born_but_for_one_whose_home_knows_a_time_before() -> None:
    newest = schedule(3, old=("a", 0), here=("a", 3), late=("b", 3))
    found = rebuilt({"a": Kept(newest, 3), "b": Kept(schedule(2, old=("a", 0)), 2)})
    assert found is not None
    fresh = {shard: place.fresh_since for shard, place in found.schedule.shards.items()}
    assert fresh == {"count/old": 0, "count/here": 0, "count/late": 3}


def test_a_shard_whose_home_keeps_nothing_was_born_there_and_is_not_made_anew() -> None:
    """A store that lost what it kept lost the state that lay beside it."""
    found = rebuilt({"a": Kept(schedule(1, x=("b", 1)), 1), "b": Kept()})
    assert found is not None
    assert found.schedule.shards["count/x"].fresh_since == 0


def test_what_no_store_keeps_cannot_be_rebuilt() -> None:
    assert rebuilt({}) is None
    assert rebuilt({"a": Kept(), "b": Kept(None, 7)}) is None
