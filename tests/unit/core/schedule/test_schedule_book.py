"""The schedule book: who gives versions, marks births and puts remote tasks in, for whoever decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.schedule.book import ScheduleBook
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.schedule.remote import Remote, remote_of, with_remote


def schedule(operator: str, tasks: int = 1, version: int = 7, fresh_since: int = 0) -> OperatorSchedule:
    """One executor of two shards in one worker."""
    return OperatorSchedule(
        operator=operator,
        version=version,
        term=2,
        workers=(WorkerPlace("w0", "n0", "n0", "uid"),),
        executors=(ExecutorPlace(f"{operator}-w0", "w0", tasks),),
        shards={f"{operator}/{n}": ShardPlace(f"{operator}-w0", "n0", fresh_since) for n in range(2)},
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


def test_a_change_that_has_a_later_version_already_keeps_it() -> None:
    (written,) = BOOK.written([replace(with_tasks(A, 2), version=11)]).schedules
    assert written.version == 11


def test_a_change_worked_out_from_an_older_schedule_is_not_current() -> None:
    change = with_tasks(A, 2)
    assert BOOK.is_current(change)
    after = BOOK.written([change]).book
    assert not after.is_current(with_tasks(A, 3))
    assert not after.is_current(schedule("c"))


def test_who_writes_gives_its_term_and_no_schedule_goes_back_to_an_earlier_one() -> None:
    (later,) = BOOK.written([with_tasks(A, 2)], term=5).schedules
    (earlier,) = BOOK.written([with_tasks(A, 2)], term=1).schedules
    assert (later.term, earlier.term) == (5, 2)


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
    assert book.moves_unborn(sent_to(fresh, "n1"))
    assert not book.moves_unborn(with_tasks(fresh, 2))
    assert not replace(book, applied={"a": {"n0": 6}}).moves_unborn(sent_to(fresh, "n1"))
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


def test_schedules_that_nobody_has_seen_go_out_as_they_stand_with_their_remote_tasks() -> None:
    written = BOOK.opened()
    assert [(one.operator, one.version) for one in written.schedules] == [("a", 7), ("b", 4)]
    assert remote_of(written.schedules) == BOOK.remote
