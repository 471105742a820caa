"""Volumes of stores while words are counted: they grow where their class allows it; elsewhere it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from e2e.harness.cluster import Cluster, restarts
from e2e.harness.installation import STORES, Installation
from e2e.harness.topologies import Sizes, WordCount
from e2e.harness.watching import Object, wait_until

CLASS = "growing"
SIZE, LARGER = "1Gi", "2Gi"
TOLD_S = 60.0
RENEWED_S = 300.0
"""A store after the other hands its shards over and is made anew."""
GROWING: Object = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": CLASS},
    "provisioner": "rancher.io/local-path",
    "volumeBindingMode": "WaitForFirstConsumer",
    "reclaimPolicy": "Delete",
    "allowVolumeExpansion": True,
}
"""The cluster's own directories. The API server lets their claims grow; nobody limits them, so nothing more
comes of it here."""


def claims(cluster: Cluster) -> list[tuple[str, str]]:
    """(storage class, size) of each store's claim, two empty ones while a store is without."""
    found = {each["metadata"]["name"]: each["spec"] for each in cluster.all("persistentvolumeclaims")}
    of_stores = [f"data-{store}-0" for store in sorted(cluster.names("statefulsets", STORES))]
    return [
        (found[one]["storageClassName"], found[one]["resources"]["requests"]["storage"])
        if one in found
        else ("", "")
        for one in of_stores
    ]


def starts(cluster: Cluster) -> dict[str, int]:
    """Of each store's pod."""
    return {pod["metadata"]["uid"]: restarts(pod) for pod in cluster.all("pods", STORES)}


def told(cluster: Cluster, reason: str) -> list[str]:
    """What events of this reason say of StatefulSets."""
    return [
        str(event.get("note") or event.get("message"))
        for event in cluster.all("events")
        if event["reason"] == reason and event["involvedObject"]["kind"] == "StatefulSet"
    ]


@pytest.fixture
def growing(cluster: Cluster, installation: Installation) -> Iterator[None]:
    """A class whose volumes may grow; afterwards the stores are as the other tests know them."""
    cluster.apply(GROWING)
    (usual,) = set(claims(cluster))
    yield
    installation.install()
    wait_until("stores are as before", lambda: set(claims(cluster)) == {usual}, RENEWED_S, every_s=1)
    installation.wait_stores()
    cluster.delete("storageclass", CLASS)


@pytest.mark.alone
@pytest.mark.timeout(1200)
@pytest.mark.slow(held_by="test_volumes_grow_and_nothing_else_happens")
@pytest.mark.usefixtures("growing")
def test_volumes_grow_under_a_running_topology_where_their_class_allows_it(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("grown", lines=200, sizes=Sizes(durability="Disk"))
    with counting.held_open():
        counting.wait_rows()
        before, stores = claims(cluster), starts(cluster)
        installation.install(values={"store.size": LARGER})
        wait_until(
            "it is told that the volumes do not grow",
            lambda: any(f"does not grow to {LARGER}" in note for note in told(cluster, "StoreVolumeKept")),
            TOLD_S,
        )
        assert claims(cluster) == before
        assert starts(cluster) == stores

        installation.install(values={"store.size": SIZE, "store.storageClassName": CLASS})
        wait_until(
            f"all stores have volumes of class {CLASS}",
            lambda: set(claims(cluster)) == {(CLASS, SIZE)},
            RENEWED_S,
            every_s=1,
        )
        installation.wait_stores()
        counting.wait_rows(len(counting.rows()))

        stores = starts(cluster)
        installation.install(values={"store.size": LARGER, "store.storageClassName": CLASS})
        wait_until("they grow", lambda: set(claims(cluster)) == {(CLASS, LARGER)}, TOLD_S, every_s=1)
        assert starts(cluster) == stores
        counting.wait_rows(len(counting.rows()))
    counting.assert_exact()
