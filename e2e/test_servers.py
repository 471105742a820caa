"""Nodes get a second store server and lose it again while words are counted: the totals are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.faults import kill_container
from e2e.harness.installation import STORES, Installation
from e2e.harness.topologies import Sizes, WordCount
from e2e.harness.watching import wait_until

SHARED_S = 240.0
"""New workers start, and take their share of the shards."""
LEFT_S = 420.0
"""One store after the other is left, and removed."""


def homes(counting: WordCount, operator: str) -> Counter[str]:
    """Store -> shards whose home it is, as the Schedule has it."""
    (spec,) = [each["spec"] for each in counting.schedules() if each["spec"]["operator"] == operator]
    found = Counter[str]()
    for part in spec["shards"]:
        ranges = [each.split("-") for each in part.get("ranges", ())]
        found[part["home"]] += sum(int(each[-1]) - int(each[0]) + 1 for each in ranges)
        found[part["home"]] += len(part.get("names", ()))
    return found


def servers_of_workers(counting: WordCount) -> set[tuple[str, str]]:
    """(node, server) of each worker."""
    return {
        (pod["spec"]["nodeName"], pod["metadata"]["labels"].get("penstock.dev/server", "0"))
        for pod in counting.workers()
        if "deletionTimestamp" not in pod["metadata"]
    }


@pytest.fixture
def one_server_again(cluster: Cluster, installation: Installation) -> Iterator[None]:
    """Afterwards the stores are as the other tests know them."""
    yield
    installation.install()
    nodes = len(cluster.worker_nodes)
    cluster.wait_all("pods", STORES, "one store a node", lambda pods: len(pods) == nodes, LEFT_S)


@pytest.mark.alone
@pytest.mark.timeout(1800)
@pytest.mark.slow(held_by="test_a_server_less_is_left_first_and_goes_when_nothing_names_it")
@pytest.mark.usefixtures("one_server_again")
def test_servers_come_and_go_and_are_killed_under_a_topology_that_counts(
    cluster: Cluster, installation: Installation, word_count: Callable[..., WordCount]
) -> None:
    counting = word_count("served", lines=600, sizes=Sizes(durability="Disk", tasks=4))
    with counting.held_open():
        counting.wait_workers(2)
        counting.wait_rows()

        installation.install(values={"store.servers": "2"})
        stores = installation.wait_stores(servers=2)
        assert len(stores) == 2 * len(cluster.worker_nodes)
        counting.edit({"workers": {"min": 4, "max": 4}})
        counting.wait_workers(4)
        all_servers = {(node, server) for node in cluster.worker_nodes for server in "01"}
        assert servers_of_workers(counting) == all_servers
        ids = {node if server == "0" else f"{node}..{server}" for node, server in all_servers}
        wait_until(
            "all stores are homes of counts",
            lambda: set(homes(counting, "count")) == ids,
            SHARED_S,
            every_s=1,
        )
        counting.wait_rows(len(counting.rows()))

        further = [pod for pod in stores if "penstock.dev/store" in pod["metadata"]["labels"]]
        assert len(further) == len(cluster.worker_nodes)
        for container in ("store", "agent"):
            kill_container(cluster, further[0]["metadata"]["name"], container)
        counting.wait_rows(len(counting.rows()))

        installation.install(values={"store.servers": "1"})
        cluster.wait_all(
            "pods", STORES, "one store a node", lambda pods: len(pods) == len(cluster.worker_nodes), LEFT_S
        )
        # A worker that holds nothing goes behind its store.
        wait_until(
            "all workers are on first servers",
            lambda: {server for _, server in servers_of_workers(counting)} == {"0"},
            LEFT_S,
            every_s=1,
        )
        counting.wait_rows(len(counting.rows()))
    counting.assert_exact()
