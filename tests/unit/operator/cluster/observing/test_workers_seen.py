"""Who needs to log in to the stores as a worker."""

from __future__ import annotations

from typing import Any

from penstock_operator.cluster.kubernetes_api.mirror import WATCHED, Mirror
from penstock_operator.cluster.kubernetes_api.port import PODS, SCHEDULES, TOPOLOGIES, Kind, Listing
from penstock_operator.cluster.observing.workers_seen import WorkersSeen, workers_seen

AUTH = "pen-store-auth"


def seen(things: dict[Kind, list[dict[str, Any]]]) -> WorkersSeen | None:
    mirror = Mirror(lambda *_: None)
    for kind in WATCHED:
        items = tuple(
            {**one, "metadata": {"resourceVersion": "1", "uid": "x", **one["metadata"]}}
            for one in things.get(kind, ())
        )
        mirror.relisted(kind, Listing(items, "1"))
    return workers_seen(mirror, AUTH)


def pod(component: str, secret: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component}
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "s", "secret": {"secretName": secret}}]
    return {"metadata": {"name": component, "labels": labels}, "spec": {"volumes": volumes}}


def test_topologies_that_are_there_and_states_that_are_retained_have_workers() -> None:
    fresh = {"metadata": {"name": "a", "uid": "u1"}}
    adopting = {"metadata": {"name": "b", "uid": "u2"}, "status": {"stateUid": "u3"}}
    retained = {"metadata": {"name": "c.x", "uid": "s"}, "spec": {"topology": "c", "topologyUid": "u4"}}
    found = seen({TOPOLOGIES: [fresh, adopting], SCHEDULES: [retained]})
    assert found == WorkersSeen(frozenset({"u1", "u2", "u3", "u4"}), shares_a_user=False)


def test_pods_of_workers_that_mount_the_stores_secret_share_a_user() -> None:
    def shares(*pods: dict[str, Any]) -> bool:
        found = seen({PODS: list(pods)})
        assert found is not None
        return found.shares_a_user

    assert not shares(pod("worker", "pen-store-workers"), pod("node-store", AUTH))
    assert shares(pod("worker", AUTH))
    assert shares(pod("spark-worker", AUTH))


def test_nothing_is_known_of_them_before_everything_was_listed() -> None:
    assert workers_seen(Mirror(lambda *_: None), AUTH) is None
