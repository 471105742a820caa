"""The pod of a Spark worker, and who may reach whom because of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock_operator.cluster.manifests.node_store import node_store
from penstock_operator.cluster.manifests.spark_network_policies import spark_network_policies
from penstock_operator.cluster.manifests.spark_worker_pod import Home, spark_worker_pod
from penstock_operator.cluster.manifests.worker_pod import WorkerPod, worker_pod
from worlds.cluster_world import CONFIG, manifest, read_topology

HOME = Home("words-w0", "uid-w0", "node-a", "10.0.0.7")


def pods(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A worker with remote tasks, and its Spark worker on another node."""
    topology = read_topology(manifest(spec__remoteTasks="Allowed", **changes)).topology
    assert topology is not None
    of = (topology, "uid-words", "uid-state", "0123abcd", CONFIG)
    home = worker_pod(WorkerPod("words-w0", "node-a", "node-a", 1000, 4000, "count"), *of)
    place = WorkerPod("words-w0-on-node-b", "node-b", "node-b", 2000, 4000)
    return home, spark_worker_pod(place, HOME, *of)


def env_of(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def matches(policy_part: dict[str, Any], pod: dict[str, Any]) -> bool:
    wanted: dict[str, str] = policy_part["podSelector"]["matchLabels"]
    return wanted.items() <= pod["metadata"]["labels"].items()


def may_reach(
    policies: tuple[dict[str, Any], ...], source: dict[str, Any], target: dict[str, Any]
) -> list[Any]:
    """The ports that the policies open, [None] for all of them."""
    return [
        port
        for policy in policies
        if matches(policy["spec"], target)
        for rule in policy["spec"]["ingress"]
        if any(matches(peer, source) for peer in rule["from"])
        for port in rule.get("ports", [None])
    ]


def test_a_spark_worker_is_a_worker_in_all_but_what_it_runs() -> None:
    home, pod = pods()
    (container,), (workers,) = pod["spec"]["containers"], home["spec"]["containers"]
    assert container["args"] == ["python", "-m", "penstock_worker.spark.spark_worker"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["automountServiceAccountToken"] is False
    for part in ("image", "volumeMounts", "resizePolicy"):
        assert container[part] == workers[part]
    assert pod["spec"]["volumes"] == home["spec"]["volumes"]
    assert container["resources"]["requests"] == {"cpu": "2000m", "memory": "1Gi"}
    assert pod["metadata"]["ownerReferences"] == home["metadata"]["ownerReferences"]
    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/name": "penstock",
        "app.kubernetes.io/component": "spark-worker",
        "app.kubernetes.io/managed-by": "penstock-operator",
        "penstock.dev/topology": "words",
        "penstock.dev/worker": "words-w0",
        "penstock.dev/home-uid": "uid-w0",
        "penstock.dev/node": "node-b",
    }


def test_a_spark_worker_knows_its_master_and_no_secret() -> None:
    home, pod = pods(spec__pod={"env": [{"name": "GREETING", "value": "hello"}]})
    key = "/etc/penstock/store/spark-key"
    assert env_of(pod) == {
        "GREETING": "hello",
        "PENSTOCK_SPARK_MASTER": "spark://10.0.0.7:7077",
        "PENSTOCK_HOME_UID": "uid-w0",
        "PENSTOCK_SPARK_KEY_FILE": key,
        "PENSTOCK_STORE_PASSWORD_FILE": "/etc/penstock/store/worker-password",
        "PENSTOCK_NODE": {"fieldRef": {"fieldPath": "spec.nodeName"}},
        "PENSTOCK_HOST": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    assert env_of(home)["PENSTOCK_SPARK_KEY_FILE"] == key
    mounted = next(
        one["secret"]["items"] for one in pod["spec"]["volumes"] if one["name"] == "penstock-store"
    )
    assert [one["path"] for one in mounted] == ["worker-password", "spark-key"]
    assert [one["key"] for one in mounted] == ["uid-state", "uid-state.spark-key"]
    assert env_of(home)["PENSTOCK_REMOTE_STORE_URL"] == (
        "redis://worker-uid-state@pen-store-node-a-0.pen-stores.streams.svc:6379"
    )


def test_policies_open_a_worker_and_its_home_store_to_its_own_spark_workers_alone() -> None:
    home, pod = pods()
    policies = spark_network_policies(HOME, "words", "streams", CONFIG)
    stranger, other_store = pods()[1], node_store("node-b", "node-b", CONFIG)["spec"]["template"]
    stranger["metadata"]["labels"]["penstock.dev/worker"] = "words-w1"
    store = node_store("node-a", "node-a", CONFIG)["spec"]["template"]
    assert may_reach(policies, pod, home) == [None]
    assert may_reach(policies, home, pod) == [None]
    assert may_reach(policies, pod, store) == [{"protocol": "TCP", "port": 6379}]
    for source, target in ((stranger, home), (home, stranger), (stranger, store), (pod, other_store)):
        assert may_reach(policies, source, target) == []
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "words-w0", "uid": "uid-w0"}
    assert [policy["metadata"]["ownerReferences"] for policy in policies] == [[owner], [owner]]
    assert all(policy["spec"]["policyTypes"] == ["Ingress"] for policy in policies)


def test_the_policy_of_a_worker_on_a_further_store_opens_that_one_and_not_the_nodes_first() -> None:
    policies = spark_network_policies(replace(HOME, store="node-a..1"), "words", "streams", CONFIG)
    pod = pods()[1]
    first, further = (
        node_store(store, "node-a", CONFIG)["spec"]["template"] for store in ("node-a", "node-a..1")
    )
    assert may_reach(policies, pod, further) == [{"protocol": "TCP", "port": 6379}]
    assert may_reach(policies, pod, first) == []


def test_no_policy_of_another_namespaces_topology_is_owned_across_namespaces() -> None:
    """What admits its Spark workers to the stores is the chart's."""
    (joined,) = spark_network_policies(HOME, "words", "team-a", CONFIG)
    assert joined["metadata"]["namespace"] == "team-a"
    assert joined["metadata"]["name"].endswith("-spark")
