"""Who runs executors: whole groups of workers go in, hosts and who is made and ended come out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.supervision.hosts import Group, Hosts, choose_hosts
from penstock.supervision.numbers import MakeWorker, workers_to_end, workers_to_make
from penstock.supervision.worker import Holding, Worker, WorkerState

TWO = Group("", hosts_wanted=2, spares=0)
TWO_AND_A_SPARE = replace(TWO, spares=1)
HELD = Holding(executors=1, shards=4, tasks=1)


def worker(number: int, state: WorkerState = WorkerState.READY, *, node: str = "", shards: int = 4) -> Worker:
    """Holds executors unless it has no shards."""
    holding = replace(HELD, shards=shards) if shards else Holding()
    return Worker(f"w{number}", number, state, f"u{number}", node, holding=holding)


def idle(number: int, *, node: str = "") -> Worker:
    return worker(number, node=node, shards=0)


def gone(number: int, *, may_start: bool = True, shards: int = 0) -> Worker:
    """No start of it is there."""
    return replace(worker(number, WorkerState.DEAD, shards=shards), uid="", may_start=may_start)


@dataclass(frozen=True)
class Decided:
    """By name."""

    active: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    reason: str = ""


def hosts_of(group: Group, *workers: Worker, may_change: bool = True, has_room: bool = True) -> Hosts:
    return choose_hosts(group, workers, may_change=may_change, has_room=has_room)


def decided(group: Group, *workers: Worker, may_change: bool = True, has_room: bool = True) -> Decided:
    hosts = hosts_of(group, *workers, may_change=may_change, has_room=has_room)
    active, pinned, leaving = (
        tuple(one.name for one in some) for some in (hosts.active, hosts.pinned, hosts.leaving)
    )
    return Decided(active, pinned, leaving, hosts.reason)


def made(group: Group, *workers: Worker, at_once: int | None = None) -> list[MakeWorker]:
    return list(workers_to_make(group, workers, "w{}".format, at_once=at_once))


def ended(group: Group, *workers: Worker, kept: tuple[str, ...] = (), is_settled: bool = True) -> list[str]:
    return [one.worker.name for one in workers_to_end(group, workers, kept, is_settled=is_settled)]


# --- who hosts ----------------------------------------------------------------------------------------


def test_where_all_is_well_nothing_is_done() -> None:
    assert decided(TWO, worker(0), worker(1)) == Decided(("w0", "w1"))
    assert made(TWO, worker(0), worker(1)) == []
    assert ended(TWO, worker(0), worker(1)) == []


def test_what_a_dead_worker_held_goes_to_the_living_at_once_whatever_else_is_under_way() -> None:
    dead = worker(1, WorkerState.DEAD)
    hosts = hosts_of(TWO_AND_A_SPARE, worker(0), dead, idle(2), may_change=False)
    assert (hosts.active, hosts.leaving, hosts.is_urgent) == ((worker(0),), (dead,), True)


def test_a_spare_takes_on_what_nobody_living_can() -> None:
    assert decided(TWO, worker(0, WorkerState.DEAD), idle(2)) == Decided(("w2",), (), ("w0",), "WorkerLost")


def test_no_more_spares_take_on_what_waits_than_are_wanted() -> None:
    one = Group("", hosts_wanted=1, spares=2)
    assert decided(one, worker(0, WorkerState.DEAD), idle(1), idle(2)).active == ("w1",)
    assert decided(TWO, worker(0, WorkerState.DEAD), idle(1), idle(2)).active == ("w1", "w2")


def test_where_nobody_can_take_it_on_the_work_of_the_dead_waits() -> None:
    alone = decided(TWO, worker(0, WorkerState.DEAD), worker(1, WorkerState.STARTING))
    assert alone == Decided((), ("w1", "w0"), (), "WorkersMissing")


def test_a_worker_that_starts_or_is_away_keeps_what_it_has_and_is_given_nothing() -> None:
    for state in (WorkerState.STARTING, WorkerState.AWAY):
        assert decided(TWO, worker(0), worker(1, state), idle(2)) == Decided(("w0",), ("w1",))


def test_a_spare_takes_the_share_of_one_that_is_missing_and_the_missing_one_is_the_spare_afterwards() -> None:
    taken = decided(TWO_AND_A_SPARE, worker(0, shards=8), gone(1), idle(2))
    assert taken == Decided(("w0", "w2"), reason="ScalingOut")
    back = decided(TWO_AND_A_SPARE, worker(0), idle(1), worker(2))
    assert back == Decided(("w0", "w2"))


def test_while_something_is_under_way_nobody_takes_or_gives() -> None:
    assert decided(TWO, worker(0), idle(1), may_change=False) == Decided((), ("w0",))


def test_of_too_many_the_one_that_holds_least_hands_over() -> None:
    found = decided(TWO, worker(0, shards=5), worker(1, shards=2), worker(2, shards=3))
    assert found == Decided(("w0", "w2"), (), ("w1",), "ScalingIn")


def test_the_last_one_that_works_never_hands_over_to_those_that_do_not() -> None:
    one = Group("", hosts_wanted=1, spares=0)
    assert decided(one, worker(0), worker(1, WorkerState.STARTING)) == Decided(("w0",), ("w1",))


def test_one_that_must_go_leaves_when_another_one_is_ready_on_its_node_if_there_is_one() -> None:
    old = replace(worker(0, node="a"), is_current=False)
    there = (old, worker(1, node="b"))
    assert decided(TWO, *there) == Decided(("w0", "w1"), reason="RollingTemplate")
    found = decided(TWO, *there, idle(2, node="b"), idle(3, node="a"))
    assert found == Decided(("w1", "w3"), (), ("w0",), "RollingTemplate")


def test_without_room_for_another_one_the_others_take_its_work_but_not_for_cores_alone() -> None:
    cordoned = replace(worker(0), is_cordoned=True)
    assert decided(TWO, cordoned, worker(1), has_room=False).leaving == ("w0",)
    lacking = replace(worker(0), lacks_cores=True)
    assert decided(TWO, lacking, worker(1), has_room=False) == Decided(("w0", "w1"), reason="NoCores")


# --- who is made and who leaves -----------------------------------------------------------------------


def test_a_worker_that_is_gone_is_made_again_by_its_own_name_before_new_ones() -> None:
    three = replace(TWO, hosts_wanted=3)
    orders = made(three, worker(0), replace(gone(1), node="a"))
    assert orders == [MakeWorker("w1", "a"), MakeWorker("w2")]


def test_one_whose_next_start_has_yet_to_come_is_waited_for() -> None:
    assert made(TWO, worker(0), gone(1, may_start=False)) == []
    assert made(TWO, worker(0), gone(1)) == [MakeWorker("w1")]
    three = replace(TWO, hosts_wanted=3)
    assert made(three, worker(0), gone(1, may_start=False)) == [MakeWorker("w2")]


def test_of_those_that_nothing_waits_for_as_many_start_at_once_as_are_allowed() -> None:
    group = Group("", hosts_wanted=1, spares=3)
    starting = worker(1, WorkerState.STARTING, shards=0)
    assert made(group, worker(0), starting, at_once=1) == []
    assert [one.name for one in made(group, worker(0), starting)] == ["w2", "w3"]
    assert made(group, worker(0), idle(1), at_once=1) == [MakeWorker("w2", is_spare=True)]


def test_a_worker_away_with_its_work_counts_and_one_away_without_does_not() -> None:
    away = worker(1, WorkerState.AWAY)
    assert made(TWO, worker(0), replace(away, uid="")) == []
    assert made(TWO, worker(0), replace(away, is_cordoned=True)) == []


def test_one_more_than_wanted_is_made_for_one_that_must_go_and_no_second_one() -> None:
    old = [replace(worker(number), is_current=False) for number in range(2)]
    assert made(TWO, *old) == [MakeWorker("w2")]
    assert made(TWO, *old, worker(2, WorkerState.STARTING, shards=0)) == []


def test_who_holds_something_never_leaves_and_of_the_idle_those_that_are_not_up_leave_first() -> None:
    one = Group("", hosts_wanted=1, spares=0)
    assert ended(one, worker(0), worker(1)) == []
    starting = worker(1, WorkerState.STARTING, shards=0)
    assert ended(replace(one, spares=1), worker(0), starting, idle(2)) == ["w1"]
    assert ended(one, worker(0), idle(1), idle(2)) == ["w2", "w1"]
    assert ended(one, worker(0), idle(1), idle(2), kept=("w1", "w2")) == []


def test_what_has_ended_is_cleared_away_though_nothing_is_settled() -> None:
    evicted = replace(worker(1, WorkerState.DEAD), ending="it has ended: Evicted")
    assert ended(TWO, worker(0), evicted, idle(2), is_settled=False) == ["w1"]
    assert ended(TWO, worker(0), replace(evicted, is_told_to_go=True), is_settled=False) == []
