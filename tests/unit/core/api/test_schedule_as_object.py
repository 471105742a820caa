"""A schedule written into its object and read back is the same schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.schedule_object import ScheduleOwner, applied_of, from_object, owner_of, to_spec
from penstock.dataflow.routing_table import digest_of
from penstock.manifest.faults import InvalidManifest
from penstock.schedule.record import (
    AppliedPlace,
    ExecutorPlace,
    OperatorSchedule,
    ShardPlace,
    StorePlace,
    TablePlace,
    WorkerPlace,
)

NODES = ("node-a", "node-b")
SCHEDULE = OperatorSchedule(
    operator="count",
    version=7,
    term=2,
    workers=(WorkerPlace("w1", "node-b", "10.0.0.2", "u1"), WorkerPlace("w0", "node-a", "10.0.0.1", "u0")),
    executors=(ExecutorPlace("count-w0", "w0", 2, (("node-b", 1),)), ExecutorPlace("count-w1", "w1", 0)),
    shards={
        "count/0": ShardPlace("count-w0", "node-a"),
        "count/1": ShardPlace("count-w0", "node-a"),
        "count/2": ShardPlace("count-w1", "node-b", fresh_since=7),
        "count/a b.txt": ShardPlace("count-w1", "node-b", fresh_since=7),
        "count/9": ShardPlace("count-w1", "node-b", fresh_since=7, life=2),
    },
    stores=(StorePlace("node-a", "node-a", "s-a-0.s.ns.svc:6379"), StorePlace("node-b", "node-b", "h:1")),
)
PARTS = st.one_of(
    st.integers(0, 5000).map(str),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
)


@st.composite
def schedules(draw: st.DrawFn) -> OperatorSchedule:
    version = draw(st.integers(0, 2**53 - 1))
    stores = tuple(StorePlace(node, node, f"{node}:6379") for node in NODES) if draw(st.booleans()) else ()
    workers = tuple(
        WorkerPlace(f"w{n}", draw(st.sampled_from(NODES)), "10.0.0.1", f"uid-{n}")
        for n in draw(st.sets(st.integers(0, 9), min_size=1, max_size=4))
    )
    executors = tuple(
        ExecutorPlace(f"count-{worker.name}", worker.name, draw(st.integers(0, 1024))) for worker in workers
    )
    place = st.builds(
        ShardPlace,
        st.sampled_from([executor.name for executor in executors]),
        st.sampled_from(NODES),
        st.sampled_from([0, version]),
        st.booleans(),
    )
    shards = draw(st.dictionaries(PARTS.map("count/{}".format), place, max_size=60))
    term = draw(st.integers(0, 2**53 - 1))
    return OperatorSchedule("count", version, term, workers, executors, shards, stores, draw(st.booleans()))


def written(schedule: OperatorSchedule) -> dict[str, Any]:
    """The object as it comes back from the API server."""
    return dict(json.loads(json.dumps({"spec": to_spec(schedule, "word-count", "uid")})))


@given(schedules())
def test_a_schedule_written_and_read_is_the_same(schedule: OperatorSchedule) -> None:
    assert from_object(written(schedule)) == schedule


@given(schedules(), st.randoms(use_true_random=False))
def test_the_order_of_shards_is_not_written(schedule: OperatorSchedule, random: Any) -> None:
    shards = list(schedule.shards.items())
    random.shuffle(shards)
    assert written(replace(schedule, shards=dict(shards))) == written(schedule)


def test_shards_that_share_a_place_stand_together() -> None:
    assert to_spec(SCHEDULE, "word-count", "uid")["shards"] == [
        {"executor": "count-w0", "home": "node-a", "ranges": ["0-1"]},
        {"executor": "count-w1", "home": "node-b", "freshSince": 7, "ranges": ["2"], "names": ["a b.txt"]},
        {"executor": "count-w1", "home": "node-b", "freshSince": 7, "life": 2, "ranges": ["9"]},
    ]


def test_an_object_says_whose_schedule_it_is() -> None:
    assert owner_of(written(SCHEDULE)) == ScheduleOwner("word-count", "uid")
    spec = to_spec(SCHEDULE, "word-count", "uid", store_memory_bytes=1 << 28)
    assert owner_of({"spec": spec}).store_memory_bytes == 1 << 28
    spec = to_spec(SCHEDULE, "word-count", "uid", durability="Disk")
    assert owner_of({"spec": spec}) == ScheduleOwner("word-count", "uid", None, "Disk")


def test_what_agents_applied_is_read_from_the_status() -> None:
    status = {
        "applied": [
            {"node": "node-a", "version": 7, "generation": 3},
            {"node": "node-b", "version": 6, "generation": 1, "lostShards": 2, "shardsMoving": 1},
        ]
    }
    assert applied_of(written(SCHEDULE) | {"status": status}) == (
        AppliedPlace("node-a", 7, 3),
        AppliedPlace("node-b", 6, 1, lost_shards=2, shards_moving=1),
    )
    assert applied_of(written(SCHEDULE)) == ()


def test_an_object_that_contradicts_itself_is_refused_with_a_sentence() -> None:
    document = written(SCHEDULE)
    document["spec"]["shards"].append({"executor": "count-w1", "home": "node-b", "ranges": ["1"]})
    with pytest.raises(InvalidManifest, match="shard count/1 is on executors count-w0 and count-w1"):
        from_object(document)
    document = written(SCHEDULE)
    document["spec"]["shards"][0]["home"] = "node-z"
    with pytest.raises(InvalidManifest, match="store node-z, which is unknown"):
        from_object(document)


def test_an_object_of_another_form_is_refused_with_its_path() -> None:
    document = written(SCHEDULE)
    document["spec"]["workers"][0]["uid"] = 7
    with pytest.raises(InvalidManifest, match=r"Schedule spec\.workers\[0\] \(w1\)\.uid: 7 is not text"):
        from_object(document)
    with pytest.raises(InvalidManifest):
        from_object({})


def test_a_schedule_that_cannot_be_written_is_refused_before_it_is() -> None:
    long = "count/" + "x" * 2000
    with pytest.raises(InvalidManifest, match="names"):
        to_spec(replace(SCHEDULE, shards={long: ShardPlace("count-w0", "node-a")}), "word-count", "uid")


def test_fields_that_an_operator_of_the_next_version_wrote_are_passed_over() -> None:
    spec = to_spec(SCHEDULE, topology="t", topology_uid="u")
    newer = json.loads(json.dumps(spec))
    newer["later"] = 1
    newer["shards"][0]["later"] = {"a": 1}
    newer["workers"][0]["later"] = [1]
    applied = {"node": "node-a", "version": 7, "generation": 1, "later": 1}
    document = {"spec": newer, "status": {"applied": [applied], "later": 1}}
    assert from_object(document) == from_object({"spec": spec})
    assert owner_of(document) == ScheduleOwner("t", "u")
    assert [place.version for place in applied_of(document)] == [7]
    with pytest.raises(InvalidManifest, match="version"):
        from_object({"spec": newer | {"version": "7"}})


def test_a_routing_table_travels_with_its_content() -> None:
    table = TablePlace(3, digest_of(b"content"), b"content")
    assert from_object(written(replace(SCHEDULE, table=table))).table == table
    assert "table" not in to_spec(SCHEDULE, "word-count", "uid")


@pytest.mark.parametrize("fault", [{"digest": digest_of(b"another")}, {"content": "AAAA"}])
def test_a_routing_table_that_came_to_harm_is_refused(fault: dict[str, str]) -> None:
    document = written(replace(SCHEDULE, table=TablePlace(3, digest_of(b"content"), b"content")))
    document["spec"]["table"] |= fault
    with pytest.raises(InvalidManifest, match="routing table"):
        from_object(document)
