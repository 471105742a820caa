"""The cluster's port: one suite for the twin, for the client on the twin over HTTP, and on a real API server.

The real one is asked when the variable PENSTOCK_TEST_KUBECONFIG names the kubeconfig of a cluster.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from backends.cluster_backends import (
    KUBECONFIG,
    ClusterBackend,
    KubernetesBackend,
    MemoryClusterBackend,
    ServedClusterBackend,
)
from clocks.eventually import eventually_awaited
from clocks.running import run
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    PODS,
    SCHEDULES,
    TOPOLOGIES,
    ClusterApi,
    ObjectInvalid,
    Refusal,
    Why,
    name_of,
    uid_of,
    version_of,
)
from worlds import cluster_objects as objects

Object = dict[str, Any]
Story = Callable[[ClusterApi], Coroutine[Any, Any, None]]

NO_CLUSTER = pytest.mark.skipif(KUBECONFIG not in os.environ, reason=f"{KUBECONFIG} names no cluster")


@pytest.fixture(scope="module")
def kubernetes_backend() -> Iterator[KubernetesBackend]:
    backend = KubernetesBackend()
    yield backend
    run(backend.remove())


@pytest.fixture(
    params=["memory", "served", pytest.param("kubernetes", marks=[pytest.mark.integration, NO_CLUSTER])]
)
def backend(request: pytest.FixtureRequest) -> ClusterBackend:
    if request.param == "memory":
        return MemoryClusterBackend()
    if request.param == "served":
        return ServedClusterBackend()
    real: KubernetesBackend = request.getfixturevalue("kubernetes_backend")
    return real


def tell(backend: ClusterBackend, story: Story) -> None:
    async def told() -> None:
        async with backend.open() as cluster:
            await story(cluster)

    run(told())


def made(answer: Object | Refusal) -> Object:
    assert isinstance(answer, dict), answer
    return answer


def why(answer: object) -> Why:
    assert isinstance(answer, Refusal), answer
    return answer.why


def test_what_was_created_is_found_by_name_and_in_the_list(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(CONFIG_MAPS, objects.config_map("a", text="1")))
        assert uid_of(thing)
        assert version_of(thing)
        assert thing["metadata"]["namespace"] == cluster.namespace
        assert await cluster.get(CONFIG_MAPS, "a") == thing
        listing = await cluster.list(CONFIG_MAPS)
        (listed,) = (item for item in listing.items if name_of(item) == "a")
        assert listed == thing
        assert int(listing.resource_version) >= int(version_of(thing))
        assert await cluster.get(CONFIG_MAPS, "b") is None

    tell(backend, story)


def test_a_name_is_created_once(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        made(await cluster.create(CONFIG_MAPS, objects.config_map("a")))
        assert why(await cluster.create(CONFIG_MAPS, objects.config_map("a"))) is Why.EXISTS

    tell(backend, story)


def test_a_list_selects_by_labels(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        for name, labels in {"a": {"of": "x"}, "b": {"of": "y"}, "c": {"of": "x", "and": "z"}}.items():
            made(await cluster.create(PODS, objects.pod(name, **labels)))
        assert [name_of(item) for item in (await cluster.list(PODS, {"of": "x"})).items] == ["a", "c"]
        both = (await cluster.list(PODS, {"of": "x", "and": "z"}, everywhere=True)).items
        assert [name_of(item) for item in both] == ["c"]
        assert both[0]["kind"] == "Pod"

    tell(backend, story)


def test_a_long_list_comes_whole_and_others_may_go_on_between_its_pages(backend: ClusterBackend) -> None:
    rests_s: list[float] = []

    async def between(took_s: float) -> None:
        rests_s.append(took_s)

    async def story(cluster: ClusterApi) -> None:
        names = [f"a{number:03d}" for number in range(201)]
        for name in names:
            made(await cluster.create(CONFIG_MAPS, objects.config_map(name, of="pages")))
        listing = await cluster.list(CONFIG_MAPS, between=between)
        assert [name_of(item) for item in listing.items if name_of(item).startswith("a")] == names
        # The twin's lists come in one page.
        assert len(rests_s) in {0, 2}
        assert all(0 < took_s < 60 for took_s in rests_s)

    tell(backend, story)


def test_a_write_on_an_old_version_is_refused_and_changes_nothing(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        first = made(await cluster.create(SCHEDULES, objects.schedule(version=1)))
        second = copy.deepcopy(first)
        second["spec"]["version"] = 2
        second = made(await cluster.replace(SCHEDULES, second))
        assert version_of(second) != version_of(first)
        first["spec"]["version"] = 3
        assert why(await cluster.replace(SCHEDULES, first)) is Why.CHANGED
        assert (await cluster.get(SCHEDULES, name_of(first)) or {})["spec"]["version"] == 2

    tell(backend, story)


def test_a_write_of_what_is_gone_is_refused(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(SCHEDULES, objects.schedule()))
        assert await cluster.delete(SCHEDULES, name_of(thing), uid_of(thing)) is None
        assert why(await cluster.replace(SCHEDULES, thing)) is Why.GONE
        status = {**thing, "metadata": {"name": name_of(thing)}, "status": {"tasksReady": 1}}
        assert why(await cluster.apply_status(SCHEDULES, status)) is Why.GONE

    tell(backend, story)


def test_replace_leaves_the_status_and_a_status_leaves_the_rest(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(SCHEDULES, {**objects.schedule(), "status": {"tasksReady": 7}}))
        assert "status" not in thing
        head = {"apiVersion": thing["apiVersion"], "kind": "Schedule"}
        head["metadata"] = {"name": name_of(thing)}
        with_status = made(await cluster.apply_status(SCHEDULES, {**head, "status": {"tasksReady": 2}}))
        assert with_status["spec"] == thing["spec"]
        assert with_status["metadata"]["generation"] == thing["metadata"]["generation"]
        changed = copy.deepcopy(with_status)
        changed["spec"]["version"] = 9
        changed["status"] = {"tasksReady": 99}
        changed = made(await cluster.replace(SCHEDULES, changed))
        assert changed["status"] == {"tasksReady": 2}
        assert changed["metadata"]["generation"] == thing["metadata"]["generation"] + 1

    tell(backend, story)


def test_apply_creates_then_changes_then_takes_away_what_it_named_before(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        first = await cluster.apply(CONFIG_MAPS, objects.config_map("a", one="1", two="2"))
        second = await cluster.apply(CONFIG_MAPS, objects.config_map("a", one="1", three="3"))
        assert uid_of(second) == uid_of(first)
        assert second["data"] == {"one": "1", "three": "3"}

    tell(backend, story)


def test_apply_leaves_what_others_wrote(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = await cluster.apply(CONFIG_MAPS, objects.config_map("a", one="1"))
        thing["data"]["theirs"] = "x"
        thing["metadata"].pop("managedFields", None)
        made(await cluster.replace(CONFIG_MAPS, thing))
        again = await cluster.apply(CONFIG_MAPS, objects.config_map("a", one="2"))
        assert again["data"] == {"one": "2", "theirs": "x"}

    tell(backend, story)


def test_an_apply_that_changes_nothing_makes_no_new_version(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        first = await cluster.apply(CONFIG_MAPS, objects.config_map("a", one="1"))
        again = await cluster.apply(CONFIG_MAPS, objects.config_map("a", one="1"))
        assert version_of(again) == version_of(first)

    tell(backend, story)


def test_conditions_of_a_status_are_merged_by_type_and_go_when_no_longer_named(
    backend: ClusterBackend,
) -> None:
    def condition(type_: str, status: str) -> Object:
        stamp = "2026-01-01T00:00:00Z"
        return {"type": type_, "status": status, "reason": "Because", "lastTransitionTime": stamp}

    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(TOPOLOGIES, objects.topology()))
        head = {"apiVersion": thing["apiVersion"], "kind": "Topology"}
        head["metadata"] = {"name": name_of(thing), "uid": uid_of(thing)}
        for conditions in (
            [condition("Ready", "False"), condition("Progressing", "True")],
            [condition("Ready", "True")],
        ):
            status = {"phase": "Starting", "conditions": conditions}
            answer = made(await cluster.apply_status(TOPOLOGIES, {**head, "status": status}))
            told = {one["type"]: one["status"] for one in answer["status"]["conditions"]}
            assert told == {one["type"]: one["status"] for one in conditions}

    tell(backend, story)


def test_a_delete_is_for_the_object_of_that_uid_only(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(CONFIG_MAPS, objects.config_map("a")))
        other = "00000000-0000-4000-8000-00000000dead"
        assert why(await cluster.delete(CONFIG_MAPS, "a", other)) is Why.CHANGED
        assert await cluster.delete(CONFIG_MAPS, "a", uid_of(thing)) is None
        assert await cluster.get(CONFIG_MAPS, "a") is None
        assert why(await cluster.delete(CONFIG_MAPS, "a", uid_of(thing))) is Why.GONE

    tell(backend, story)


def test_what_an_object_owns_goes_after_it(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        owner = made(await cluster.create(TOPOLOGIES, objects.topology()))
        made(await cluster.create(SCHEDULES, objects.owned_by(owner, objects.schedule())))
        made(await cluster.create(PODS, objects.owned_by(owner, objects.pod("w0", of="x"))))
        made(await cluster.create(CONFIG_MAPS, objects.config_map("free")))
        assert await cluster.delete(TOPOLOGIES, name_of(owner), uid_of(owner)) is None

        async def gone() -> bool:
            left = (await cluster.list(SCHEDULES)).items + (await cluster.list(PODS, {"of": "x"})).items
            return not left

        await eventually_awaited(gone)
        assert await cluster.get(CONFIG_MAPS, "free") is not None

    tell(backend, story)


@pytest.mark.parametrize("field", ["term", "version"])
def test_term_and_version_of_a_schedule_only_grow(backend: ClusterBackend, field: str) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(SCHEDULES, objects.schedule(term=5, version=5)))
        with pytest.raises(ObjectInvalid, match="only grows"):
            await cluster.replace(SCHEDULES, {**thing, "spec": {**thing["spec"], field: 4}})
        grown = made(await cluster.replace(SCHEDULES, {**thing, "spec": {**thing["spec"], field: 6}}))
        assert grown["spec"][field] == 6

    tell(backend, story)


def test_a_schedule_stays_with_its_topology(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(SCHEDULES, objects.schedule()))
        for field in ("topology", "topologyUid", "operator"):
            with pytest.raises(ObjectInvalid):
                await cluster.replace(SCHEDULES, {**thing, "spec": {**thing["spec"], field: "other"}})

    tell(backend, story)


def test_what_the_schema_refuses_is_invalid(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        with pytest.raises(ObjectInvalid):
            await cluster.create(TOPOLOGIES, objects.topology(durability="Eternal"))
        with pytest.raises(ObjectInvalid):
            await cluster.apply(SCHEDULES, objects.schedule(version=-1))

    tell(backend, story)


def test_defaults_of_the_schema_are_filled_in(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        shards = [{"executor": "numbers-0", "home": "n1", "ranges": ["0-3"]}]
        thing = made(await cluster.create(SCHEDULES, objects.schedule(shards=shards)))
        assert thing["spec"]["shards"][0]["freshSince"] == 0

    tell(backend, story)


def test_a_pod_that_has_no_node_goes_at_once(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(PODS, objects.pod("w0")))
        assert await cluster.delete(PODS, "w0", uid_of(thing)) is None
        assert await cluster.get(PODS, "w0") is None

    tell(backend, story)


def test_a_pod_is_resized_in_place_if_it_is_the_one_that_is_meant(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = made(await cluster.create(PODS, objects.pod("w0")))
        other = "00000000-0000-4000-8000-00000000dead"
        more = {"cpu": "500m"}, {"cpu": "2"}
        assert why(await cluster.resize_pod("w0", other, "worker", *more)) is Why.CHANGED
        assert why(await cluster.resize_pod("w1", uid_of(thing), "worker", *more)) is Why.GONE
        resized = made(await cluster.resize_pod("w0", uid_of(thing), "worker", *more))
        assert uid_of(resized) == uid_of(thing)
        (container,) = resized["spec"]["containers"]
        assert container["resources"] == {
            "requests": {"cpu": "500m", "memory": "64Mi"},
            "limits": {"cpu": "2", "memory": "64Mi"},
        }

    tell(backend, story)


def test_another_namespace_has_objects_of_its_own_by_the_same_names(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        other = cluster.within("default")
        assert (other.namespace, other.within(cluster.namespace).namespace) == ("default", cluster.namespace)
        name = f"penstock-{cluster.namespace}"
        here = made(await cluster.create(CONFIG_MAPS, objects.config_map(name, text="1")))
        there = made(await other.create(CONFIG_MAPS, objects.config_map(name, text="2")))
        try:
            assert there["metadata"]["namespace"] == "default"
            assert uid_of(here) != uid_of(there)
            assert made(await other.apply(CONFIG_MAPS, objects.config_map(name, text="3")))["data"] == {
                "text": "3"
            }
            unchanged = await cluster.get(CONFIG_MAPS, name)
            assert unchanged is not None
            assert unchanged["data"] == {"text": "1"}
            assert why(await other.delete(CONFIG_MAPS, name, uid_of(here))) is Why.CHANGED
        finally:
            assert await other.delete(CONFIG_MAPS, name, uid_of(there)) is None
        assert await other.get(CONFIG_MAPS, name) is None
        assert await cluster.get(CONFIG_MAPS, name) is not None

    tell(backend, story)


def test_an_object_of_another_namespace_than_it_is_written_in_is_not_taken(backend: ClusterBackend) -> None:
    async def story(cluster: ClusterApi) -> None:
        thing = objects.config_map("a")
        thing["metadata"]["namespace"] = "elsewhere"
        with pytest.raises(ObjectInvalid, match="namespace"):
            await cluster.create(CONFIG_MAPS, thing)

    tell(backend, story)
