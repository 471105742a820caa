"""One release serves a second namespace: two topologies of one name, one in each, both count right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.installation import RELEASE, Installation
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import WordCount
from e2e.harness.watching import wait_until

TEAM = "penstock-e2e-team"
RENEWED_S = 400
"""Stores get another template where there were no further namespaces: one node after the other."""


@pytest.fixture
def team(installation: Installation) -> Iterator[Cluster]:
    """A second namespace, at Pod Security `restricted`, that the release serves; it goes with the test."""
    cluster = replace(installation.cluster, namespace=TEAM)
    Installation(cluster).make_namespace()
    shared = SharedFolder.made(cluster)
    installation.install(values={"namespaces": f"{{{TEAM}}}"})
    yield cluster
    cluster.kubectl("delete", "topologies", "--all", "--wait=true", seconds=90)
    cluster.wait_all("pods", "app.kubernetes.io/name=penstock", "no pods are left", lambda pods: not pods, 90)
    installation.install()
    shared.forget(cluster)
    cluster.delete("namespace", TEAM, wait=True)


@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.slow(held_by="test_two_topologies_of_one_name_run_beside_each_other_and_do_not_meet")
def test_two_topologies_of_one_name_in_two_namespaces_count_exactly(
    cluster: Cluster, installation: Installation, team: Cluster, word_count: Callable[..., WordCount]
) -> None:
    here = word_count("same-name", lines=200)
    there = WordCount.made(team, SharedFolder.of(team), "same-name", lines=400)
    team.apply(there.manifest)
    there.wait_workers(2, RENEWED_S)
    assert not team.all("statefulsets")
    assert set(team.get("secret", f"{RELEASE}-store-auth")["data"]) == {"worker-password", "spark-key"}
    assert here.state_uid() != there.state_uid()
    here.assert_exact(RENEWED_S)
    there.assert_exact(RENEWED_S)
    assert here.expected != there.expected
    state_uid = there.state_uid()
    there.delete()
    there.wait_gone()
    wait_until(
        "the stores have let go of its state",
        lambda: not any(installation.store_keys(state_uid).values()),
        120,
        every_s=2,
    )
    assert any(installation.store_keys(here.state_uid()).values())
