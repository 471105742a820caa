"""From a decision's actions to schedules: announce, move, retire; and what becomes of a course that is
stuck."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    Health,
    MoveShards,
    PolicyDecision,
    RemoveExecutor,
    Treatment,
)
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.sla.treatment import (
    STEP_US_MAX,
    ActionRefused,
    Advance,
    Course,
    CourseSeen,
    NoRoom,
    Step,
    advance,
    begin,
    single_tasks,
    tasks_after,
)

W0 = WorkerPlace("w0", "here", "here", "uid0")
W1 = WorkerPlace("w1", "there", "there", "uid1")
ROOM = {"w0": 4, "w1": 4}
NOTHING_SEEN = CourseSeen({}, {})


def schedule(*executors: tuple[str, str, int], shards: Mapping[str, str]) -> OperatorSchedule:
    """Executors as (name, worker, tasks); shards as part -> executor, all at home in one store."""
    return OperatorSchedule(
        operator="count",
        version=7,
        term=0,
        workers=(W0, W1),
        executors=tuple(ExecutorPlace(*executor) for executor in executors),
        shards={f"count/{part}": ShardPlace(executor, "local") for part, executor in shards.items()},
    )


ONE = schedule(("a", "w0", 1), shards={"0": "a", "1": "a", "2": "a", "3": "a"})
TWO = schedule(("a", "w0", 1), ("b", "w0", 1), shards={"0": "a", "1": "a", "2": "b", "3": "b"})


def decided(*actions: Action) -> PolicyDecision:
    return PolicyDecision(0, "P", "count", Treatment.SCALE_OUT, "rule", "because", Health.SEVERE, actions)


def begun(on: OperatorSchedule, *actions: Action, room: Mapping[str, int] = ROOM, now_us: int = 0) -> Advance:
    return begin(decided(*actions), on, room, {e.name for e in on.executors}, now_us)


def course_of(step: Advance) -> Course:
    assert step.course is not None
    return step.course


def runs(of: OperatorSchedule) -> dict[str, str]:
    return {shard.removeprefix("count/"): place.executor for shard, place in of.shards.items()}


SCALE_OUT = (AddExecutor("b"), MoveShards(("count/2", "count/3"), "a", "b"))


def test_a_new_executor_is_announced_before_any_shard_moves() -> None:
    first = begun(ONE, *SCALE_OUT)
    assert course_of(first).step is Step.ANNOUNCED
    assert [e.name for e in first.schedule.executors] == ["a", "b"]
    assert set(runs(first.schedule).values()) == {"a"}
    # The book gives the next version, if this one still stands.
    assert first.schedule.version == ONE.version


def test_shards_move_once_the_new_executors_task_has_spoken() -> None:
    first = begun(ONE, *SCALE_OUT)
    waiting = advance(course_of(first), first.schedule, NOTHING_SEEN, 1_000)
    assert waiting.schedule is first.schedule
    moved = advance(course_of(waiting), first.schedule, CourseSeen({"b": 1}, {}), 2_000)
    assert course_of(moved).step is Step.MOVING
    assert runs(moved.schedule) == {"0": "a", "1": "a", "2": "b", "3": "b"}


def test_a_course_is_over_once_every_moved_shard_was_claimed_by_its_new_executor() -> None:
    first = begun(ONE, *SCALE_OUT)
    moved = advance(course_of(first), first.schedule, CourseSeen({"b": 1}, {}), 1_000)
    half = advance(course_of(moved), moved.schedule, CourseSeen({}, {"count/2": "b", "count/3": "a"}), 2_000)
    assert half.course is not None
    over = advance(course_of(half), half.schedule, CourseSeen({}, {"count/2": "b", "count/3": "b"}), 3_000)
    assert (over.course, over.stuck) == (None, "")
    assert over.schedule is half.schedule


def test_load_balance_among_executors_that_are_there_moves_at_once() -> None:
    moved = begun(TWO, MoveShards(("count/0",), "a", "b"))
    assert course_of(moved).step is Step.MOVING
    assert runs(moved.schedule)["0"] == "b"


def test_an_executor_that_goes_keeps_its_task_until_its_shards_are_claimed_elsewhere() -> None:
    moved = begun(TWO, MoveShards(("count/2", "count/3"), "b", "a"), RemoveExecutor("b"))
    assert [e.name for e in moved.schedule.executors] == ["a", "b"]
    over = advance(course_of(moved), moved.schedule, CourseSeen({}, {"count/2": "a", "count/3": "a"}), 1_000)
    assert over.course is None
    assert [e.name for e in over.schedule.executors] == ["a"]
    assert over.schedule.version == moved.schedule.version


def test_a_task_that_does_not_come_up_in_time_withdraws_what_was_announced() -> None:
    first = begun(ONE, *SCALE_OUT)
    stuck = advance(course_of(first), first.schedule, NOTHING_SEEN, STEP_US_MAX)
    assert stuck.course is None
    assert stuck.stuck == "b did not come up within 10 s"
    assert [e.name for e in stuck.schedule.executors] == ["a"]
    assert runs(stuck.schedule) == runs(ONE)


def test_shards_that_nobody_claims_in_time_end_the_course_and_stay_where_the_schedule_has_them() -> None:
    moved = begun(TWO, MoveShards(("count/0",), "a", "b"))
    stuck = advance(course_of(moved), moved.schedule, NOTHING_SEEN, STEP_US_MAX)
    assert stuck.course is None
    assert stuck.stuck == "1 shards were not claimed within 10 s"
    assert runs(stuck.schedule)["0"] == "b"


def test_a_worker_that_was_lost_meanwhile_is_not_given_its_shards() -> None:
    first = begun(ONE, *SCALE_OUT)
    without = schedule(("a", "w0", 1), shards=runs(ONE))
    done = advance(course_of(first), without, CourseSeen({"b": 1}, {}), 1_000)
    assert done.course is None
    assert done.schedule is without


def test_cores_are_given_at_once_and_taken_at_the_end() -> None:
    more = begun(TWO, AssignCores("a", {"here": 3}))
    assert [e.tasks for e in more.schedule.executors] == [3, 1]
    three = schedule(("a", "w0", 3), ("b", "w0", 1), shards=runs(TWO))
    mixed = begun(three, AssignCores("a", {"here": 1}), MoveShards(("count/0",), "a", "b"))
    assert [e.tasks for e in mixed.schedule.executors] == [3, 1]
    over = advance(course_of(mixed), mixed.schedule, CourseSeen({}, {"count/0": "b"}), 1)
    assert [e.tasks for e in over.schedule.executors] == [1, 1]


def test_taking_cores_alone_is_done_in_one_schedule() -> None:
    three = schedule(("a", "w0", 3), shards=runs(ONE))
    done = begun(three, AssignCores("a", {"here": 2}))
    assert done.course is None
    assert [e.tasks for e in done.schedule.executors] == [2]


def test_a_new_executor_goes_to_the_worker_with_the_fewest_tasks_of_the_operator() -> None:
    first = begun(TWO, AddExecutor("c"), MoveShards(("count/0",), "a", "c"))
    assert first.schedule.executors[-1] == ExecutorPlace("c", "w1", 1)


def test_a_new_executor_on_a_node_goes_to_a_worker_there() -> None:
    first = begun(TWO, AddExecutor("c", node="here"), MoveShards(("count/0",), "a", "c"))
    assert first.schedule.executors[-1].worker == "w0"


def test_a_warm_worker_is_given_an_executor_only_when_no_other_has_room() -> None:
    actions = (AddExecutor("c"), MoveShards(("count/0",), "a", "c"))
    for room, worker in (({"w0": 1, "w1": 4}, "w0"), ({"w0": 0, "w1": 4}, "w1")):
        first = begin(decided(*actions), TWO, room, {"a", "b"}, 0, warm={"w1"})
        assert first.schedule.executors[-1].worker == worker


def test_that_no_worker_has_room_is_told_apart_from_what_another_worker_would_not_cure() -> None:
    with pytest.raises(NoRoom):
        begun(TWO, AddExecutor("c"), room={"w0": 0, "w1": 0})
    with pytest.raises(ActionRefused) as refused:
        begun(TWO, RemoveExecutor("a"))
    assert not isinstance(refused.value, NoRoom)


def test_a_name_that_another_operators_executor_has_is_not_given_twice() -> None:
    first = begin(decided(*SCALE_OUT), ONE, ROOM, {"a", "b"}, 0)
    assert [e.name for e in first.schedule.executors] == ["a", "b-2"]
    moved = advance(course_of(first), first.schedule, CourseSeen({"b-2": 1}, {}), 1)
    assert set(runs(moved.schedule).values()) == {"a", "b-2"}


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ((MoveShards(("count/2",), "a", "b"),), "shard count/2 is not on executor a"),
        ((MoveShards(("count/9",), "a", "b"),), "shard count/9 is not on executor a"),
        ((MoveShards(("count/0",), "a", "c"),), "executor c, which is not there"),
        ((RemoveExecutor("b"),), "executor b is to go, and still has shards"),
        ((RemoveExecutor("c"),), "executor c is to go, and is not there"),
        ((AssignCores("c", {"here": 1}),), "executor c is to have other cores"),
        ((AssignCores("a", {}),), "executor a is to have no core"),
        ((AddExecutor("c", tasks=0),), "executor c is to have 0 tasks"),
        ((AddExecutor("c", tasks=5),), "no worker has room for 5 more tasks"),
        ((AddExecutor("c", node="nowhere"),), "no worker on node nowhere has room"),
    ],
)
def test_an_action_that_does_not_fit_is_refused_in_words(actions: tuple[Action, ...], message: str) -> None:
    with pytest.raises(ActionRefused, match=message):
        begun(TWO, *actions)


def test_tasks_after_a_decision_are_counted_over_all_executors() -> None:
    assert (
        tasks_after(TWO, (AddExecutor("c", 2), RemoveExecutor("b"), AssignCores("a", {"x": 2, "y": 1}))) == 5
    )


def test_executors_of_several_tasks_are_split_into_ones_of_one_task_in_the_same_worker() -> None:
    wide = schedule(("a", "w0", 3), ("b", "w1", 1), shards={"0": "a", "1": "a", "2": "a", "3": "a", "4": "b"})
    split = single_tasks(wide, {"a", "b", "count-w0-1"})
    assert split.executors == (
        ExecutorPlace("a", "w0", 1),
        ExecutorPlace("count-w0-2", "w0", 1),
        ExecutorPlace("count-w0-3", "w0", 1),
        ExecutorPlace("b", "w1", 1),
    )
    assert runs(split) == {"0": "a", "1": "count-w0-2", "2": "count-w0-3", "3": "a", "4": "b"}
    assert split.tasks == wide.tasks


def test_no_executor_is_made_for_which_there_is_no_shard() -> None:
    split = single_tasks(schedule(("a", "w0", 8), shards={"0": "a", "1": "a"}), set())
    assert [(e.name, e.tasks) for e in split.executors] == [("a", 1), ("count-w0-1", 1)]


def test_a_schedule_of_single_tasks_is_left_as_it_is() -> None:
    assert single_tasks(TWO, set()) is TWO


def test_more_tasks_of_an_executor_are_waited_for_before_the_treatment_counts_as_done() -> None:
    more = begun(TWO, AssignCores("a", {"here": 2}))
    assert course_of(more).grown == ("a",)
    one = advance(course_of(more), more.schedule, CourseSeen({"a": 1}, {}), 1_000)
    assert one.course is not None
    assert advance(course_of(one), one.schedule, CourseSeen({"a": 2}, {}), 2_000).course is None


def test_no_more_tasks_are_waited_for_than_there_are_shards() -> None:
    more = begun(TWO, AssignCores("a", {"here": 5}))
    done = advance(course_of(more), more.schedule, CourseSeen({"a": 2}, {}), 1_000)
    assert (done.course, done.stuck) == (None, "")


def test_tasks_that_do_not_come_up_in_time_stay_asked_for() -> None:
    more = begun(TWO, AssignCores("a", {"here": 2}))
    stuck = advance(course_of(more), more.schedule, NOTHING_SEEN, STEP_US_MAX)
    assert stuck.stuck == "a did not come up within 10 s"
    assert [e.tasks for e in stuck.schedule.executors] == [2, 1]
