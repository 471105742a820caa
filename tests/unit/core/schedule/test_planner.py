"""Plans: from any schedules and any hosts to schedules that fit, at once and for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schedule.announcing import announce, announced_executors
from penstock.schedule.book import ScheduleBook
from penstock.schedule.hosts_and_wishes import Host, Manner, Wish
from penstock.schedule.naming import forget_stores
from penstock.schedule.planner import plan as plan_once
from penstock.schedule.record import (
    ExecutorPlace,
    OperatorSchedule,
    ShardPlace,
    StorePlace,
    WorkerPlace,
)

Schedules = Mapping[str, OperatorSchedule]


def store(node: str) -> StorePlace:
    return StorePlace(node, node, f"store-{node}:6379")


def host(name: str, node: str = "a", room: int = 4, *, pinned: bool = False, uid: str = "") -> Host:
    return Host(WorkerPlace(name, node, node, uid or f"uid-{name}"), store(node), room, pinned)


def wish(operator: str, shards: int = 8, tasks: int = 1, *, held: bool = False) -> Wish:
    return Wish(operator, tuple(f"{operator}/{part}" for part in range(shards)), tasks, held)


def plan(old: Schedules, wishes: Sequence[Wish], hosts: Sequence[Host], **more: object) -> Schedules:
    """As they stand once they are written."""
    planned = plan_once(old, wishes, hosts, **more)  # type: ignore[arg-type]
    new = written(old, planned)
    again = plan_once(new, wishes, hosts, **more)  # type: ignore[arg-type]
    assert all(again[name] is new[name] for name in planned), "the second look changes nothing"
    return {name: new[name] for name in planned}


def written(old: Schedules, planned: Schedules, term: int = 1) -> Schedules:
    return ScheduleBook(old).written(planned.values(), term=term).book.schedules


def tasks_of(schedule: OperatorSchedule) -> dict[str, int]:
    return {executor.worker: executor.tasks for executor in schedule.executors}


def shards_of(schedule: OperatorSchedule) -> dict[str, int]:
    return {executor.worker: len(schedule.shards_of(executor.name)) for executor in schedule.executors}


def moved(old: OperatorSchedule, new: OperatorSchedule) -> int:
    return sum(place.executor != new.shards[shard].executor for shard, place in old.shards.items())


def assert_homes_beside_executors(schedule: OperatorSchedule) -> None:
    node_of = {worker.name: worker.node for worker in schedule.workers}
    worker_of = {executor.name: executor.worker for executor in schedule.executors}
    for place in schedule.shards.values():
        assert place.home == node_of[worker_of[place.executor]]


def test_first_schedules_spread_tasks_over_hosts_and_shards_by_tasks() -> None:
    new = plan({}, [wish("read", 4, 2), wish("count", 9, 3)], [host("w0", "a"), host("w1", "b")])
    assert tasks_of(new["read"]) == {"w0": 1, "w1": 1}
    assert tasks_of(new["count"]) in ({"w0": 2, "w1": 1}, {"w0": 1, "w1": 2})
    assert sorted(shards_of(new["count"]).values()) == [3, 6]
    assert {place.fresh_since for place in new["count"].shards.values()} == {1}
    assert {s.id for s in new["count"].stores} == {"a", "b"}
    assert new["count"].version == 1
    for schedule in new.values():
        assert_homes_beside_executors(schedule)


def test_each_operator_has_a_task_even_without_room() -> None:
    new = plan({}, [wish(f"op{i}", 4, 2) for i in range(3)], [host("w0", room=2)])
    assert [schedule.tasks for schedule in new.values()] == [1, 1, 1]


def test_tasks_fill_the_room_in_turn() -> None:
    new = plan({}, [wish("a", 8, 8), wish("b", 8, 2)], [host("w0", room=4)])
    assert (new["a"].tasks, new["b"].tasks) == (2, 2)


def test_a_new_host_takes_its_share_and_no_shard_moves_without_need() -> None:
    old = plan({}, [wish("count", 8, 2)], [host("w0", "a")])
    new = plan(old, [wish("count", 8, 2)], [host("w0", "a"), host("w1", "b")])
    assert shards_of(new["count"]) == {"w0": 4, "w1": 4}
    assert moved(old["count"], new["count"]) == 4
    assert new["count"].version == 2
    assert {place.fresh_since for place in new["count"].shards.values()} == {1}, "unborn news stays"
    assert_homes_beside_executors(new["count"])


def test_a_host_that_goes_gives_only_its_own_and_its_store_stays_named_until_forgotten() -> None:
    hosts = [host("w0", "a"), host("w1", "b"), host("w2", "b")]
    old = plan({}, [wish("count", 9, 3)], hosts)
    new = plan(old, [wish("count", 9, 2)], hosts[1:])
    assert moved(old["count"], new["count"]) == 3
    assert {s.id for s in new["count"].stores} == {"a", "b"}
    assert [w.name for w in new["count"].workers] == ["w1", "w2"]
    forgotten = forget_stores(new["count"])
    assert {s.id for s in forgotten.stores} == {"b"}
    assert replace(forgotten, stores=new["count"].stores) == new["count"]
    assert forget_stores(forgotten) is forgotten


def test_shards_of_a_dead_worker_stay_on_their_node_where_they_can() -> None:
    hosts = [host("w0", "a"), host("w1", "a"), host("w2", "b"), host("w3", "b")]
    old = plan({}, [wish("count", 16, 4)], hosts)
    new = plan(old, [wish("count", 16, 3)], [hosts[0], *hosts[2:]])
    homes = {shard: place.home for shard, place in old["count"].shards.items()}
    stayed = sum(place.home == homes[shard] for shard, place in new["count"].shards.items())
    assert stayed == 14


def test_a_pinned_host_keeps_everything_and_the_rest_goes_on_around_it() -> None:
    hosts = [host("w0", "a"), host("w1", "b"), host("w2", "b")]
    old = plan({}, [wish("count", 9, 3)], hosts)
    lost = [host("w0", "a", pinned=True, uid="uid-w0"), hosts[1]]
    new = plan(old, [wish("count", 9, 3)], lost)
    assert new["count"].shards_of("count-w0") == old["count"].shards_of("count-w0")
    assert tasks_of(new["count"]) == {"w0": 1, "w1": 2}
    assert shards_of(new["count"]) == {"w0": 3, "w1": 6}


def test_with_only_pinned_hosts_just_uids_are_renewed() -> None:
    old = plan({}, [wish("count", 4, 1)], [host("w0")])
    same = plan_once(old, [wish("count", 4, 1)], [host("w0", pinned=True)])
    assert same["count"] is old["count"]
    new = plan_once(old, [wish("count", 4, 1)], [host("w0", pinned=True, uid="other")])
    count = written(old, new, term=7)["count"]
    assert (count.workers[0].uid, count.version, count.term) == ("other", 2, 7)
    assert new["count"].shards == old["count"].shards


def test_unborn_shards_stay_even_with_a_worker_that_is_gone() -> None:
    old = plan({}, [wish("count", 4, 1)], [host("w0", "a")])
    new = plan(old, [wish("count", 4, 1)], [host("w1", "b")], unborn={"count/0"})
    assert new["count"].shards["count/0"] == old["count"].shards["count/0"]
    assert {new["count"].shards[f"count/{i}"].home for i in (1, 2, 3)} == {"b"}


def test_new_partitions_are_fresh_in_the_version_that_brings_them() -> None:
    old = plan({}, [wish("read", 3, 1)], [host("w0")])
    new = plan(old, [wish("read", 5, 1)], [host("w0")])
    assert [place.fresh_since for place in new["read"].shards.values()] == [1, 1, 1, 2, 2]


def test_a_partition_that_is_not_announced_any_more_stays() -> None:
    old = plan({}, [wish("read", 3, 1)], [host("w0")])
    assert plan(old, [wish("read", 2, 1)], [host("w0")])["read"] is old["read"]


def test_held_tasks_are_none_and_nothing_moves_neither_then_nor_afterwards() -> None:
    hosts = [host("w0", "a"), host("w1", "b")]
    old = plan({}, [wish("read", 9, 3)], hosts)
    held = plan(old, [wish("read", 9, 3, held=True)], hosts)
    assert set(tasks_of(held["read"]).values()) == {0}
    assert held["read"].shards == old["read"].shards
    back = plan(held, [wish("read", 9, 3)], hosts)
    assert (tasks_of(back["read"]), back["read"].shards) == (tasks_of(old["read"]), old["read"].shards)


def test_a_held_operator_leaves_a_host_that_goes() -> None:
    hosts = [host("w0", "a"), host("w1", "b")]
    old = plan({}, [wish("read", 9, 3, held=True)], hosts)
    new = plan(old, [wish("read", 9, 3, held=True)], [hosts[1]])
    assert tasks_of(new["read"]) == {"w1": 0}
    assert set(shards_of(new["read"]).values()) == {9}


def test_an_operator_that_gave_back_its_task_keeps_its_shards_where_they_are() -> None:
    hosts = [host("w0", "a"), host("w1", "b")]
    old = plan({}, [wish("count", 8, 2)], hosts)
    idle = plan(old, [wish("count", 8, 0)], hosts)
    assert tasks_of(idle["count"]) == {"w0": 0, "w1": 0}
    assert idle["count"].shards == old["count"].shards
    assert plan(idle, [wish("count", 8, 1)], hosts)["count"].tasks == 1


def test_announcing_names_new_executors_without_shards_and_is_taken_back_when_plans_change() -> None:
    hosts = [host("w0", "a"), host("w1", "b")]
    old = plan({}, [wish("count", 8, 2)], hosts[:1])["count"]
    planned = plan_once({"count": old}, [wish("count", 8, 2)], hosts)["count"]
    assert announced_executors(old, planned) == ("count-w1",)
    announced = announce(old, planned)
    assert announced.version == planned.version == old.version, "numbered by neither"
    assert announced.shards == old.shards
    assert shards_of(announced) == {"w0": 8, "w1": 0}
    announced = written({"count": old}, {"count": announced})["count"]
    assert announce(announced, planned) is announced
    replanned = plan_once({"count": announced}, [wish("count", 8, 2)], hosts)["count"]
    assert replanned == replace(planned, version=announced.version)
    given_up = plan({"count": announced}, [wish("count", 8, 2)], hosts[:1])["count"]
    assert given_up.executors[0].name == "count-w0"
    assert len(given_up.executors) == 1
    assert announced_executors(None, planned) == ()


def test_shards_count_as_born_by_what_their_home_applied() -> None:
    old = plan({}, [wish("count", 4, 2)], [host("w0", "a"), host("w1", "b")])
    some = ScheduleBook(old, applied={"count": {"a": 1, "b": 0}})
    assert some.unborn(old) == {shard for shard, place in old["count"].shards.items() if place.home == "b"}
    (born,) = some.written([], anew=["count"]).schedules
    assert {place.home: place.fresh_since for place in born.shards.values()} == {"a": 0, "b": 1}
    assert not ScheduleBook(old, applied={"count": {"a": 1, "b": 1}}).unborn(old)
    (done,) = ScheduleBook(old, applied={"count": {"a": 1, "b": 1}}).written([], anew=["count"]).schedules
    assert {place.fresh_since for place in done.shards.values()} == {0}
    (after,) = ScheduleBook({"count": done}).written([], anew=["count"]).schedules
    assert {place.fresh_since for place in after.shards.values()} == {0}, "born once and for all"


def test_where_there_is_room_an_operators_first_executors_are_as_many_as_can_be() -> None:
    new = plan({}, [wish("a", 8, 2), wish("b", 8, 1)], [host(f"w{number}") for number in range(3)])
    assert (tasks_of(new["a"]), tasks_of(new["b"])) == ({"w0": 1, "w1": 1}, {"w2": 1})


def test_first_shards_are_dealt_out_in_turn() -> None:
    new = plan({}, [wish("count", 5, 2)], [host("w0"), host("w1")])["count"]
    assert new.shards_of("count-w0") == ("count/0", "count/2", "count/4")


def test_a_first_schedule_needs_a_host() -> None:
    with pytest.raises(ValueError, match="no worker"):
        plan_once({}, [wish("count")], [host("w0", pinned=True)])


worlds = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 4), st.sampled_from("abc"), st.integers(1, 5), st.booleans()),
            min_size=1,
            max_size=5,
            unique_by=lambda entry: entry[0],
        ),
        st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=3, max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=200)
@given(worlds)
def test_whatever_happened_a_plan_is_final_at_once_and_drops_no_shard(
    history: list[tuple[list[tuple[int, str, int, bool]], list[tuple[int, bool]]]],
) -> None:
    schedules: Schedules = {}
    node_of: dict[str, str] = {}
    for entries, wanted in history:
        hosts = [
            # A worker keeps its node; only one that runs something can be pinned.
            host(
                f"w{index}",
                node_of.setdefault(f"w{index}", node),
                room,
                pinned=pinned and any(w.name == f"w{index}" for s in schedules.values() for w in s.workers),
            )
            for index, node, room, pinned in entries
        ]
        if not schedules and all(h.is_pinned for h in hosts):
            continue
        wishes = [wish(f"op{i}", 3 + i, tasks, held=held) for i, (tasks, held) in enumerate(wanted)]
        new = plan(schedules, wishes, hosts)
        for one in wishes:
            schedule = new[one.operator]
            assert set(schedule.shards) == set(one.shards)
            old = schedules.get(one.operator)
            assert schedule.version == (old.version if old else 0) + (schedule is not old)
            active = {h.place.name for h in hosts if not h.is_pinned}
            pinned = {h.place.name for h in hosts if h.is_pinned}
            if active:
                assert {e.worker for e in schedule.executors} <= active | pinned
                assert all(schedule.shards_of(e.name) for e in schedule.executors)
                assert_homes_beside_executors(schedule)
                free = sum(len(schedule.shards_of(e.name)) for e in schedule.executors if e.worker in active)
                if not one.is_held and one.tasks and free and not pinned:
                    assert 1 <= schedule.tasks <= one.tasks
        schedules = new


# --- operators that another one decides about -------------------------------------------------------


def kept(operator: str, tasks: int, shards: int = 8, *, treated: bool = False) -> Wish:
    return replace(wish(operator, shards, tasks), manner=Manner.RELOCATE, is_treated=treated)


def decided(*executors: tuple[str, str, int], hosts: Sequence[Host], tasks: int = 1) -> Schedules:
    """`count` with these executors (name, worker, shards), of `tasks` tasks each."""
    places = tuple(ExecutorPlace(name, worker, tasks) for name, worker, _ in executors)
    store_of = {host.place.name: host.store.id for host in hosts}
    runs = [(name, store_of[worker]) for name, worker, shards in executors for _ in range(shards)]
    shards = {f"count/{part}": ShardPlace(*run) for part, run in enumerate(runs)}
    workers = {worker for _, worker, _ in executors}
    return {
        "count": OperatorSchedule(
            "count", 5, 1,
            tuple(host.place for host in hosts if host.place.name in workers),
            places, shards,
            tuple({host.store.id: host.store for host in hosts if host.place.name in workers}.values()),
        )
    }  # fmt: skip


def test_first_schedules_are_final_also_beside_an_operator_that_another_one_decides_about() -> None:
    rooms = (("w0", "c", 1), ("w1", "a", 3), ("w2", "a", 2), ("w3", "c", 3), ("w4", "c", 3))
    hosts = [host(name, node, room) for name, node, room in rooms]
    new = plan({}, [wish("read", 4, 4), kept("count", 5), wish("show", 10, 1)], hosts)
    assert [schedule.tasks for schedule in new.values()] == [4, 5, 1]


def test_an_operator_that_is_kept_stays_as_another_one_decided_it() -> None:
    hosts = [host("w0", "a"), host("w1", "b")]
    old = decided(("x", "w0", 6), ("y", "w0", 1), ("z", "w1", 1), hosts=hosts)
    assert plan(old, [kept("count", 3)], [*hosts, host("w2", "a")]) == old


def test_an_executor_goes_whole_to_a_worker_with_room_when_its_own_goes() -> None:
    hosts = [host("w0", "a"), host("w1", "b")]
    old = decided(("x", "w0", 6), ("y", "w0", 1), ("z", "w1", 1), hosts=hosts)
    new = plan(old, [kept("count", 3)], hosts[:1])["count"]
    assert [(e.name, e.worker) for e in new.executors] == [("x", "w0"), ("y", "w0"), ("count-w0", "w0")]
    assert new.shards["count/7"] == ShardPlace("count-w0", "a")
    assert moved(old["count"], new) == 1
    assert_homes_beside_executors(new)


def test_an_executor_that_was_announced_for_one_that_goes_is_planned_by_the_same_name() -> None:
    hosts = [host("w0", "a", room=2), host("w1", "b", room=2), host("w2", "c", room=2)]
    old = decided(("x", "w0", 8), hosts=hosts)
    planned = plan_once(old, [kept("count", 1)], hosts[1:])["count"]
    announced = announce(old["count"], planned)
    assert announced != old["count"]
    again = plan_once({"count": announced}, [kept("count", 1)], hosts[1:])["count"]
    assert again.executors == planned.executors
    assert again.shards == planned.shards


def test_shards_go_to_the_other_executors_where_no_worker_has_room() -> None:
    hosts = [host("w0", "a", room=2), host("w1", "b")]
    old = decided(("x", "w0", 4), ("y", "w0", 1), ("z", "w1", 3), hosts=hosts)
    new = plan(old, [kept("count", 3)], hosts[:1])["count"]
    assert {e.name: len(new.shards_of(e.name)) for e in new.executors} == {"x": 4, "y": 4}
    assert new.tasks == 2


def test_the_last_executor_goes_to_a_worker_even_without_room() -> None:
    hosts = [host("w0", "a"), host("w1", "b", room=0)]
    old = decided(("x", "w0", 8), hosts=hosts)
    new = plan(old, [kept("count", 1)], hosts[1:])["count"]
    assert tasks_of(new) == {"w1": 1}
    assert_homes_beside_executors(new)


def test_executors_that_wait_for_shards_stay_while_the_other_decider_is_at_it() -> None:
    hosts = [host("w0", "a")]
    old = decided(("x", "w0", 8), ("y", "w0", 0), hosts=hosts)
    assert plan(old, [kept("count", 2, treated=True)], hosts) == old
    left = plan(old, [kept("count", 1)], hosts)["count"]
    assert [e.name for e in left.executors] == ["x"], "what a decider that is gone has left behind goes"


def test_a_pinned_worker_keeps_what_was_decided_for_it() -> None:
    hosts = [host("w0", "a"), host("w1", "b", pinned=True)]
    old = decided(("x", "w0", 6), ("z", "w1", 2), hosts=hosts)
    assert plan(old, [kept("count", 2)], hosts) == old
    assert plan(old, [kept("count", 2)], [replace(h, is_pinned=True) for h in hosts]) == old


def test_bounds_that_are_narrowed_take_and_give_tasks_of_what_is_kept() -> None:
    hosts = [host("w0", "a")]
    old = decided(("x", "w0", 5), ("y", "w0", 1), ("z", "w0", 2), hosts=hosts)
    fewer = plan(old, [kept("count", 2)], hosts)["count"]
    assert {e.name: len(fewer.shards_of(e.name)) for e in fewer.executors} == {"x": 5, "z": 3}
    more = plan_once(old, [kept("count", 4)], hosts)["count"]
    assert more.tasks == 4
    assert sorted(len(more.shards_of(e.name)) for e in more.executors) == [1, 2, 2, 3]


def test_tasks_that_another_one_decided_leave_less_room_for_the_rest() -> None:
    hosts = [host("w0", "a", room=4)]
    old = decided(("x", "w0", 4), ("y", "w0", 4), hosts=hosts)
    first = plan_once(old, [kept("count", 2), wish("read", 8, 6)], hosts)
    assert first["count"] is old["count"]
    assert tasks_of(first["read"]) == {"w0": 2}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=6),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 6)), min_size=3, max_size=3),
    st.integers(1, 8),
)
@settings(max_examples=300, deadline=None)
def test_what_is_kept_always_runs_beside_workers_that_stay(
    executors: list[tuple[int, int, int]], fates: list[tuple[bool, bool, int]], tasks: int
) -> None:
    before = [host(f"w{number}", "abc"[number]) for number in range(3)]
    named = [(f"e{number}", f"w{worker}", shards) for number, (worker, shards, _) in enumerate(executors)]
    old = decided(*named, hosts=before)
    after = [
        host(f"w{number}", "abc"[number], room, pinned=pinned)
        for number, (stays, pinned, room) in enumerate(fates)
        if stays
    ]
    new = plan_once(old, [kept("count", tasks, len(old["count"].shards))], after)["count"]
    assert new.shards.keys() == old["count"].shards.keys()
    if any(not each.is_pinned for each in after):
        assert {executor.worker for executor in new.executors} <= {each.place.name for each in after}
        assert_homes_beside_executors(new)
        assert all(new.shards_of(executor.name) for executor in new.executors)
