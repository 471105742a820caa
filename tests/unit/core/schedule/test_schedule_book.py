"""The schedule book: who gives versions, marks births and puts remote tasks in, for whoever decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from penstock.schedule.book import ScheduleBook
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.schedule.remote import Remote, remote_of, with_remote


def schedule(
    operator: str, tasks: int = 1, version: int = 7, fresh_since: int = 0, stores: Sequence[StorePlace] = ()
) -> OperatorSchedule:
    """One executor of two shards in one worker."""
    return OperatorSchedule(
        operator=operator,
        version=version,
        term=2,
        workers=(WorkerPlace("w0", "n0", "n0", "uid"),),
        executors=(ExecutorPlace(f"{operator}-w0", "w0", tasks),),
        shards={f"{operator}/{n}": ShardPlace(f"{operator}-w0", "n0", fresh_since) for n in range(2)},
        stores=tuple(stores),
    )


def with_tasks(old: OperatorSchedule, tasks: int) -> OperatorSchedule:
    return replace(old, executors=tuple(replace(executor, tasks=tasks) for executor in old.executors))


def sent_to(old: OperatorSchedule, store: str) -> OperatorSchedule:
    """All its shards are at home there."""
    return replace(old, shards={shard: replace(place, home=store) for shard, place in old.shards.items()})


A, B = schedule("a"), schedule("b", tasks=3, version=4)
BOOK = ScheduleBook({"a": A, "b": B}, {"b-w0": (("n1", 1),)})


def test_what_changes_gets_the_next_version_and_what_does_not_is_not_written() -> None:
    written = BOOK.written([with_tasks(A, 2), B])
    assert [(one.operator, one.version, one.tasks) for one in written.schedules] == [("a", 8, 2)]
    assert written.book.schedules == {"a": replace(with_tasks(A, 2), version=8), "b": B}
    assert not BOOK.written([A, B]).schedules


def test_whatever_changes_at_once_is_one_version() -> None:
    change = replace(with_tasks(A, 2), shards={"a/0": A.shards["a/0"]})
    written = BOOK.written([change], anew=["a", "b"], place=lambda *_: {"a-w0": (("n1", 1),)})
    assert [(one.operator, one.version) for one in written.schedules] == [("a", 8), ("b", 5)]


@pytest.mark.parametrize("version", [6, 8, 0])
def test_a_change_that_was_worked_out_from_another_version_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="and 7 stands"):
        BOOK.written([replace(with_tasks(A, 2), version=version)])


def test_first_schedules_go_on_from_what_stores_have_seen_before() -> None:
    (first,) = BOOK.written([schedule("c", version=0)], term=3).schedules
    assert (first.version, first.term) == (1, 3)
    later = ScheduleBook({}, version_before=41).written([schedule("c", version=0), schedule("d", version=0)])
    assert {one.operator: one.version for one in later.schedules} == {"c": 42, "d": 42}
    assert later.book.is_current(with_tasks(later.book.schedules["c"], 2))
    with pytest.raises(ValueError, match="none stands"):
        BOOK.written([schedule("c", version=1)])


def test_what_is_to_be_written_anew_gets_a_version_although_nothing_differs() -> None:
    written = BOOK.written([], anew=["b"], term=9)
    assert written.schedules == (replace(with_remote(B, BOOK.remote), version=5, term=9),)
    assert written.book.schedules["a"] is A


def test_a_change_worked_out_from_an_older_schedule_is_not_current() -> None:
    change = with_tasks(A, 2)
    assert BOOK.is_current(change)
    after = BOOK.written([change]).book
    assert not after.is_current(with_tasks(A, 3))
    assert not after.is_current(schedule("c"))


def test_who_writes_gives_its_own_term_so_that_one_that_leads_no_more_is_refused() -> None:
    (later,) = BOOK.written([with_tasks(A, 2)], term=5).schedules
    (earlier,) = BOOK.written([with_tasks(A, 2)], term=1).schedules
    assert (later.term, earlier.term) == (5, 1)


STORES = (StorePlace("n0", "n0", "n0:6379"), StorePlace("n1", "n1", "n1:6379"))


def test_shards_are_there_since_the_version_that_is_the_first_to_name_them() -> None:
    first = ScheduleBook({}, version_before=3).written([schedule("a", version=0, stores=STORES)]).book
    assert {place.fresh_since for place in first.schedules["a"].shards.values()} == {4}
    old = first.schedules["a"]
    more = replace(old, shards={**old.shards, "a/2": ShardPlace("a-w0", "n1")})
    (written,) = first.written([more]).schedules
    assert {shard: place.fresh_since for shard, place in written.shards.items()} == {
        "a/0": 4, "a/1": 4, "a/2": 5,
    }  # fmt: skip
    assert [shard for shard, place in written.shards.items() if place.is_added] == ["a/2"]
    assert not any(place.is_added for place in old.shards.values())


def test_a_shard_is_one_that_was_added_until_it_is_made_and_a_first_one_never_is() -> None:
    """Though a first one may be made later than its neighbours, by another store."""
    old = ScheduleBook({}).written([schedule("a", version=0, stores=STORES)]).schedules[0]
    shards = {"a/0": old.shards["a/0"], "a/1": replace(old.shards["a/1"], home="n1")}
    first = replace(old, shards=shards)
    more = replace(first, shards={**shards, "a/2": ShardPlace("a-w0", "n1")})
    (grown,) = ScheduleBook({"a": first}, applied={"a": {"n0": 1}}).written([more]).schedules
    assert [(place.fresh_since, place.is_added) for place in grown.shards.values()] == [
        (0, False), (1, False), (2, True),
    ]  # fmt: skip
    other = replace(grown, term=7)
    (waiting,) = ScheduleBook({"a": grown}, applied={"a": {"n0": 2, "n1": 1}}).written([other]).schedules
    assert [(p.fresh_since, p.is_added) for p in waiting.shards.values()] == [(0, False)] * 2 + [(2, True)]
    (made,) = ScheduleBook({"a": grown}, applied={"a": {"n0": 2, "n1": 2}}).written([other]).schedules
    assert [(p.fresh_since, p.is_added) for p in made.shards.values()] == [(0, False)] * 3


def test_a_shard_that_lives_once_more_is_there_since_that_version_and_was_not_added() -> None:
    old = schedule("a", stores=STORES)
    again = replace(old.shards["a/1"], home="n1", life=1)
    change = replace(old, shards={**old.shards, "a/1": again})
    book = ScheduleBook({"a": old}, applied={"a": {"n0": old.version, "n1": old.version}})
    written = book.written([change])
    assert [(p.fresh_since, p.is_added, p.life) for p in written.schedules[0].shards.values()] == [
        (0, False, 0), (old.version + 1, False, 1),
    ]  # fmt: skip
    assert written.book.unborn(["a"]) == {"a/1"}
    made = replace(written.book, applied={"a": {"n1": old.version + 1}})
    (later,) = made.written([with_tasks(written.book.schedules["a"], 2)]).schedules
    assert [(p.fresh_since, p.life) for p in later.shards.values()] == [(0, 0), (0, 1)]


def test_without_stores_that_make_them_shards_are_there_already() -> None:
    (written,) = ScheduleBook({}).written([schedule("a", version=0)]).schedules
    assert {place.fresh_since for place in written.shards.values()} == {0}


def test_a_shard_that_moves_was_made_by_the_home_that_it_leaves() -> None:
    fresh = schedule("a", fresh_since=6, stores=STORES)
    shards = {shard: replace(place, home="n1") for shard, place in fresh.shards.items()}
    book = ScheduleBook({"a": fresh}, applied={"a": {"n0": 6}})
    (written,) = book.written([replace(fresh, shards=shards)]).schedules
    assert {place.fresh_since for place in written.shards.values()} == {0}, "its new home must make no other"
    unborn = ScheduleBook({"a": fresh}, applied={"a": {"n1": 6}})
    (waiting,) = unborn.written([replace(fresh, shards=shards)]).schedules
    assert {place.fresh_since for place in waiting.shards.values()} == {6}


def test_shards_are_unborn_until_their_home_has_applied_the_version_that_names_them_first() -> None:
    fresh = {"a": schedule("a", fresh_since=6), "b": B}
    assert ScheduleBook(fresh, applied={"a": {"n0": 5}, "b": {"n0": 0}}).unborn(["a", "b", "c"]) == {
        "a/0", "a/1",
    }  # fmt: skip
    assert not ScheduleBook(fresh, applied={"a": {"n0": 6}, "b": {"n0": 0}}).unborn(["a", "b"])
    assert ScheduleBook(fresh).unborn(["b"]) == {"b/0", "b/1"}, "nobody has said that they are there"


def test_a_shard_that_its_home_has_made_is_marked_in_the_next_version_and_in_no_version_of_its_own() -> None:
    fresh = schedule("a", fresh_since=6)
    book = ScheduleBook({"a": fresh}, applied={"a": {"n0": 6}})
    assert not book.written([fresh]).schedules
    (written,) = book.written([with_tasks(fresh, 2)]).schedules
    assert {place.fresh_since for place in written.shards.values()} == {0}
    unborn = ScheduleBook({"a": fresh}, applied={"a": {"n0": 5}})
    (waiting,) = unborn.written([with_tasks(fresh, 2)]).schedules
    assert {place.fresh_since for place in waiting.shards.values()} == {6}


def test_a_shard_that_its_home_has_made_is_born_wherever_it_goes_and_is_not_made_again_there() -> None:
    fresh = schedule("a", fresh_since=6)
    book = ScheduleBook({"a": fresh}, applied={"a": {"n0": 6}})
    (written,) = book.written([sent_to(fresh, "n1")]).schedules
    assert {(place.home, place.fresh_since) for place in written.shards.values()} == {("n1", 0)}


def test_a_shard_that_nobody_has_made_is_not_born_because_another_store_has_applied_the_version() -> None:
    fresh = schedule("a", fresh_since=6)
    book = ScheduleBook({"a": fresh}, applied={"a": {"n1": 6}})
    assert book.unborn(["a"]) == fresh.shards.keys()
    (written,) = book.written([sent_to(fresh, "n1")]).schedules
    assert {place.fresh_since for place in written.shards.values()} == {6}


def test_remote_tasks_stay_where_they_are_as_far_as_there_are_tasks_where_nobody_says_otherwise() -> None:
    (more,) = BOOK.written([with_tasks(B, 4)]).schedules
    assert more.executors[0].remote == (("n1", 1),)
    (one,) = BOOK.written([with_tasks(B, 1)]).schedules
    assert one.executors[0].remote == ()
    (other,) = BOOK.written([with_tasks(A, 2)]).schedules
    assert other.operator == "a"


def test_where_tasks_are_placed_anew_schedules_are_written_for_that_alone_after_those_that_changed() -> None:
    def place(schedules: Iterable[OperatorSchedule], before: Remote) -> Remote:
        assert before == BOOK.remote
        assert {one.operator: one.tasks for one in schedules} == {"a": 2, "b": 3}
        return {"b-w0": (("n1", 2),)}

    written = BOOK.written([with_tasks(A, 2)], place=place)
    assert [(one.operator, one.version) for one in written.schedules] == [("a", 8), ("b", 5)]
    assert remote_of(written.schedules) == written.book.remote == {"b-w0": (("n1", 2),)}
    assert all(with_remote(one, {}) == one for one in written.book.schedules.values())
    assert not written.book.written([], place=lambda *_: {"b-w0": (("n1", 2),)}).schedules


def test_first_schedules_go_out_with_the_remote_tasks_that_they_are_given() -> None:
    first = [schedule("a", version=0), schedule("b", tasks=3, version=0)]
    written = ScheduleBook({}).written(first, place=lambda *_: BOOK.remote)
    assert [(one.operator, one.version) for one in written.schedules] == [("a", 1), ("b", 1)]
    assert remote_of(written.schedules) == written.book.remote == BOOK.remote
