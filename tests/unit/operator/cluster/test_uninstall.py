"""What the chart's hook before `helm uninstall` takes away, and what it leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from clocks.running import run
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    LEASES,
    PODS,
    SCHEDULES,
    SECRETS,
    STATEFUL_SETS,
    TOPOLOGIES,
    VOLUME_CLAIMS,
    ClusterUnreachable,
    Kind,
    Object,
)
from penstock_operator.cluster.uninstall import (
    DEPLOYMENTS,
    OthersWouldGo,
    Uninstalled,
    check_others,
    run_uninstall,
)
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects

KINDS = (DEPLOYMENTS, TOPOLOGIES, SCHEDULES, CONFIG_MAPS, PODS, STATEFUL_SETS, VOLUME_CLAIMS, LEASES, SECRETS)
STORE_LABELS = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/component": "node-store"}
WORKER_LABELS = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/component": "worker"}
OPERATOR_LABELS = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/component": "operator"}
OURS = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/managed-by": "penstock-operator"}


class Scene:
    """A namespace with a release in it; pods end `pods_end_s` after they were deleted, or never."""

    def __init__(self, pods_end_s: float | None = 2.0) -> None:
        self.now_s = 0.0
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s)
        self.between: Callable[[], Awaitable[None]] | None = None
        self._pods_end_s = pods_end_s
        self._leaving: dict[str, float] = {}
        self.cluster.subscribe(self._note)

    def add(self, kind: Kind, name: str, labels: dict[str, str] | None = None, **fields: Any) -> Object:
        thing: Object = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "labels": labels or {}},
        }
        return self.cluster.put(kind, {**thing, **fields})

    def add_pod(self, name: str, labels: dict[str, str], grace_s: int = 30) -> None:
        self.add(PODS, name, labels, spec={"nodeName": "n1", "terminationGracePeriodSeconds": grace_s})

    def release(self) -> None:
        self.add(DEPLOYMENTS, "penstock-operator", OPERATOR_LABELS)
        self.add(LEASES, "penstock-operator")
        self.add(SECRETS, "penstock-store-auth", OURS)
        self.add(SECRETS, "penstock-store-workers", OURS)
        self.add(STATEFUL_SETS, "penstock-store-n1", {**STORE_LABELS, **OURS}, spec={})
        self.add_pod("penstock-store-n1-0", STORE_LABELS)
        self.add(VOLUME_CLAIMS, "data-penstock-store-n1-0", STORE_LABELS)
        owner = self.cluster.put(TOPOLOGIES, objects.topology())
        self.cluster.put(SCHEDULES, objects.owned_by(owner, objects.schedule()))
        self.cluster.put(SCHEDULES, objects.schedule("kept-numbers", topology="kept"))
        self.add(CONFIG_MAPS, "words-plan-1", OURS)
        self.add_pod("words-w0", WORKER_LABELS)

    def _note(self, kind: Kind, change: str, thing: Object) -> None:
        if kind == PODS and change == "MODIFIED" and "deletionTimestamp" in thing["metadata"]:
            self._leaving.setdefault(thing["metadata"]["name"], self.now_s)

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.between is not None:
            await self.between()
        for name, since_s in list(self._leaving.items()):
            if self._pods_end_s is not None and self.now_s >= since_s + self._pods_end_s:
                del self._leaving[name]
                self.cluster.finish(PODS, name)

    def uninstall(
        self, keep_volumes: bool = False, keep_topologies: bool = False, served: Sequence[str] = ()
    ) -> Uninstalled:
        return run(
            run_uninstall(
                self.cluster,
                "penstock",
                keep_volumes=keep_volumes,
                keep_topologies=keep_topologies,
                served=served,
                timeout_s=45,
                clock_s=lambda: self.now_s,
                sleep=self.sleep,
            )
        )

    def left(self) -> list[str]:
        found = []
        for kind in KINDS:
            found += [f"{kind.kind} {thing['metadata']['name']}" for thing in self._items(kind)]
        return found

    def _items(self, kind: Kind) -> tuple[Object, ...]:
        return run(self.cluster.list(kind)).items


def test_nothing_of_a_release_with_live_topologies_is_left() -> None:
    scene = Scene()
    scene.release()
    done = scene.uninstall()
    assert scene.left() == []
    assert done.ending == ()
    assert {"Topology words", "StatefulSet penstock-store-n1", "Lease penstock-operator"} <= set(done.deleted)
    assert scene.now_s < 10


def test_what_others_made_stays() -> None:
    scene = Scene()
    scene.release()
    scene.add(CONFIG_MAPS, "code-of-the-user")
    scene.add_pod("a-pod-of-the-user", {"app": "other"})
    scene.add(STATEFUL_SETS, "a-database", spec={})
    scene.add(VOLUME_CLAIMS, "data-a-database-0")
    scene.uninstall()
    assert scene.left() == [
        "ConfigMap code-of-the-user",
        "Pod a-pod-of-the-user",
        "StatefulSet a-database",
        "PersistentVolumeClaim data-a-database-0",
    ]


def test_volumes_and_retained_schedules_stay_when_they_are_to_be_kept() -> None:
    scene = Scene()
    scene.release()
    scene.uninstall(keep_volumes=True)
    assert scene.left() == ["Schedule kept-numbers", "PersistentVolumeClaim data-penstock-store-n1-0"]


def test_what_a_later_release_goes_on_from_stays_and_all_that_runs_ends() -> None:
    scene = Scene()
    scene.release()
    written = [one for one in scene.left() if one.split()[0] in ("Topology", "LatencySLA", "Schedule")]
    scene.uninstall(keep_topologies=True)
    assert written
    assert scene.left() == [*written, "PersistentVolumeClaim data-penstock-store-n1-0"]


def test_topologies_that_are_to_stay_are_not_taken_along_with_the_crds() -> None:
    scene = Scene()
    scene.release()
    with pytest.raises(OthersWouldGo, match=r"crds\.keep"):
        run(check_others(scene.cluster, keep_topologies=True))


def test_a_kept_volume_is_let_go_of_before_its_store_goes() -> None:
    scene = Scene()
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    store = scene.add(STATEFUL_SETS, "s", STORE_LABELS, spec={"persistentVolumeClaimRetentionPolicy": policy})
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-s-0", "labels": STORE_LABELS},
    }
    scene.cluster.put(VOLUME_CLAIMS, objects.owned_by(store, claim))

    policies: list[str] = []

    async def let_go() -> None:
        policies.extend(
            held["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"]
            for held in (await scene.cluster.list(STATEFUL_SETS)).items
        )
        if scene.now_s == 2:
            scene.cluster.put(VOLUME_CLAIMS, claim)

    scene.between = let_go
    scene.uninstall(keep_volumes=True)
    assert policies == ["Retain"] * 4
    assert scene.left() == ["PersistentVolumeClaim data-s-0"]


def test_the_operator_is_gone_before_anything_else_goes() -> None:
    scene = Scene()
    scene.release()
    scene.add_pod("penstock-operator-1", OPERATOR_LABELS, grace_s=10)
    topologies: list[int] = []

    async def end_the_operator() -> None:
        topologies.append(len((await scene.cluster.list(TOPOLOGIES)).items))
        if scene.now_s == 3:
            scene.cluster.finish(PODS, "penstock-operator-1")

    scene.between = end_the_operator
    scene.uninstall()
    assert topologies[:6] == [1] * 6
    assert scene.left() == []


def test_a_worker_that_was_given_long_to_end_is_told_to_be_quick() -> None:
    scene = Scene(pods_end_s=None)
    scene.release()
    scene.uninstall()
    pod = run(scene.cluster.get(PODS, "words-w0"))
    assert pod is not None
    assert pod["metadata"]["deletionGracePeriodSeconds"] <= 5


def test_pods_of_a_lost_node_are_named_when_the_time_is_over() -> None:
    scene = Scene(pods_end_s=None)
    scene.release()
    done = scene.uninstall()
    assert 45 <= scene.now_s < 47
    assert done.ending == ("Pod words-w0", "Pod penstock-store-n1-0")


def test_a_second_uninstall_finds_nothing_to_do() -> None:
    scene = Scene()
    assert scene.uninstall() == Uninstalled((), ())
    assert scene.now_s == 0


def test_an_api_server_that_is_away_for_a_moment_is_waited_for() -> None:
    scene = Scene()
    scene.release()
    scene.cluster.is_away = True

    async def come_back() -> None:
        scene.cluster.is_away = scene.now_s < 5

    scene.between = come_back
    scene.uninstall()
    assert scene.left() == []


def test_an_api_server_that_stays_away_is_an_error() -> None:
    scene = Scene()
    scene.cluster.is_away = True
    with pytest.raises(ClusterUnreachable):
        scene.uninstall()


def test_topologies_of_other_namespaces_are_not_taken_along_with_the_crds() -> None:
    scene = Scene()
    scene.release()
    run(check_others(scene.cluster))
    other = objects.topology()
    scene.cluster.put(TOPOLOGIES, {**other, "metadata": {**other["metadata"], "namespace": "elsewhere"}})
    with pytest.raises(OthersWouldGo, match="elsewhere"):
        run(check_others(scene.cluster))


def serve(scene: Scene, namespace: str) -> None:
    """What an operator makes in a further namespace, and what is somebody's there."""
    for kind, name, labels in (
        (CONFIG_MAPS, "words-plan-1", OURS),
        (CONFIG_MAPS, "code-of-the-user", {}),
        (PODS, "words-w0", WORKER_LABELS),
        (SECRETS, "penstock-store-workers", OURS),
        (SECRETS, "a-secret-of-the-user", {}),
    ):
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        scene.cluster.put(kind, {"metadata": metadata, "spec": {}})
    for kind, thing in ((TOPOLOGIES, objects.topology()), (SCHEDULES, objects.schedule())):
        thing["metadata"]["namespace"] = namespace
        scene.cluster.put(kind, thing)


