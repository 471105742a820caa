from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clocks.running import run
from penstock.api.schedule_object import from_object
from penstock.errors import PenstockError
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.decisions.actions import (
    Action,
    ApplyConfigMap,
    ApplyNetworkPolicy,
    ApplyNodeStore,
    CreatePod,
    DeleteNodeStore,
    DeletePod,
    GrowVolume,
    ResizePod,
    WriteSchedule,
)
from penstock_operator.cluster.kubernetes_api.lease import LeaseLost
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    PODS,
    SCHEDULES,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
    Kind,
    NotAllowed,
    Object,
    Refusal,
    uid_of,
    version_of,
)
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects

TERM = 3


class Full(MemoryCluster):
    """A namespace without quota for more pods."""

    async def create(self, kind: Kind, manifest: Object) -> Object | Refusal:
        if kind == PODS:
            raise NotAllowed("the Kubernetes API refuses to create pods: exceeded quota")
        return await super().create(kind, manifest)


class Scene:
    def __init__(self, cluster: MemoryCluster | None = None) -> None:
        self.cluster = cluster or MemoryCluster(clock_s=lambda: 0.0)
        self.mirror = Mirror(lambda kind, thing: None)
        self.applier = Applier(self.cluster, self.mirror, TERM, OperatorMetrics())


def tell(story: Callable[[Scene], Awaitable[None]], cluster: MemoryCluster | None = None) -> None:
    async def told() -> None:
        await story(Scene(cluster))

    run(told())


def write(resource_version: str | None, **spec: Any) -> WriteSchedule:
    document = objects.schedule(**{"term": TERM, **spec})
    return WriteSchedule("words-numbers", from_object(document), document, resource_version)


CONFIG_MAP = ApplyConfigMap("plan", objects.config_map("plan", text="x"))


def test_what_was_written_is_in_the_mirror_at_once() -> None:
    async def story(scene: Scene) -> None:
        actions: tuple[Action, ...] = (CONFIG_MAP, CreatePod("w0", objects.pod("w0")), write(None))
        outcome = await scene.applier.carry_out(actions)
        assert (outcome.done, outcome.stopped) == (3, "")
        assert scene.mirror.get(CONFIG_MAPS, "plan") is not None
        assert scene.mirror.get(PODS, "w0") is not None
        assert scene.mirror.get(SCHEDULES, "words-numbers") is not None

    tell(story)


def test_a_conflict_ends_the_turn_and_shows_the_next_one_what_is_there() -> None:
    async def story(scene: Scene) -> None:
        first = await scene.cluster.create(SCHEDULES, objects.schedule(term=TERM))
        assert isinstance(first, dict)
        told = {"metadata": {"name": "words-numbers"}, "status": {"tasksReady": 1}}
        second = scene.cluster.status_by("penstock-agent-n1", SCHEDULES, told)
        assert isinstance(second, dict)
        outcome = await scene.applier.carry_out((write(version_of(first), version=2), CONFIG_MAP))
        assert outcome.done == 0
        assert "changed" in outcome.stopped
        assert await scene.cluster.get(CONFIG_MAPS, "plan") is None
        seen = scene.mirror.get(SCHEDULES, "words-numbers")
        assert seen is not None
        assert version_of(seen) == version_of(second)
        outcome = await scene.applier.carry_out((write(version_of(second), version=2), CONFIG_MAP))
        assert outcome.stopped == ""

    tell(story)


def test_a_schedule_that_is_there_already_is_not_made_over() -> None:
    async def story(scene: Scene) -> None:
        await scene.cluster.create(SCHEDULES, objects.schedule(term=TERM, version=9))
        outcome = await scene.applier.carry_out((write(None),))
        assert "exists" in outcome.stopped
        held = await scene.cluster.get(SCHEDULES, "words-numbers")
        assert held is not None
        assert held["spec"]["version"] == 9

    tell(story)


@pytest.mark.parametrize("is_stale", [True, False])
def test_a_schedule_of_a_later_term_ends_this_leader(is_stale: bool) -> None:
    async def story(scene: Scene) -> None:
        theirs = await scene.cluster.create(SCHEDULES, objects.schedule(term=TERM + 1))
        assert isinstance(theirs, dict)
        version = "1" if is_stale else version_of(theirs)
        with pytest.raises(LeaseLost, match="term 4"):
            await scene.applier.carry_out((write(version, version=5),))

    tell(story)


def test_a_pod_that_is_not_let_in_holds_up_nothing_else() -> None:
    async def story(scene: Scene) -> None:
        outcome = await scene.applier.carry_out((CreatePod("w0", objects.pod("w0")), write(None)))
        assert (outcome.done, outcome.stopped) == (2, "")
        assert [one.name for one in outcome.refused] == ["w0"]
        assert "exceeded quota" in outcome.refused[0].message
        assert scene.mirror.get(SCHEDULES, "words-numbers") is not None

    tell(story, Full(clock_s=lambda: 0.0))


