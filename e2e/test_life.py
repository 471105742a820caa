"""What becomes of a topology's state when the Topology is deleted."""

from __future__ import annotations

from collections.abc import Callable

from e2e.harness.cluster import Cluster
from e2e.harness.installation import Installation
from e2e.harness.topologies import WordCount
from e2e.harness.watching import wait_until

EMPTY_S = 30


def wait_stores_empty_of(installation: Installation, uid: str) -> None:
    """Wait until the stores hold nothing of the topology with this state but the mark that it is gone, which
    keeps late calls out."""
    tombstone = f"penstock:{uid}:tombstone"
    wait_until(
        f"no store holds keys of {uid}",
        lambda: all(set(keys) <= {tombstone} for keys in installation.store_keys(uid).values()),
        EMPTY_S,
        every_s=1,
    )


def test_a_deleted_topology_leaves_nothing_in_kubernetes_and_nothing_in_the_stores(
    installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("deleted")
    counting.wait_rows()
    uid = counting.state_uid()
    assert all(installation.store_keys(uid).values())

    counting.delete()
    counting.wait_gone()
    wait_stores_empty_of(installation, uid)


def test_a_retained_topology_that_is_applied_again_goes_on_where_it_was(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("retained")
    counting.edit({"deletionPolicy": "Retain"})
    counting.wait_rows(more_than=500)
    uid = counting.state_uid()

    counting.delete()
    cluster.wait_all(
        "pods", counting.worker_selector, "no worker is left", lambda pods: not pods, EMPTY_S * 2
    )
    assert {each["spec"]["topologyUid"] for each in counting.schedules()} == {uid}
    assert counting.faults(complete=False) == []

    # With the default policy again, so that nothing is left of it in the end.
    cluster.apply(counting.manifest)
    counting.assert_exact()
    assert counting.state_uid() == uid

    counting.delete()
    counting.wait_gone()
    wait_stores_empty_of(installation, uid)