def left_in(scene: Scene, namespace: str) -> list[str]:
    within = scene.cluster.within(namespace)
    return [f"{kind.kind} {name}" for kind in KINDS for name in within.names(kind)]


def test_what_was_made_in_a_further_namespace_goes_too_and_what_is_somebodys_there_stays() -> None:
    scene = Scene()
    scene.release()
    serve(scene, "team-a")
    serve(scene, "elsewhere")
    there = left_in(scene, "elsewhere")
    done = scene.uninstall(keep_topologies=True, served=["team-a"])
    assert left_in(scene, "team-a") == [
        "Topology words",
        "Schedule words-numbers",
        "ConfigMap code-of-the-user",
        "Secret a-secret-of-the-user",
    ]
    assert left_in(scene, "elsewhere") == there
    assert {"Pod words-w0", "Pod words-w0 in team-a", "Secret penstock-store-workers in team-a"} <= set(
        done.deleted
    )
    scene.uninstall(served=["team-a"])
    assert "Topology words" not in left_in(scene, "team-a")


def test_topologies_of_a_served_namespace_are_the_releases_own() -> None:
    scene = Scene()
    serve(scene, "team-a")
    run(check_others(scene.cluster, served=["team-a"]))
    with pytest.raises(OthersWouldGo, match="team-a"):
        run(check_others(scene.cluster))
    with pytest.raises(OthersWouldGo, match="which are to stay"):
        run(check_others(scene.cluster, keep_topologies=True, served=["team-a"]))
