"""What becomes of a topology's state when the Topology is deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.commands import CommandFailed
from e2e.harness.installation import Installation
from e2e.harness.topologies import WordCount
from e2e.harness.watching import Object

SOMEBODY = ("--as=somebody", "--as-group=system:masters")
"""Who may do everything that roles allow; the tests' own user writes Schedules (`alsoWrittenBy`)."""
REBUILT_S = 60
LEFT_S = 60


def are_newer(before: Mapping[str, Object], names: Collection[str], found: list[Object]) -> bool:
    """Whether the Schedules of before are there, those of `names` with a later version."""
    versions = {each["metadata"]["name"]: each["spec"]["version"] for each in found}
    return versions.keys() == before.keys() and all(
        versions[name] > before[name]["spec"]["version"] for name in names
    )


@pytest.mark.slow(held_by="test_a_retained_topology_that_is_applied_again_goes_on_where_it_was")
def test_a_deleted_topology_leaves_nothing_in_kubernetes_and_nothing_in_the_stores(
    installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("deleted")
    counting.wait_rows()
    uid = counting.state_uid()
    assert all(installation.store_keys(uid).values())

    counting.delete()
    counting.wait_gone()
    installation.wait_without(uid)


def test_a_retained_topology_that_is_applied_again_goes_on_where_it_was(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("retained")
    counting.edit({"deletionPolicy": "Retain"})
    counting.wait_rows(more_than=500)
    uid = counting.state_uid()

    counting.delete()
    cluster.wait_all("pods", counting.worker_selector, "no worker is left", lambda pods: not pods, LEFT_S)
    assert {each["spec"]["topologyUid"] for each in counting.schedules()} == {uid}
    assert counting.faults(complete=False) == []

    # With the default policy again, so that nothing is left of it in the end.
    cluster.apply(counting.manifest)
    counting.assert_exact()
    assert counting.state_uid() == uid

    assert all(installation.store_keys(uid).values())
    counting.delete()
    counting.wait_gone()
    installation.wait_without(uid)


def test_schedules_are_not_somebodys_to_write_or_delete(
    cluster: Cluster, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("guarded", lines=100)
    counting.wait_rows()
    told = "Schedules are written and deleted by Penstock's operator alone"
    name = counting.schedules()[0]["metadata"]["name"]
    patch = '--patch={"spec":{"version":999}}'
    for tried in (
        ("delete", "schedule", name, "--wait=false"),
        ("patch", "schedule", name, "--type=merge", patch),
    ):
        with pytest.raises(CommandFailed) as refused:
            cluster.kubectl(*tried, *SOMEBODY)
        assert told in refused.value.errors
    cluster.kubectl("delete", "penstock", "--all", "--dry-run=server", *SOMEBODY)
    counting.assert_exact()


@pytest.mark.slow(held_by="test_all_schedules_that_were_deleted_are_rebuilt")
def test_schedules_that_somebody_deletes_come_back_and_the_totals_are_exact(
    cluster: Cluster, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("schedules-deleted", lines=200)
    with counting.held_open():
        counting.wait_rows(more_than=500)
        before = {each["metadata"]["name"]: each for each in counting.schedules()}
        for names in ({"schedules-deleted.count"}, set(before)):
            cluster.delete("schedule", *names)
            cluster.wait_all(
                "schedules",
                counting.selector,
                "all Schedules are there, and newer",
                partial(are_newer, before, names),
                REBUILT_S,
            )
            counting.wait_rows(len(counting.rows()))
            assert counting.faults(complete=False) == []
        assert {each["spec"]["topologyUid"] for each in counting.schedules()} == {counting.state_uid()}
    counting.assert_exact()
