"""Thread-level update: the three cases of N-Storm III.C, resizing, and the topology that is gone."""

from __future__ import annotations

from penstock.schedule.diff import Resize, ThreadLevelUpdate, update
from penstock.store.port import AssignedExecutor


def executor(
    name: str, *, tasks: int = 1, version: int = 1, shards: tuple[str, ...] = ("o/0",)
) -> AssignedExecutor:
    return AssignedExecutor("o", name, version, tasks, shards)


def of(*executors: AssignedExecutor) -> dict[str, AssignedExecutor]:
    return {e.executor: e for e in executors}


def test_what_is_assigned_and_does_not_run_is_started() -> None:
    assert update({}, of(executor("b"), executor("a"))) == ThreadLevelUpdate(start=("a", "b"))


def test_what_runs_and_is_not_assigned_is_stopped() -> None:
    assert update(of(executor("a"), executor("b")), of(executor("b"))) == ThreadLevelUpdate(stop=("a",))


def test_nothing_is_done_when_nothing_differs() -> None:
    same = update(of(executor("a", shards=("o/0", "o/1"))), of(executor("a", shards=("o/1", "o/0"))))
    assert same == ThreadLevelUpdate()
    assert not same


def test_other_shards_or_another_version_only_refresh() -> None:
    running = of(executor("a"), executor("b"), executor("c"))
    assigned = of(executor("a", shards=("o/1",)), executor("b", version=2), executor("c"))
    assert update(running, assigned) == ThreadLevelUpdate(refresh=("a", "b"))


def test_more_tasks_are_started_and_fewer_stopped_without_a_restart() -> None:
    running = of(executor("a", tasks=1), executor("b", tasks=3), executor("c", tasks=2))
    assigned = of(executor("a", tasks=3), executor("b", tasks=1), executor("c", tasks=2))
    assert update(running, assigned) == ThreadLevelUpdate(resize=(Resize("a", 2), Resize("b", -2)))


def test_all_cases_come_at_once_and_touch_only_their_own() -> None:
    running = of(executor("stays"), executor("goes"), executor("grows"))
    assigned = of(executor("stays"), executor("comes"), executor("grows", tasks=2, version=2))
    changed = update(running, assigned)
    assert changed == ThreadLevelUpdate(
        start=("comes",), stop=("goes",), resize=(Resize("grows", 1),), refresh=("grows",)
    )
    assert changed


def test_a_worker_without_executors_stays_as_a_warm_spare() -> None:
    assert update(of(executor("a")), {}) == ThreadLevelUpdate(stop=("a",), turn_off=False)


def test_a_topology_that_is_gone_turns_the_worker_off_whatever_is_assigned() -> None:
    gone = update(of(executor("b"), executor("a")), of(executor("c")), topology_gone=True)
    assert gone == ThreadLevelUpdate(stop=("a", "b"), turn_off=True)
    assert update({}, {}, topology_gone=True)
