"""One release serves a second namespace: two topologies of one name, one in each, both count right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.installation import RELEASE, STORES, Installation
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import WordCount
from e2e.harness.watching import Object

TEAM = "penstock-e2e-team"
RENEWED_S = 400
"""Stores get another template where there were no further namespaces: one node after the other."""


def wait_followed(installation: Installation, *, is_followed: bool) -> None:
    """Wait until the agents of all stores follow further namespaces, or none."""

    def are_made_anew(pods: list[Object]) -> bool:
        mounted = [{volume["name"] for volume in pod["spec"]["volumes"]} for pod in pods]
        return bool(pods) and all(("namespaces" in names) == is_followed for names in mounted)

    what = "all stores are of their new template"
    installation.cluster.wait_all("pods", STORES, what, are_made_anew, RENEWED_S)
    installation.wait_stores()


@pytest.fixture
def team(installation: Installation) -> Iterator[Cluster]:
    """A second namespace, at Pod Security `restricted`, that the release serves; it goes with the test."""
    cluster = replace(installation.cluster, namespace=TEAM)
    Installation(cluster).make_namespace()
    shared = SharedFolder.made(cluster)
    installation.install(values={"namespaces": f"{{{TEAM}}}"})
    wait_followed(installation, is_followed=True)
    yield cluster
    cluster.kubectl("delete", "topologies", "--all", "--wait=true", seconds=90)
    cluster.wait_all("pods", "app.kubernetes.io/name=penstock", "no pods are left", lambda pods: not pods, 90)
    installation.install()
    wait_followed(installation, is_followed=False)
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
    there.wait_workers(2)
    assert not team.all("statefulsets")
    assert here.state_uid() != there.state_uid()
    for one, topology in ((cluster, here), (team, there)):
        logins = set(one.get("secret", f"{RELEASE}-store-workers")["data"])
        both = {here.state_uid(), there.state_uid()}
        assert logins & both == {topology.state_uid()}
    here.assert_exact()
    there.assert_exact()
    assert here.expected != there.expected
    state_uid = there.state_uid()
    there.delete()
    there.wait_gone()
    installation.wait_without(state_uid)
    assert any(installation.store_keys(here.state_uid()).values())
