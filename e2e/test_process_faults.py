"""Processes die, or stop and go on, while words are counted: the totals are exact each time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.faults import frozen, kill_container, kill_pod
from e2e.harness.installation import OPERATORS, RELEASE, Installation
from e2e.harness.topologies import Sizes, WordCount
from e2e.harness.watching import wait_until

BACK_S = 90
LEASE_S = 15


@pytest.mark.slow(
    held_by="test_payments_between_two_topics_are_decided_once_while_workers_are_killed_and_shards_move"
)
def test_a_worker_pod_is_deleted_and_then_the_others_processes_are_killed(
    cluster: Cluster, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("workers-die", lines=300)
    with counting.held_open():
        counting.wait_rows()
        victim, other = counting.workers()
        kill_pod(cluster, victim["metadata"]["name"])
        gone = victim["metadata"]["uid"]
        cluster.wait_all(
            "pods",
            counting.worker_selector,
            "a worker comes in its place",
            lambda pods: len(pods) == 2 and gone not in [pod["metadata"]["uid"] for pod in pods],
            BACK_S,
        )
        kill_container(cluster, other["metadata"]["name"], "worker")
    counting.assert_exact()


@pytest.mark.alone
def test_totals_are_exact_though_a_store_and_leaders_and_agents_die_and_a_leader_stands_still(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    """One run of topologies of both modes is struck by all of them, one after the other."""
    both = [
        word_count(f"struck-{mode.lower()}", lines=400, sizes=Sizes(durability=mode))
        for mode in ("Process", "Disk")
    ]
    with ExitStack() as held:
        for counting in both:
            held.enter_context(counting.held_open())
            counting.wait_workers(2)
            counting.wait_rows()

        a_leader_stands_still_past_its_lease(cluster, installation, both[0])
        nothing_is_counted_wrong(both)
        a_node_store_is_killed(cluster, installation, both)
        nothing_is_counted_wrong(both)
        the_leader_is_killed(cluster, installation)
        nothing_is_counted_wrong(both)
        data_flows_on_without_operators_while_the_agents_are_killed(cluster, installation, both, held.close)
    for counting in both:
        counting.assert_exact()


def nothing_is_counted_wrong(both: list[WordCount]) -> None:
    for counting in both:
        assert counting.faults(complete=False) == [], counting.name


def a_leader_stands_still_past_its_lease(
    cluster: Cluster, installation: Installation, counting: WordCount
) -> None:
    """It writes no Schedule afterwards."""
    leader, term = installation.leader(), installation.term()
    old = installation.leading_pod()
    started = {each["metadata"]["name"]: _starts(each) for each in cluster.all("pods", OPERATORS)}
    with frozen(cluster, old, "operator"):
        installation.wait_other_leader(leader, LEASE_S * 4)
        # Something to be written, by whoever leads.
        counting.edit_operator("count", {"tasks": {"min": 1, "max": 4, "initial": 3}})
        cluster.wait_all(
            "schedules",
            counting.selector,
            "the new leader wrote a Schedule",
            lambda found: any(each["spec"]["term"] > term for each in found),
            BACK_S,
        )
    written = {each["metadata"]["name"]: each for each in counting.schedules()}
    # Going on, it finds its lease lost and ends.
    cluster.wait("pods", old, "the old leader ended", lambda pod: _starts(pod) != started[old], BACK_S)
    now_term = installation.term()
    assert now_term > term
    for schedule in counting.schedules():
        before = written[schedule["metadata"]["name"]]["spec"]
        assert schedule["spec"]["term"] >= before["term"]
        assert schedule["spec"]["term"] in (before["term"], now_term)
        assert schedule["spec"]["version"] >= before["version"]


def a_node_store_is_killed(cluster: Cluster, installation: Installation, both: list[WordCount]) -> None:
    """Rows of both modes come afterwards."""
    more_than = [len(counting.rows()) for counting in both]
    kill_container(cluster, installation.store_pod(cluster.worker_nodes[0]), "store")
    for counting, rows in zip(both, more_than, strict=True):
        counting.wait_rows(rows)


def the_leader_is_killed(cluster: Cluster, installation: Installation) -> None:
    leader, term = installation.leader(), installation.term()
    kill_container(cluster, installation.leading_pod(), "operator")
    installation.wait_other_leader(leader)
    assert installation.term() > term


def data_flows_on_without_operators_while_the_agents_are_killed(
    cluster: Cluster, installation: Installation, both: list[WordCount], let_input_end: Callable[[], None]
) -> None:
    deployment = f"deployment/{RELEASE}-operator"
    cluster.kubectl("scale", deployment, "--replicas=0")
    cluster.wait_all("pods", OPERATORS, "no operator is left", lambda pods: not pods, BACK_S)
    try:
        for pod in installation.stores():
            kill_container(cluster, pod, "agent")
        for counting in both:
            counting.wait_rows(len(counting.rows()))
        let_input_end()
        for counting in both:
            wait_until("all totals are there", lambda one=counting: one.faults() == [], BACK_S, every_s=1)
    finally:
        cluster.kubectl("scale", deployment, "--replicas=2")
        installation.wait_ready()


def _starts(pod: dict[str, object]) -> str:
    """Which start of its containers a pod is in."""
    statuses = pod["status"]["containerStatuses"]  # type: ignore[index]
    return ",".join(str(each.get("containerID")) for each in statuses)
