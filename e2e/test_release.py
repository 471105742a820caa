"""The chart's release as a whole: tested, upgraded from the version before, and taken away."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.installation import (
    CHART,
    KEEPING_VALUES,
    PROCESS_VALUES,
    RELEASE,
    SMALL_VALUES,
    Installation,
)
from e2e.harness.previous_release import PreviousRelease
from e2e.harness.topologies import Sizes, WordCount

UNINSTALLED_S = 60
# What is left is somebody else's: Kubernetes', or the tests' own.
NOT_OURS = {"kube-root-ca.crt", "default", "shared"}
READABLE_KINDS = (
    "pods,statefulsets,deployments,jobs,configmaps,services,serviceaccounts,roles,rolebindings,"
    "leases,poddisruptionbudgets,networkpolicies,persistentvolumeclaims"
)
"""Kinds that whoever looks after a namespace may read without seeing a secret."""
KINDS = f"{READABLE_KINDS},secrets"
KINDS_OF_PENSTOCK = "topologies,latencyslas,schedules,events"
USERS = ("worker", "operator", "agent")
CLUSTER_KINDS = (
    "customresourcedefinitions,clusterroles,clusterrolebindings,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)


def left_over(cluster: Cluster) -> set[str]:
    """What belongs to Penstock, or to its namespace, as kind/name."""
    inside = cluster.kubectl("get", KINDS, "--output=name").split()
    outside = cluster.kubectl("get", CLUSTER_KINDS, "--output=name").split()
    return {name for name in inside if name.rpartition("/")[2] not in NOT_OURS} | {
        name for name in outside if "penstock" in name
    }


def test_helm_test_passes(cluster: Cluster, installation: Installation) -> None:
    assert "Phase:          Succeeded" in cluster.helm("test", RELEASE)


def test_what_helm_says_after_the_install_is_of_its_values(
    cluster: Cluster, installation: Installation
) -> None:
    said = " ".join(cluster.helm("get", "notes", RELEASE).split())
    assert f"is in namespace {cluster.namespace}, release {RELEASE}." in said
    told = ("Node stores are on volumes of the cluster's default storage class.", "It deletes the CRDs too")
    others = ("stays Pending", "leaves Topologies, workers and node stores behind", "does not see the pods")
    assert [words for words in (*told, *others) if words in said] == list(told)


def where_passwords_stand(cluster: Cluster) -> list[str]:
    """Which logs and objects hold a password of the stores, but for the Secrets that are made for them."""
    data = cluster.get("secret", f"{RELEASE}-store-auth")["data"]
    keys = ("workers-key", *(f"{user}-password" for user in USERS))
    held = [data[key] for key in keys]
    held += (cluster.get("secret", f"{RELEASE}-store-workers").get("data") or {}).values()
    passwords = [base64.b64decode(value).decode() for value in held]
    written = {"objects": cluster.kubectl("get", f"{READABLE_KINDS},{KINDS_OF_PENSTOCK}", "--output=yaml")}
    for pod in cluster.all("pods"):
        for status in pod["status"].get("containerStatuses", []):
            asked = ("logs", pod["metadata"]["name"], f"--container={status['name']}")
            for which in [(), ("--previous",)] if status["restartCount"] else [()]:
                written[" ".join((*asked, *which))] = cluster.kubectl(*asked, *which)
    assert {"agent", "operator", "store", "worker"} <= {name.rpartition("=")[2] for name in written}
    return [name for name, text in written.items() for password in passwords if password in text]


@pytest.mark.alone
def test_a_release_tells_nobody_its_stores_passwords_and_is_soon_gone_with_its_live_topologies(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("uninstalled", lines=5000, lines_per_second=10)
    counting.wait_rows()
    assert where_passwords_stand(cluster) == []
    started = time.monotonic()
    installation.uninstall()
    took_s = time.monotonic() - started
    assert left_over(cluster) == set()
    assert took_s < UNINSTALLED_S


@pytest.mark.alone
@pytest.mark.slow(held_by="test_an_uninstall_destroys_what_it_is_asked_to_and_no_more")
def test_a_release_that_is_installed_again_goes_on_with_the_topologies_that_it_left(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    installation.install(values=KEEPING_VALUES)
    counting = word_count("reinstalled", lines=200)
    with counting.held_open():
        counting.wait_rows(more_than=500)
        uid = counting.state_uid()
        installation.uninstall()
        cluster.wait_all(
            "pods", "app.kubernetes.io/name=penstock", "no pod is left", lambda pods: not pods, 60
        )
        assert counting.state_uid() == uid
        assert counting.schedules()
        rows = len(counting.rows())

        installation.install()
        counting.wait_rows(rows)
        assert counting.state_uid() == uid
    counting.assert_exact(240)


@pytest.mark.alone
def test_an_upgrade_from_the_version_before_keeps_a_topology_running(
    cluster: Cluster,
    installation: Installation,
    word_count: Callable[..., WordCount],
    tmp_path: Path,
) -> None:
    previous = PreviousRelease.packaged(cluster, tmp_path)
    installation.install(previous.chart, {**PROCESS_VALUES, **previous.values})
    counting = word_count("upgraded", lines=200, sizes=Sizes(durability="Process"))
    with counting.held_open():
        counting.wait_rows()
        before = cluster.get("secret", f"{RELEASE}-store-auth")["data"]

        installation.install(CHART, PROCESS_VALUES)
        after = cluster.get("secret", f"{RELEASE}-store-auth")["data"]
        kept = [f"{user}-password" for user in USERS]
        assert [after[key] for key in kept] == [before[key] for key in kept], "passwords are kept"
        counting.wait_rows(len(counting.rows()))
    counting.assert_exact(240)


@pytest.mark.alone
@pytest.mark.timeout(1800)
@pytest.mark.slow(held_by="test_an_upgrade_from_the_version_before_keeps_a_topology_running")
def test_workers_of_the_version_before_work_on_through_an_upgrade_and_a_downgrade(
    cluster: Cluster,
    installation: Installation,
    word_count: Callable[..., WordCount],
    tmp_path: Path,
) -> None:
    """Its real images and chart, and a user's image built from its worker, which stays as it is."""
    previous = PreviousRelease.built(cluster, tmp_path)
    before = {**PROCESS_VALUES, **previous.values}
    installation.uninstall()
    installation.install(previous.chart, before, small=previous.small)
    counting = word_count(
        "of-before", lines=200, sizes=Sizes(durability="Process"), image=previous.word_count_image
    )
    with counting.held_open():
        counting.wait_rows()
        uid = counting.state_uid()
        for chart, values, small in (
            (CHART, PROCESS_VALUES, SMALL_VALUES),
            (previous.chart, before, previous.small),
            (CHART, PROCESS_VALUES, SMALL_VALUES),
        ):
            installation.install(chart, values, small=small)
            counting.wait_rows(len(counting.rows()))
            assert counting.state_uid() == uid
    counting.assert_exact(240)
