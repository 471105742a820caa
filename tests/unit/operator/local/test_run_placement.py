"""What a run asks the planner: first schedules on all workers, by names that nothing else has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.schedule.record import ShardPlace, WorkerPlace
from penstock_operator.local.run_placement import first_schedules, session_tasks
from scenes.run_scene import shards_of_word_count, word_count_plan


def workers_of(*names: str) -> list[WorkerPlace]:
    return [WorkerPlace(name, "local", "local", f"uid-{name}") for name in names]


def test_first_schedules_name_all_workers_and_shards_that_are_there_already() -> None:
    schedules = first_schedules(word_count_plan(), shards_of_word_count(), workers_of("w0", "w1"))
    lines, count = schedules["lines"], schedules["count"]
    assert [schedule.version for schedule in schedules.values()] == [0, 0], "not published yet"
    assert (lines.is_source, count.is_source) == (True, False)
    assert [worker.name for worker in lines.workers] == ["w0", "w1"]
    assert [(executor.worker, executor.tasks) for executor in lines.executors] == [("w0", 1)]
    assert {executor.worker: executor.tasks for executor in count.executors} == {"w0": 1, "w1": 1}
    assert count.shards["count/0"] == ShardPlace("count-w0", "local")
    assert (lines.stores, count.stores) == ((), ())


def test_a_session_has_room_for_all_that_operators_may_have() -> None:
    assert session_tasks(word_count_plan()) == 12


def test_two_executors_of_one_name_are_refused() -> None:
    plan = word_count_plan()
    first, second = plan.stages
    plan = replace(plan, stages=(replace(first, operator="a"), replace(second, operator="a-b")))
    shards = {"a": ["a/0", "a/1"], "a-b": ["a-b/0", "a-b/1"]}
    plan = replace(plan, stages=tuple(replace(s, tasks=replace(s.tasks, initial=2)) for s in plan.stages))
    with pytest.raises(ValueError, match="one name"):
        first_schedules(plan, shards, workers_of("b-c", "c"))
