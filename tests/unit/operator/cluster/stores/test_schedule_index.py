"""Which stores Schedules name, by what has changed."""

from __future__ import annotations

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, TOPOLOGIES, Object
from penstock_operator.cluster.stores.schedule_index import ScheduleIndex


def schedule(name: str, version: int, *stores: str) -> Object:
    topology, _, operator = name.partition(".")
    spec = {"topology": topology, "operator": operator, "stores": [{"id": one} for one in stores]}
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}, "spec": spec}


def topology(name: str, version: int, *begun: str) -> Object:
    metadata = {"name": name, "uid": name, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {}, "status": {"begun": list(begun)}}


def test_a_store_is_named_from_the_first_schedule_until_the_last_leaves_it() -> None:
    mirror = Mirror(lambda kind, thing: None)
    index = ScheduleIndex(mirror)
    mirror.put(SCHEDULES, schedule("a.x", 1, "n1", "n2"))
    mirror.put(SCHEDULES, schedule("b.x", 2, "n2"))
    assert index.named_stores() == {"n1", "n2"}
    mirror.put(SCHEDULES, schedule("a.x", 3, "n3"))
    assert index.named_stores() == {"n2", "n3"}
    mirror.remove(SCHEDULES, schedule("b.x", 4))
    assert index.named_stores() == {"n3"}


def test_a_home_counts_as_named_though_it_is_not_among_the_stores() -> None:
    mirror = Mirror(lambda kind, thing: None)
    index = ScheduleIndex(mirror)
    made = schedule("a.x", 1, "n1")
    made["spec"]["shards"] = [{"name": "x/0", "home": "n2"}]
    mirror.put(SCHEDULES, made)
    assert index.named_stores() == {"n1", "n2"}


def test_nothing_is_known_while_a_schedule_is_missing_that_its_topology_has_had() -> None:
    mirror = Mirror(lambda kind, thing: None)
    index = ScheduleIndex(mirror)
    mirror.put(TOPOLOGIES, topology("a", 1, "x"))
    assert index.named_stores() is None
    mirror.put(SCHEDULES, schedule("a.x", 2, "n1"))
    assert index.named_stores() == {"n1"}
    mirror.remove(SCHEDULES, schedule("a.x", 3))
    assert index.named_stores() is None
    mirror.put(TOPOLOGIES, topology("a", 4))
    assert index.named_stores() == set()


def test_after_a_change_only_what_changed_is_read() -> None:
    mirror = Mirror(lambda kind, thing: None)
    index = ScheduleIndex(mirror)
    for number in range(100):
        mirror.put(SCHEDULES, schedule(f"t{number}.x", number, "n1"))
    index.named_stores()
    assert index.read == 100
    mirror.put(SCHEDULES, schedule("t7.x", 200, "n1"))
    index.named_stores()
    index.named_stores()
    assert index.read == 101
