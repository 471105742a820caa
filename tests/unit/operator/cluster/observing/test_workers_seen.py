"""Who needs to log in to the stores as a worker."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock_operator.cluster.kubernetes_api.mirror import WATCHED, Mirror
from penstock_operator.cluster.kubernetes_api.port import PODS, SCHEDULES, TOPOLOGIES, Kind, Listing
from penstock_operator.cluster.observing.workers_seen import WorkerIndex, WorkersSeen, is_anothers

AUTH = "pen-store-auth"


def seen(things: dict[Kind, list[dict[str, Any]]]) -> WorkersSeen | None:
    mirror = Mirror(lambda *_: None)
    for kind in WATCHED:
        items = tuple(
            {**one, "metadata": {"resourceVersion": "1", "uid": "x", **one["metadata"]}}
            for one in things.get(kind, ())
        )
        list(mirror.relisting(kind, Listing(items, "1")))
    return WorkerIndex(mirror, AUTH).seen()


def pod(component: str, secret: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component}
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "s", "secret": {"secretName": secret}}]
    return {"metadata": {"name": component, "labels": labels}, "spec": {"volumes": volumes}}


def test_topologies_that_are_there_and_states_that_are_retained_have_workers() -> None:
    fresh = {"metadata": {"name": "a", "uid": "u1"}}
    adopting = {"metadata": {"name": "b", "uid": "u2"}, "status": {"stateUid": "u3"}}
    retained = {"metadata": {"name": "c.x", "uid": "s"}, "spec": {"topology": "c", "topologyUid": "u4"}}
    found = seen({TOPOLOGIES: [fresh, adopting], SCHEDULES: [retained]})
    uids, own = frozenset({"u1", "u2", "u3", "u4"}), frozenset({"u1", "u2"})
    assert found == WorkersSeen(uids, shares_a_user=False, own=own, scheduled=frozenset({"u4"}))


def test_pods_of_workers_that_mount_the_stores_secret_share_a_user() -> None:
    def shares(*pods: dict[str, Any]) -> bool:
        found = seen({PODS: list(pods)})
        assert found is not None
        return found.shares_a_user

    assert not shares(pod("worker", "pen-store-workers"), pod("node-store", AUTH))
    assert shares(pod("worker", AUTH))
    assert shares(pod("spark-worker", AUTH))


def test_nothing_is_known_of_them_before_everything_was_listed() -> None:
    assert WorkerIndex(Mirror(lambda *_: None), AUTH).seen() is None


def test_what_is_kept_up_to_date_is_what_would_be_seen_by_who_begins_now() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        mirror = Mirror(lambda *_: None)
        for kind in WATCHED:
            list(mirror.relisting(kind, Listing((), "1")))
        kept = WorkerIndex(mirror, AUTH)
        for version in range(2, 80):
            kind = rng.choice((TOPOLOGIES, SCHEDULES, PODS))
            if kind == PODS:
                thing = pod(rng.choice(("worker", "node-store")), rng.choice((AUTH, "other")))
            else:
                thing = {"metadata": {"name": "", "uid": ""}, "spec": {"topology": "t"}, "status": {}}
                thing["spec"]["topologyUid"] = rng.choice(("u1", "u2", ""))
                thing["status"]["stateUid"] = rng.choice(("u3", "u4", ""))
            name = f"{rng.randrange(4)}"
            thing["metadata"] |= {"name": name, "uid": f"u{name}", "resourceVersion": str(version)}
            if rng.random() < 0.3:
                mirror.remove(kind, thing)
            else:
                mirror.put(kind, thing)
            if rng.random() < 0.5:
                assert kept.seen() == WorkerIndex(mirror, AUTH).seen()


def of(*, own: str = "", scheduled: str = "", told: str = "") -> WorkersSeen:
    words = [frozenset({one} if one else ()) for one in (own, scheduled, told)]
    return WorkersSeen(frozenset().union(*words), shares_a_user=False, own=words[0], scheduled=words[1])


@pytest.mark.parametrize(
    ("here", "there", "is_other"),
    [
        (of(own="u"), of(scheduled="u"), False),
        (of(own="u"), None, False),
        (of(scheduled="u"), of(told="u"), False),
        (of(scheduled="u"), None, False),
        (of(scheduled="u"), of(own="u"), True),
        (of(scheduled="u"), of(scheduled="u"), True),
        (of(told="u"), of(own="u"), True),
        (of(told="u"), of(scheduled="u"), True),
        (of(told="u"), of(told="u"), True),
        (of(told="u"), of(own="v"), False),
        (of(told="u"), None, True),
    ],
)
def test_whose_a_state_is_is_told_by_who_cannot_have_made_it_up(
    here: WorkersSeen, there: WorkersSeen | None, is_other: bool
) -> None:
    """`None`: the other namespace has not been listed."""
    assert is_anothers("u", "a", {"a": here, "b": there}) == is_other
    assert not is_anothers("u", "a", {"a": here}), "there is no other namespace"
