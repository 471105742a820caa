"""Plans of a machine whose executors stay: every shard on one living executor, evenly, with the fewest moves,
and versions that grow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schedule.announcing import announce
from penstock.schedule.book import ScheduleBook
from penstock.schedule.hosts_and_wishes import ONE_MACHINE, Host, Manner, Wish
from penstock.schedule.naming import forget_worker, name_worker
from penstock.schedule.planner import plan
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace

Schedules = dict[str, OperatorSchedule]
ANY_ROOM = 1000


def workers_of(count: int) -> list[WorkerPlace]:
    return [WorkerPlace(f"w-{i}", "n", "localhost", f"uid-{i}") for i in range(count)]


def hosts_of(workers: Sequence[WorkerPlace], store: Mapping[str, str] | None = None) -> list[Host]:
    store = store or {"n": "store"}
    return [Host(place, StorePlace(store[place.node], place.node, ""), ANY_ROOM) for place in workers]


def placed(initial: tuple[int, ...], shards: tuple[int, ...], workers: int) -> Schedules:
    wishes = [
        Wish(f"op{i}", tuple(f"op{i}/{part}" for part in range(count)), tasks)
        for i, (tasks, count) in enumerate(zip(initial, shards, strict=True))
    ]
    return written({}, plan({}, wishes, hosts_of(workers_of(workers)), runtime=ONE_MACHINE))


def planned(old: Schedules, hosts: Sequence[Host], wanted: Mapping[str, int]) -> Schedules:
    """`wanted` is operator -> tasks that a worker that is back brings it up to."""
    wishes = [
        Wish(operator, tuple(schedule.shards), wanted.get(operator, 0), manner=Manner.TAKE_OVER)
        for operator, schedule in old.items()
    ]
    return written(old, plan(old, wishes, hosts, runtime=ONE_MACHINE))


def written(old: Schedules, new: Schedules) -> Schedules:
    """As they stand once `new` is written."""
    return dict(ScheduleBook(old).written(new.values()).book.schedules)


def without_lost(old: Schedules, lost: Collection[str], spare: Mapping[str, int]) -> Schedules:
    """`spare` is worker -> tasks that it can run beyond those scheduled."""
    hosts = []
    for host in hosts_of(next(iter(old.values())).workers):
        name = host.place.name
        used = sum(e.tasks for schedule in old.values() for e in schedule.executors if e.worker == name)
        hosts.append(replace(host, task_room=used + spare.get(name, 0)))
    return planned(old, [host for host in hosts if host.place.name not in lost], {})


def with_returned(
    old: Schedules, worker: WorkerPlace, wanted: Mapping[str, int], lost: Collection[str] = ()
) -> Schedules:
    known = next(iter(old.values())).workers
    living = [place for place in known if place.name not in lost and place.name != worker.name]
    (back,) = hosts_of([worker])
    return planned(old, [*hosts_of(living), replace(back, takes_share=True)], wanted)


def announced_of(old: Schedules, new: Schedules) -> Schedules:
    return written(old, {name: announce(old[name], new[name], runtime=ONE_MACHINE) for name in old})


def counts(schedule: OperatorSchedule) -> dict[str, int]:
    return {e.name: len(schedule.shards_of(e.name)) for e in schedule.executors}


def is_even(schedule: OperatorSchedule) -> bool:
    """No shard could move to another executor and leave it with fewer a task than its giver had."""
    count = counts(schedule)
    tasks = {e.name: e.tasks for e in schedule.executors}
    return all(count[a] * tasks[b] <= (count[b] + 1) * tasks[a] for a, b in product(count, count))


def moved(old: OperatorSchedule, new: OperatorSchedule) -> list[str]:
    return [shard for shard, place in new.shards.items() if place.executor != old.shards[shard].executor]


def assert_versions(old: Schedules, new: Schedules) -> None:
    for operator, schedule in new.items():
        before = old[operator]
        assert schedule.version == before.version + (schedule != before)
        assert (schedule is before) == (schedule.version == before.version)


topologies = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=4)


# --- the start ------------------------------------------------------------------------------------


@given(topologies, st.integers(1, 6))
def test_the_start_spreads_tasks_and_shards_evenly(operators: list[tuple[int, int]], workers: int) -> None:
    schedules = placed(tuple(t for t, _ in operators), tuple(s for _, s in operators), workers)
    for i, (tasks, shards) in enumerate(operators):
        schedule = schedules[f"op{i}"]
        assert schedule.version == 1
        assert schedule.tasks == min(tasks, shards)
        assert len(schedule.executors) == min(tasks, shards, workers)
        per_worker = [e.tasks for e in schedule.executors]
        assert max(per_worker) - min(per_worker) <= 1
        assert set(schedule.shards) == {f"op{i}/{part}" for part in range(shards)}
        assert all(count >= 1 for count in counts(schedule).values())
        assert is_even(schedule)
        assert all(place.home == "store" for place in schedule.shards.values())


def test_equal_tasks_mean_shard_counts_within_one() -> None:
    schedule = placed((3,), (64,), 3)["op0"]
    assert counts(schedule) == {"op0-w-0": 22, "op0-w-1": 21, "op0-w-2": 21}


def test_an_executor_with_more_tasks_gets_more_shards() -> None:
    assert counts(placed((3,), (63,), 2)["op0"]) == {"op0-w-0": 42, "op0-w-1": 21}


def test_operators_of_one_task_go_to_different_workers() -> None:
    schedules = placed((1, 1, 1), (1, 4, 4), 2)
    assert [s.executors[0].worker for s in schedules.values()] == ["w-0", "w-1", "w-0"]


def test_every_schedule_names_every_worker() -> None:
    assert [w.name for w in placed((1,), (4,), 3)["op0"].workers] == ["w-0", "w-1", "w-2"]


def test_a_shards_home_is_its_executors_node() -> None:
    workers = [WorkerPlace("w-0", "a", "h", "u0"), WorkerPlace("w-1", "b", "h", "u1")]
    hosts = hosts_of(workers, {"a": "store-a", "b": "store-b"})
    wish = Wish("op0", ("op0/0", "op0/1"), 2)
    schedule = plan({}, [wish], hosts, runtime=ONE_MACHINE)["op0"]
    assert schedule.shards == {
        "op0/0": ShardPlace("op0-w-0", "store-a"),
        "op0/1": ShardPlace("op0-w-1", "store-b"),
    }
    assert (schedule.version, schedule.term) == (0, 0), "the book numbers it"


def test_a_first_schedule_without_a_worker_is_refused() -> None:
    with pytest.raises(ValueError, match="no worker"):
        placed((1,), (1,), 0)


# --- a worker is lost -------------------------------------------------------------------------------


@given(topologies, st.integers(2, 6), st.data())
def test_lost_workers_shards_go_to_living_executors_and_nothing_else_moves(
    operators: list[tuple[int, int]], workers: int, data: st.DataObject
) -> None:
    old = placed(tuple(t for t, _ in operators), tuple(s for _, s in operators), workers)
    names = [f"w-{i}" for i in range(workers)]
    lost = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=workers - 1))
    spare = {name: data.draw(st.integers(0, 4)) for name in names}
    new = without_lost(old, lost, spare)
    assert_versions(old, new)
    gained = dict.fromkeys(names, 0)
    for operator, schedule in new.items():
        before = old[operator]
        dead = {e.name for e in before.executors if e.worker in lost}
        living = {e.name for e in before.executors} - dead
        could_host = bool(living) or schedule != before
        for shard, place in schedule.shards.items():
            if before.shards[shard].executor in dead and could_host:
                assert place.executor not in dead
            else:
                assert place == before.shards[shard]
            assert place.home == before.shards[shard].home
        if dead and could_host:
            assert all(e.worker not in lost for e in schedule.executors)
        # Tasks may have changed, so evenness is owed to the shards that moved alone.
        tasks = {e.name: e.tasks for e in schedule.executors}
        count = counts(schedule)
        for shard in moved(before, schedule):
            to = schedule.shards[shard].executor
            assert all(count[to] * tasks[b] <= (count[b] + 1) * tasks[to] for b in count)
        for executor in schedule.executors:
            had = sum(e.tasks for e in before.executors if e.worker == executor.worker)
            gained[executor.worker] += executor.tasks - had
        assert schedule.tasks <= before.tasks
    assert all(gained[name] <= spare[name] for name in names)


def test_lost_tasks_go_along_as_far_as_there_are_spare_ones() -> None:
    old = placed((4,), (8,), 2)
    new = without_lost(old, {"w-1"}, {"w-0": 1, "w-1": 9})["op0"]
    assert new.executors == (ExecutorPlace("op0-w-0", "w-0", 3),)
    assert len(new.shards_of("op0-w-0")) == 8


def test_an_operator_that_lives_nowhere_is_taken_on_by_workers_with_spare_tasks() -> None:
    old = placed((2, 1), (8, 1), 3)
    assert {e.worker for e in old["op0"].executors} == {"w-0", "w-1"}
    new = without_lost(old, {"w-0", "w-1"}, {"w-2": 5})["op0"]
    assert new.executors == (ExecutorPlace("op0-w-2", "w-2", 2),)


def test_an_operator_whose_only_other_executor_is_pinned_is_taken_on_by_others() -> None:
    old = placed((2,), (8,), 2)
    _, starting, idle = hosts_of(workers_of(3))
    new = planned(old, [replace(starting, is_pinned=True), idle], {})["op0"]
    assert counts(new) == {"op0-w-1": 4, "op0-w-2": 4}
    assert planned(old, [replace(starting, is_pinned=True)], {})["op0"] is old["op0"], "it waits"


def test_spare_tasks_are_given_out_once() -> None:
    old = placed((1, 1, 1), (1, 1, 2), 2)
    new = without_lost(old, {"w-0"}, {"w-1": 1})
    assert new["op0"].executors == (ExecutorPlace("op0-w-1", "w-1", 1),)
    assert new["op2"] is old["op2"]


def test_shards_that_nobody_can_take_stay_and_wait() -> None:
    old = placed((2,), (8,), 2)
    assert without_lost(old, {"w-0", "w-1"}, {}) == old
    assert without_lost(old, {"w-0", "w-1"}, {"w-0": 5})["op0"] is old["op0"]


# --- a worker is back -------------------------------------------------------------------------------


@given(topologies, st.integers(2, 6), st.data())
def test_a_returned_worker_gets_its_share_with_the_fewest_moves(
    operators: list[tuple[int, int]], workers: int, data: st.DataObject
) -> None:
    start = placed(tuple(t for t, _ in operators), tuple(s for _, s in operators), workers)
    back = data.draw(st.sampled_from(workers_of(workers)))
    spare = {f"w-{i}": data.draw(st.integers(0, 9)) for i in range(workers)}
    old = without_lost(start, {back.name}, spare)
    wanted = {operator: schedule.tasks for operator, schedule in start.items()}
    new = with_returned(old, replace(back, uid="new"), wanted)
    assert_versions(old, new)
    for operator, schedule in new.items():
        before = old[operator]
        assert next(w for w in schedule.workers if w.name == back.name).uid == "new"
        had_left = all(e.worker != back.name for e in before.executors)
        returned = any(e.worker == back.name for e in schedule.executors)
        if not (had_left and returned):
            assert not moved(before, schedule)
            continue
        assert schedule.tasks == wanted[operator]
        assert is_even(schedule)
        assert len(moved(before, schedule)) == fewest_moves(before, schedule)


def fewest_moves(before: OperatorSchedule, after: OperatorSchedule) -> int:
    """Over all even quotas, the most shards that can stay where they are, by trying each."""
    tasks = {e.name: e.tasks for e in after.executors}
    held = counts(before)
    total = len(before.shards)
    averages = sorted((q / tasks[name], name) for name in tasks for q in range(1, total + 1))
    level = averages[total - 1][0]
    certain = {name: sum(a < level for a, n in averages if n == name) for name in tasks}
    tied = [name for a, name in averages if a == level]
    kept = [
        sum(min(held.get(name, 0), certain[name] + (name in chosen)) for name in tasks)
        for chosen in combinations(tied, total - sum(certain.values()))
    ]
    return total - max(kept)


def test_lost_and_returned_is_as_it_was() -> None:
    start = placed((4, 2), (64, 8), 2)
    lost = without_lost(start, {"w-1"}, {"w-0": 9})
    assert [s.tasks for s in lost.values()] == [4, 2]
    back = with_returned(lost, workers_of(2)[1], {})
    assert {o: counts(s) for o, s in back.items()} == {o: counts(s) for o, s in start.items()}
    assert {o: s.tasks for o, s in back.items()} == {"op0": 4, "op1": 2}
    assert {s.version for s in back.values()} == {3}


def test_executors_are_announced_without_a_shard_and_taken_back_without_a_trace() -> None:
    start = placed((4, 2), (64, 8), 2)
    lost = without_lost(start, {"w-1"}, {"w-0": 9})
    back = workers_of(2)[1]
    intended = with_returned(lost, back, {})
    announced = announced_of(lost, intended)
    for operator, schedule in announced.items():
        assert schedule.shards == lost[operator].shards
        assert {e.worker for e in schedule.executors} == {"w-0", "w-1"}
        assert schedule.version == lost[operator].version + 1
    again = with_returned(announced, back, {})
    assert again == {o: replace(s, version=s.version + 1) for o, s in intended.items()}, "planned anew"
    given_up = without_lost(announced, {"w-1"}, {})
    assert {o: counts(s) for o, s in given_up.items()} == {o: counts(s) for o, s in lost.items()}
    assert with_returned(intended, back, {}) == intended, "an executor with shards stays"


def test_there_is_nothing_to_announce_where_only_shards_that_wait_are_taken_over() -> None:
    old = placed((2,), (8,), 2)
    intended = with_returned(old, workers_of(2)[1], {}, lost={"w-0"})
    assert counts(intended["op0"]) == {"op0-w-1": 8}
    assert announced_of(old, intended)["op0"] is old["op0"]


def test_a_worker_that_left_is_named_no_more() -> None:
    old = placed((1,), (4,), 2)
    new = forget_worker(old, "w-1")["op0"]
    assert [worker.name for worker in new.workers] == ["w-0"]
    assert replace(new, workers=old["op0"].workers) == old["op0"]
    assert forget_worker({"op0": new}, "w-1")["op0"] is new


def test_a_worker_back_before_anything_was_taken_keeps_its_shards() -> None:
    old = placed((2,), (8,), 2)
    new = with_returned(old, WorkerPlace("w-1", "n", "localhost", "again"), {"op0": 2})
    assert new["op0"].shards == old["op0"].shards
    assert new["op0"].version == 2
    assert new == written(old, name_worker(old, WorkerPlace("w-1", "n", "localhost", "again")))


def test_a_returned_worker_takes_over_what_waits_on_those_still_dead() -> None:
    old = placed((2, 1), (8, 3), 2)
    new = with_returned(old, workers_of(2)[0], {}, lost={"w-1"})
    assert counts(new["op0"]) == {"op0-w-0": 8}
    assert new["op0"].tasks == 2
    assert counts(new["op1"]) == {"op1-w-0": 3}


def test_a_worker_that_would_have_no_task_or_no_shard_gets_no_executor() -> None:
    old = placed((1, 2), (8, 2), 2)
    new = with_returned(old, WorkerPlace("w-2", "n", "localhost", "uid-2"), {})
    assert [len(s.executors) for s in new.values()] == [1, 2]
    assert all(s.version == 2 and len(s.workers) == 3 for s in new.values())
    again = with_returned(new, WorkerPlace("w-2", "n", "localhost", "uid-2"), {})
    assert all(again[operator] is new[operator] for operator in new)


def test_executors_that_share_a_living_worker_all_stay() -> None:
    split = OperatorSchedule(
        operator="op0",
        version=3,
        term=0,
        workers=tuple(workers_of(2)),
        executors=(
            ExecutorPlace("a", "w-0", 1),
            ExecutorPlace("b", "w-0", 1),
            ExecutorPlace("c", "w-1", 1),
        ),
        shards={f"op0/{part}": ShardPlace("abc"[part % 3], "store") for part in range(6)},
    )
    after = without_lost({"op0": split}, {"w-1"}, {"w-0": 4})["op0"]
    assert [(e.name, e.tasks) for e in after.executors] == [("a", 2), ("b", 1)]
    assert counts(after) == {"a": 4, "b": 2}
    assert {after.shards[f"op0/{part}"].executor for part in (0, 3)} == {"a"}
