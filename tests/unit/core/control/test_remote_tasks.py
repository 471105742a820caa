"""Which tasks run on other nodes: as many at home as there are cores, the rest away, and back first."""

from __future__ import annotations

from penstock.control.elasticutor.remote_tasks import Room, place_remote
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.schedule.remote import Remote, remote_of, with_remote

WORKERS = tuple(WorkerPlace(f"w{i}", f"n{i}", f"n{i}", f"u{i}") for i in range(2))


def schedule(
    operator: str, tasks: dict[str, int], shards: int = 8, *, is_source: bool = False
) -> OperatorSchedule:
    """`tasks` is worker -> tasks; shards are dealt out in turn."""
    executors = tuple(ExecutorPlace(f"{operator}-{worker}", worker, count) for worker, count in tasks.items())
    names = [executor.name for executor in executors]
    placed = {f"{operator}/{i}": ShardPlace(names[i % len(names)], "s") for i in range(shards)}
    return OperatorSchedule(operator, 1, 1, WORKERS, executors, placed, is_source=is_source)


def room(own: dict[str, int], beside: dict[str, int]) -> Room:
    return Room(own, {worker.name: worker.node for worker in WORKERS}, beside)


def test_all_tasks_stay_where_there_are_cores() -> None:
    assert place_remote([schedule("count", {"w0": 3})], {}, room({"w0": 3}, {"n1": 4})) == {}


def test_what_finds_no_core_at_home_goes_to_the_node_with_most_room() -> None:
    found = place_remote([schedule("count", {"w0": 3})], {}, room({"w0": 2}, {"n1": 1, "n2": 4}))
    assert found == {"count-w0": (("n2", 1),)}


def test_what_finds_no_core_anywhere_stays_at_home() -> None:
    found = place_remote([schedule("count", {"w0": 5})], {}, room({"w0": 2}, {"n1": 1}))
    assert found == {"count-w0": (("n1", 1),)}


def test_no_task_goes_to_the_workers_own_node() -> None:
    assert place_remote([schedule("count", {"w0": 3})], {}, room({"w0": 1}, {"n0": 4})) == {}


def test_an_executor_keeps_a_task_at_home() -> None:
    found = place_remote([schedule("count", {"w0": 3})], {}, room({"w0": 0}, {"n1": 4}))
    assert found == {"count-w0": (("n1", 2),)}


def test_sources_stay_at_home_and_take_cores_there() -> None:
    both = [schedule("lines", {"w0": 2}, is_source=True), schedule("count", {"w0": 2})]
    assert place_remote(both, {}, room({"w0": 3}, {"n1": 4})) == {"count-w0": (("n1", 1),)}


def test_the_executor_goes_whose_task_carries_least_state() -> None:
    # C- + C+ is least where many tasks share few shards.
    both = [schedule("big", {"w0": 2}, shards=64), schedule("small", {"w0": 2}, shards=4)]
    assert place_remote(both, {}, room({"w0": 3}, {"n1": 4})) == {"small-w0": (("n1", 1),)}


def test_remote_tasks_are_the_first_to_be_taken_back() -> None:
    before: Remote = {"count-w0": (("n1", 2),)}
    fewer = [schedule("count", {"w0": 3})]
    assert place_remote(fewer, before, room({"w0": 2}, {"n1": 2})) == {"count-w0": (("n1", 1),)}
    assert place_remote([schedule("count", {"w0": 2})], before, room({"w0": 2}, {"n1": 2})) == {}


def test_what_is_right_stays_as_it_is() -> None:
    both = [schedule("count", {"w0": 4, "w1": 4})]
    cores = room({"w0": 2, "w1": 2}, {"n2": 4})
    first = place_remote(both, {}, cores)
    assert first == {"count-w0": (("n2", 2),), "count-w1": (("n2", 2),)}
    assert place_remote(both, first, cores) == first


def test_tasks_leave_a_node_that_has_no_room_any_more() -> None:
    before: Remote = {"count-w0": (("n1", 2),)}
    found = place_remote([schedule("count", {"w0": 4})], before, room({"w0": 2}, {"n1": 0, "n2": 1}))
    assert found == {"count-w0": (("n2", 1),)}


def test_a_worker_that_is_not_judged_keeps_what_it_has() -> None:
    before: Remote = {"count-w1": (("n2", 1),)}
    assert place_remote([schedule("count", {"w0": 1, "w1": 3})], before, room({"w0": 1}, {"n2": 1})) == before


def test_a_schedule_carries_its_remote_tasks_and_can_be_without() -> None:
    plain = schedule("count", {"w0": 3})
    remote: Remote = {"count-w0": (("n1", 1),)}
    carried = with_remote(plain, remote)
    assert remote_of([carried]) == remote
    assert [executor.tasks_at_home for executor in carried.executors] == [2]
    assert with_remote(carried, {}) == plain
