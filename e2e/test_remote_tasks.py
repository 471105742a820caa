"""Tasks for which a node has no cores run on another one, on shards that stay at home; and they come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.cluster import Cluster, ready
from e2e.harness.faults import filled, kill_pod
from e2e.harness.topologies import Sizes, WordCount
from e2e.harness.watching import Object, wait_until

pytestmark = pytest.mark.alone

SIZES = Sizes(
    workers=1,
    task_cpu="200m",
    cores_min="200m",
    cores_max="1200m",
    memory="1536Mi",
    remote_tasks="Allowed",
)
"""Two tasks of the source and two of `count`, with room for two more."""
TOO_LITTLE_MILLIS = 100
"""Less than a task."""
PROCESSES = "cat /proc/[0-9]*/cmdline 2>/dev/null || true"
LENT_S = 60
BACK_S = 60
GONE_S = 60


def spark_workers(counting: WordCount) -> str:
    """The selector of its Spark worker pods."""
    return f"{counting.selector},app.kubernetes.io/component=spark-worker"


def wait_tasks(counting: WordCount, remote: int, seconds: float) -> None:
    """Until all four tasks of `count` run, so many of them on another node than the worker."""

    def run(found: Object) -> bool:
        (count,) = [each for each in found["status"]["operators"] if each["name"] == "count"]
        return (count["tasksDesired"], count["tasksReady"], count.get("tasksRemote", 0)) == (4, 4, remote)

    what = f"count has 4 tasks, {remote} of them remote"
    counting.cluster.wait("topology", counting.name, what, run, seconds)


def wait_lent(counting: WordCount, than: Object | None = None) -> Object:
    """Wait until two tasks run in the one Spark worker, another one than that; answers its pod."""
    old = than["metadata"]["uid"] if than is not None else ""
    (pod,) = counting.cluster.wait_all(
        "pods",
        spark_workers(counting),
        "one new Spark worker is ready",
        lambda pods: len(pods) == 1 and ready(pods[0]) and pods[0]["metadata"]["uid"] != old,
        LENT_S,
    )
    name = str(pod["metadata"]["name"])

    def run() -> bool:
        lines = counting.cluster.execute(name, "worker", "sh", "-c", PROCESSES)
        return lines.count("penstock_worker.spark.task_daemon") > 2  # they, and what they are forked from

    wait_until(f"two tasks run in {name}", run, LENT_S)
    wait_tasks(counting, remote=2, seconds=LENT_S)
    return pod


@pytest.mark.slow(held_by="test_remote_tasks_work_survive_the_kill_of_their_spark_worker_and_come_home")
def test_a_full_nodes_tasks_run_on_the_other_node_and_come_home(
    cluster: Cluster, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("remote-tasks", lines=300, sizes=SIZES)
    with counting.held_open():
        (home,) = counting.wait_workers(1)
        counting.wait_rows()
        with filled(cluster, str(home["spec"]["nodeName"]), left_millis=TOO_LITTLE_MILLIS):
            counting.edit_operator("count", {"tasks": {"min": 4, "max": 4}})
            pod = wait_lent(counting)
            assert pod["spec"]["nodeName"] != home["spec"]["nodeName"]
            counting.wait_rows(more_than=counting.wait_rows())

            kill_pod(cluster, pod["metadata"]["name"])
            wait_lent(counting, than=pod)
            assert counting.faults(complete=False) == []
        wait_tasks(counting, remote=0, seconds=BACK_S)
        cluster.wait_all(
            "pods", spark_workers(counting), "no Spark worker is left", lambda pods: not pods, GONE_S
        )
        (after,) = counting.workers()
        assert after["metadata"]["uid"] == home["metadata"]["uid"]
    counting.assert_exact()
