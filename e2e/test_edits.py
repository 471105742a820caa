"""Edits of a topology that runs: sizes and pauses restart nothing, other settings roll worker by worker."""

from __future__ import annotations

from collections.abc import Callable

from e2e.harness.cluster import restarts, uids
from e2e.harness.topologies import Sizes, WordCount
from e2e.harness.watching import Object, wait_until

EDIT_S = 60
IDLE_S = 180
"""An operator is idle after a minute."""


def tasks_ready(topology: Object) -> int:
    return sum(int(each.get("tasksReady", 0)) for each in topology["status"].get("operators", []))


def cpu_limits(pods: list[Object]) -> set[str]:
    """What the kubelets have set, which is not what was asked for until it is done."""
    return {
        str(status.get("resources", {}).get("limits", {}).get("cpu"))
        for pod in pods
        for status in pod["status"]["containerStatuses"]
    }


def wait_tasks(counting: WordCount, count: int) -> None:
    counting.cluster.wait(
        "topology",
        counting.name,
        f"{count} tasks of {counting.name} are ready",
        lambda found: tasks_ready(found) == count,
        EDIT_S,
    )


def test_an_edit_of_cores_resizes_pods_in_place_and_tasks_follow_and_kubectl_scales_workers(
    word_count: Callable[..., WordCount],
) -> None:
    """Two workers of four tasks each have room for all six; of two each, only for four."""
    counting = word_count("resized", lines=100, sizes=Sizes(task_cpu="250m", tasks=4))
    with counting.held_open():
        before = uids(counting.wait_workers(2))
        wait_tasks(counting, 6)

        counting.edit({"workers": {"cores": {"max": "500m"}}})
        wait_tasks(counting, 4)
        wait_until("limits are 500m", lambda: cpu_limits(counting.workers()) == {"500m"}, EDIT_S)

        counting.edit({"workers": {"cores": {"max": "1"}}})
        wait_tasks(counting, 6)
        wait_until("limits are 1", lambda: cpu_limits(counting.workers()) == {"1"}, EDIT_S)

        after = counting.workers()
        assert uids(after) == before
        assert [restarts(pod) for pod in after] == [0, 0]

        counting.edit({"workers": {"max": 3}})
        counting.cluster.kubectl("scale", "topology", counting.name, "--replicas=3")
        assert uids(counting.wait_workers(3)) > before
    counting.assert_exact()


def test_a_paused_topology_holds_and_goes_on_exactly_also_when_an_operator_gave_its_last_task_back(
    word_count: Callable[..., WordCount],
) -> None:
    counting = word_count("paused", lines=100)

    def tasks() -> int:
        (schedule,) = [each for each in counting.schedules() if each["spec"]["operator"] == "count"]
        return sum(int(executor["tasks"]) for executor in schedule["spec"]["executors"])

    def pause() -> int:
        counting.edit({"paused": True})
        counting.wait_phase("Paused", EDIT_S)
        return len(counting.rows())

    def go_on(held: int) -> None:
        counting.edit({"paused": False})
        counting.wait_rows(more_than=held, seconds=EDIT_S)

    with counting.held_open():
        counting.wait_rows()
        before = uids(counting.workers())
        held = pause()
        assert counting.faults(complete=False) == []
        assert uids(counting.workers()) == before
        go_on(held)

        counting.edit_operator("count", {"tasks": {"min": 0, "max": 4, "initial": 2}})
        held = pause()
        wait_until("count has no task any more", lambda: tasks() == 0, IDLE_S, every_s=2)
        assert len(counting.rows()) == held, "a topology that is paused put out rows within that minute"
        go_on(held)
        assert uids(counting.workers()) == before
    counting.assert_exact()


def test_other_pod_settings_roll_the_workers_one_by_one(word_count: Callable[..., WordCount]) -> None:
    counting = word_count("rolled", lines=200)
    with counting.held_open():
        before = counting.wait_workers(2)
        counting.wait_rows()

        pod = counting.manifest["spec"]["pod"] | {"env": [{"name": "GREETING", "value": "hello"}]}
        counting.edit({"pod": pod})
        rolled = counting.wait_rolled(before)
    assert all(
        {"name": "GREETING", "value": "hello"} in each["spec"]["containers"][0]["env"] for each in rolled
    )
    counting.assert_exact()
