"""Nodes stop and come back, or are drained, while words are counted: the totals are exact each time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.harness.cluster import Cluster, ready, restarts
from e2e.harness.faults import cordoned, start_node, stop_node, tainted
from e2e.harness.installation import STORES, Installation, node_of
from e2e.harness.topologies import Sizes, WordCount
from e2e.harness.watching import Object
from penstock.api.schedule_object import from_object
from penstock.schedule.record import ShardPlace

pytestmark = pytest.mark.alone

GOES_ON_ROWS = 200
LOST_S = 90
LOST_WITH_THE_LEADER_S = 180
"""The operator's leader may have been on the node: who leads next waits for the Lease and counts anew."""
DRAIN_S = 180
DISRUPTED = "karpenter.sh/disrupted=true:NoSchedule"
AGAIN_S = 180


def shards(counting: WordCount) -> dict[str, Object]:
    """Operator -> its shards' places, as its Schedule has them."""
    return {each["spec"]["operator"]: each["spec"]["shards"] for each in counting.schedules()}


def homes(counting: WordCount) -> set[str]:
    return {part["home"] for places in shards(counting).values() for part in places}


def placed(counting: WordCount) -> dict[str, ShardPlace]:
    """Every shard's place."""
    found = [from_object(each) for each in counting.schedules()]
    return {shard: place for each in found for shard, place in each.shards.items()}


def accept_loss(cluster: Cluster, counting: WordCount) -> None:
    """As whoever reads the condition does: look, then accept what is shown."""
    command = (str(Path(sys.executable).parent / "penstock"), "accept-loss", counting.name)
    command = (*command, "--namespace", cluster.namespace)
    shown = cluster.environment.run(*command, seconds=60)
    ids = [one["id"] for one in counting.object()["status"]["lost"]]
    assert all(one in shown for one in ids)
    options = [option for one in ids for option in ("--id", one)]
    assert "accepted" in cluster.environment.run(*command, *options, seconds=60)


def shards_moving(schedule: Object) -> int:
    """As `kubectl get schedules` shows it; -1 where nothing is said."""
    return int(schedule.get("status", {}).get("shardsMoving", -1))


def test_a_node_stops_and_starts_again(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    """Its shards wait; those of the other node go on."""
    counting = word_count("node-stops", lines=200, sizes=Sizes(durability="Disk"))
    with counting.held_open():
        counting.wait_workers(2)
        counting.wait_rows()
        before = shards(counting)
        other, node = cluster.worker_nodes
        (living,) = [pod for pod in counting.workers() if node_of(pod) == other]
        stop_node(cluster, node)
        try:
            # Nobody on the node that stopped writes any more: these are the other one's.
            counting.wait_rows(len(counting.rows()) + GOES_ON_ROWS)
            cluster.wait_node(node, False, LOST_S)
            condition = counting.wait_condition("StoreAvailable", "False", LOST_S)
            assert node in condition["message"]
            assert shards(counting) == before
            (still,) = [pod for pod in counting.workers() if node_of(pod) == other]
            assert ready(still)
            assert (still["metadata"]["uid"], restarts(still)) == (living["metadata"]["uid"], 0)
        finally:
            start_node(cluster, node)
    installation.wait_stores(AGAIN_S)
    counting.assert_exact(AGAIN_S)


def test_a_node_is_drained_and_used_again(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("drained", lines=200)
    node, other = cluster.worker_nodes
    with ExitStack() as held:
        held.enter_context(counting.held_open())
        counting.wait_workers(2)
        counting.wait_rows()
        with cordoned(cluster, node):
            with cluster.recording("schedules", counting.selector) as states:
                cluster.kubectl(
                    "drain",
                    node,
                    "--ignore-daemonsets",
                    "--delete-emptydir-data",
                    "--pod-selector=app.kubernetes.io/name=penstock",
                    f"--timeout={DRAIN_S}s",
                    seconds=DRAIN_S + 30,
                )
            assert max(shards_moving(state) for state in states) > 0
            assert [shards_moving(each) for each in counting.schedules()] == [0] * len(counting.schedules())
            assert homes(counting) == {other}
            assert {node_of(pod) for pod in counting.workers()} == {other}
            assert node not in {node_of(pod) for pod in cluster.all("pods", STORES)}
            held.close()
            counting.assert_exact()
    installation.wait_stores()
    again = word_count("used-again", lines=50)
    again.wait_rows()
    assert {node_of(pod) for pod in again.workers()} == homes(again) == {node, other}
    again.assert_exact()


@pytest.mark.slow(held_by="test_a_node_is_drained_and_used_again")
def test_a_node_that_an_autoscaler_taints_is_left_with_its_state(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("tainted", lines=200)
    node, other = cluster.worker_nodes
    with ExitStack() as held:
        held.enter_context(counting.held_open())
        counting.wait_workers(2)
        counting.wait_rows()
        assert homes(counting) == {node, other}
        with tainted(cluster, node, DISRUPTED):
            cluster.wait_all(
                "schedules",
                counting.selector,
                f"all shards are on {other}",
                lambda found: (
                    all(part["home"] == other for each in found for part in each["spec"]["shards"])
                    and not any(map(shards_moving, found))
                ),
                DRAIN_S,
            )
            cluster.wait_all(
                "pods",
                counting.worker_selector,
                f"all workers are on {other}",
                lambda pods: {node_of(pod) for pod in pods} == {other},
                DRAIN_S,
            )
            counting.wait_rows(len(counting.rows()))
            held.close()
            counting.assert_exact()
    installation.wait_stores()


@pytest.mark.slow(held_by="test_what_was_lost_with_a_node_begins_anew_on_another_one_once_that_is_accepted")
def test_a_node_is_deleted_for_good_and_what_was_lost_with_it_is_accepted(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    """Stores are on volumes of their machines here, so the state is lost with the node."""
    counting = word_count("deleted-node", lines=200, sizes=Sizes(durability="Disk"))
    node, other = cluster.worker_nodes
    with counting.held_open():
        counting.wait_workers(2)
        counting.wait_rows()
        before = shards(counting)
        assert homes(counting) == {node, other}
        kept = {shard for shard, place in placed(counting).items() if place.home == other}
        stop_node(cluster, node)
        try:
            cluster.kubectl("delete", "node", node)
            condition = counting.wait_condition(
                "StoreAvailable", "False", LOST_WITH_THE_LEADER_S, "StateLost"
            )
            assert f"node {node} is gone" in condition["message"]
            assert f"penstock accept-loss {counting.name}" in condition["message"]
            had = {name for name, places in before.items() if any(part["home"] == node for part in places)}
            cluster.wait(
                "topology",
                counting.name,
                f"what {', '.join(sorted(had))} lost is told",
                lambda found: {one["operator"] for one in found["status"].get("lost", ())} == had,
                LOST_S,
            )
            assert shards(counting) == before, "nobody begins anything anew by himself"
            accept_loss(cluster, counting)
            cluster.wait_all(
                "schedules",
                counting.selector,
                f"all shards are on {other}",
                lambda found: all(part["home"] == other for each in found for part in each["spec"]["shards"]),
                AGAIN_S,
            )
            counting.wait_condition("Ready", "True", AGAIN_S)
            anew = {shard for shard, place in placed(counting).items() if place.life}
            assert anew == placed(counting).keys() - kept
            assert "lost" not in counting.object()["status"]
            counting.wait_rows(len(counting.rows()))
        finally:
            start_node(cluster, node)
    installation.wait_stores(AGAIN_S)
    again = word_count("again-on-both", lines=50)
    again.wait_rows()
    assert homes(again) == {node, other}
    again.assert_exact()