def test_a_pod_that_is_there_already_is_no_fault() -> None:
    async def story(scene: Scene) -> None:
        await scene.cluster.create(PODS, objects.pod("w0"))
        outcome = await scene.applier.carry_out((CreatePod("w0", objects.pod("w0")),))
        assert outcome.stopped == ""
        assert scene.mirror.get(PODS, "w0") is not None

    tell(story)


def test_a_pod_of_another_uid_is_neither_deleted_nor_resized() -> None:
    async def story(scene: Scene) -> None:
        await scene.cluster.create(PODS, objects.pod("w0"))
        for action in (DeletePod("w0", "u-old", "test"), ResizePod("w0", "u-old", 500, 1000)):
            outcome = await scene.applier.carry_out((action, CONFIG_MAP))
            assert "changed" in outcome.stopped
        assert await scene.cluster.get(PODS, "w0") is not None

    tell(story)


def test_a_pod_is_deleted_and_one_that_is_gone_needs_no_deletion() -> None:
    async def story(scene: Scene) -> None:
        made = await scene.cluster.create(PODS, objects.pod("w0"))
        assert isinstance(made, dict)
        scene.mirror.put(PODS, made)
        delete = DeletePod("w0", uid_of(made), "test")
        for _ in range(2):
            assert (await scene.applier.carry_out((delete,))).stopped == ""
            assert scene.mirror.get(PODS, "w0") is None

    tell(story)


def test_a_pod_is_resized_in_thousandths_of_cores() -> None:
    async def story(scene: Scene) -> None:
        made = await scene.cluster.create(PODS, objects.pod("w0"))
        assert isinstance(made, dict)
        await scene.applier.carry_out((ResizePod("w0", uid_of(made), 1500, 2000),))
        seen = scene.mirror.get(PODS, "w0")
        assert seen is not None
        resources = seen["spec"]["containers"][0]["resources"]
        assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("1500m", "2000m")

    tell(story)


def test_an_api_server_that_is_away_ends_the_turn_as_an_error() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.is_away = True
        with pytest.raises(PenstockError, match="does not answer"):
            await scene.applier.carry_out((CONFIG_MAP,))

    tell(story)


def test_a_network_policy_is_applied_again_and_again() -> None:
    async def story(scene: Scene) -> None:
        metadata = {"name": "w0-spark", "namespace": "penstock"}
        document = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata}
        for uid in ("uid-1", "uid-2"):
            action = ApplyNetworkPolicy("w0-spark", {**document, "spec": {"owner": uid}})
            assert (await scene.applier.carry_out((action,))).stopped == ""
            there = await scene.cluster.get(NETWORK_POLICIES, "w0-spark")
            assert there is not None
            assert there["spec"] == {"owner": uid}

    tell(story)


def store_set(name: str, size: str = "10Gi") -> ApplyNodeStore:
    claims = [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}}]
    document = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {"volumeClaimTemplates": claims},
    }
    return ApplyNodeStore(name, name, document)


def test_what_is_refused_of_one_store_holds_up_no_other() -> None:
    async def story(scene: Scene) -> None:
        await scene.applier.carry_out([store_set("a")])
        outcome = await scene.applier.carry_out(
            [store_set("a", size="20Gi"), DeleteNodeStore("gone", "n", "another uid", ""), store_set("b")]
        )
        assert [one.name for one in outcome.refused] == ["a"]
        assert outcome.stopped == ""
        assert await scene.cluster.get(STATEFUL_SETS, "b") is not None

    tell(story)


def test_a_claim_grows_and_never_shrinks() -> None:
    async def story(scene: Scene) -> None:
        claim = {
            "metadata": {"name": "data-a-0"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
        }
        scene.cluster.put(VOLUME_CLAIMS, claim)
        for size, is_then in (("5Gi", "10Gi"), ("20Gi", "20Gi"), ("10Gi", "20Gi")):
            await scene.applier.carry_out([GrowVolume("data-a-0", "a", size)])
            there = await scene.cluster.get(VOLUME_CLAIMS, "data-a-0")
            assert there is not None
            assert there["spec"]["resources"]["requests"]["storage"] == is_then
            assert there["spec"]["accessModes"] == ["ReadWriteOnce"]
        await scene.applier.carry_out([GrowVolume("data-b-0", "b", "20Gi")])
        assert await scene.cluster.get(VOLUME_CLAIMS, "data-b-0") is None, "its StatefulSet makes it"

    tell(story)


def test_the_claim_of_a_store_that_nobody_needs_goes_with_it() -> None:
    async def story(scene: Scene) -> None:
        await scene.applier.carry_out([store_set("a"), store_set("b")])
        for name in "ab":
            scene.cluster.put(VOLUME_CLAIMS, {"metadata": {"name": f"data-{name}-0"}, "spec": {}})
        there = await scene.cluster.get(STATEFUL_SETS, "a")
        assert there is not None
        await scene.applier.carry_out([DeleteNodeStore("a", "n", uid_of(there), "nobody names it")])
        await scene.applier.carry_out([DeleteNodeStore("b", "n", "of another one", "")])
        assert await scene.cluster.get(VOLUME_CLAIMS, "data-a-0") is None
        assert await scene.cluster.get(VOLUME_CLAIMS, "data-b-0") is not None

    tell(story)
