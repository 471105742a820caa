"""What is worked out of the mirror is kept while it stands, and not a moment longer."""

from __future__ import annotations

import copy
import time

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_STORE,
    COMPONENT_WORKER,
    LABEL_COMPONENT,
    LABEL_NAME,
    LABEL_NODE,
    LABEL_TOPOLOGY,
)
from penstock_operator.cluster.kubernetes_api.port import NODES, PODS, SCHEDULES, STATEFUL_SETS, Object
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.observing.namespace_picture import NamespacePicture
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds.operator_world import NAMESPACE, operator_config


class Scene:
    """A mirror and its picture; every object that is put in is newer than the one before."""

    def __init__(self) -> None:
        self.mirror = Mirror(lambda kind, thing: None)
        cluster = MemoryCluster(clock_s=time.time)
        self.picture = ClusterPicture(cluster, {NAMESPACE: self.mirror}, operator_config(1))
        self.own = NamespacePicture(cluster, self.mirror, self.mirror)
        self.version = 0

    def labelled(self, name: str, component: str, node: str, **parts: object) -> Object:
        self.version += 1
        labels = {LABEL_NAME: "penstock", LABEL_COMPONENT: component, LABEL_NODE: node}
        metadata = {"name": name, "uid": name, "resourceVersion": str(self.version), "labels": labels}
        return {"metadata": metadata, **parts}

    def put_store(self, node: str, durability: str = "Process") -> None:
        agent = {"name": "agent", "env": [{"name": "PENSTOCK_STORE_DURABILITY", "value": durability}]}
        spec = {"template": {"spec": {"containers": [agent]}}}
        self.mirror.put(STATEFUL_SETS, self.labelled(f"store-{node}", COMPONENT_STORE, node, spec=spec))

    def put_store_pod(self, node: str, *, is_ready: bool) -> None:
        self.mirror.put(PODS, self.pod(f"store-{node}-0", COMPONENT_STORE, node, is_ready=is_ready))

    def put_worker(self, name: str, node: str, *, is_ready: bool, is_bound: bool = True) -> None:
        pod = self.pod(name, COMPONENT_WORKER, node, is_ready=is_ready)
        pod["metadata"]["labels"][LABEL_TOPOLOGY] = "words"
        if is_bound:
            pod["spec"]["nodeName"] = node
        self.mirror.put(PODS, pod)

    def pod(self, name: str, component: str, node: str, *, is_ready: bool) -> Object:
        conditions = [{"type": "Ready", "status": str(is_ready)}]
        return self.labelled(
            name, component, node, spec={"containers": []}, status={"conditions": conditions}
        )

    def put_node(self, name: str) -> None:
        self.mirror.put(NODES, self.labelled(name, "", "", spec={}, status={}))

    def ready_stores(self) -> list[str]:
        return [one.id for one in self.picture.stores() if one.ready]


def test_the_stores_are_the_same_tuple_until_one_of_them_or_its_pod_changes() -> None:
    scene = Scene()
    for node in ("a", "b"):
        scene.put_store(node)
        scene.put_store_pod(node, is_ready=True)
    stores = scene.picture.stores()
    assert [one.id for one in stores] == ["a", "b"]
    scene.put_worker("w0", "a", is_ready=True)
    scene.put_node("a")
    assert scene.picture.stores() is stores
    scene.put_store_pod("b", is_ready=False)
    assert scene.ready_stores() == ["a"]
    scene.put_store("a", "Disk")
    assert [one.durability for one in scene.picture.stores()] == ["Disk", "Process"]
    scene.put_store("c")
    scene.put_store_pod("c", is_ready=True)
    assert scene.ready_stores() == ["a", "c"]
    for node in ("a", "b"):
        held = copy.deepcopy(scene.mirror.get(STATEFUL_SETS, f"store-{node}"))
        assert held is not None
        scene.mirror.remove(STATEFUL_SETS, held)
    assert scene.ready_stores() == ["c"]
    scene.put_store_pod("c", is_ready=False)
    assert scene.ready_stores() == []


def test_more_changes_than_the_mirror_remembers_hide_none_of_a_store() -> None:
    scene = Scene()
    scene.put_store("a")
    scene.put_store_pod("a", is_ready=True)
    assert scene.ready_stores() == ["a"]
    scene.put_store_pod("a", is_ready=False)
    for _ in range(25_000):
        scene.put_node("n")
    assert scene.ready_stores() == []


def test_a_pod_is_read_again_when_it_changes_and_while_it_is_not_bound_whenever_it_is_looked_at() -> None:
    scene = Scene()
    long = "n" * 70
    scene.put_worker("w0", "a", is_ready=False)
    (pod,) = scene.own.workers_of("words")
    assert scene.own.workers_of("words")[0] is pod
    scene.put_worker("w0", "a", is_ready=True)
    assert scene.own.workers_of("words")[0].ready
    scene.put_worker("w0", long[:60], is_ready=False, is_bound=False)
    assert not scene.own.workers_of("words")[0].is_bound
    held = copy.deepcopy(scene.mirror.get(PODS, "w0"))
    assert held is not None
    held["metadata"]["resourceVersion"] = str(scene.version + 1)
    scene.mirror.remove(PODS, held)
    assert scene.own.workers_of("words") == ()


def test_whose_states_there_are_is_told_by_schedules_that_contradict_themselves_too() -> None:
    scene = Scene()
    for number, uid in enumerate(("u-1", "u-1", "u-2")):
        spec = {"topology": "words", "topologyUid": uid, "operator": 7}
        scene.mirror.put(SCHEDULES, scene.labelled(f"s{number}", "", "", spec=spec))
    assert scene.own.topology_uids() == {"u-1", "u-2"}
