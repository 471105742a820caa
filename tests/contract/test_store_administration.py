"""Store contract: generations, enrolment, schedules, records, task maps, failures, metrics."""

from __future__ import annotations

import pytest

from backends.store_backends import Backend
from penstock.errors import PermanentError
from penstock.store.port import (
    Answer,
    AssignedExecutor,
    Assignment,
    Bounds,
    Claim,
    Claimed,
    ClearFailure,
    Enroll,
    Failures,
    KeepTopologies,
    Measure,
    MintStart,
    OpenStore,
    Owner,
    Publish,
    PutMetrics,
    ReadMetrics,
    ReportFailure,
    Retract,
    SetTasks,
    SomeTopologies,
    StateWrite,
    TaskMap,
    Tasks,
    Topologies,
    TopologiesAmong,
    WaitControl,
    WaitReady,
    Wake,
    Weigh,
)
from scenes.store_scenario import Scene, incarnation, out


def control(scene: Scene, worker: str) -> int:
    """The last number of a worker's control stream."""
    return scene.store.call(WaitControl(worker, -1, 1))


# --- generations


def test_each_open_raises_the_generation(scene: Scene) -> None:
    assert [scene.open(), scene.open(), scene.open()] == [1, 2, 3]


def test_the_same_run_of_a_server_is_one_generation(scene: Scene) -> None:
    runs = ("x", "x", "y", "y", "", "y", "", "")
    assert [scene.store.call(OpenStore("s1", run)) for run in runs] == [1, 1, 2, 2, 3, 4, 5, 6]


def test_a_store_keeps_its_id(scene: Scene) -> None:
    scene.open("s1")
    with pytest.raises(PermanentError, match="s1"):
        scene.store.call(OpenStore("s2"))


def test_the_generation_is_seen_in_claims_counters_and_assignments(scene: Scene) -> None:
    scene.set_up("mid/0")
    generation = scene.open()
    assert scene.claim("mid/0").generation == generation
    assert scene.measure("mid/0").generation == generation
    assert scene.store.call(Assignment("w1")).generation == generation


# --- enrolment


def test_a_worker_enrolls_before_any_schedule_names_it(scene: Scene) -> None:
    scene.open()
    assert scene.enroll("w9") is Answer.OK


def test_enrolling_twice_is_ok(scene: Scene) -> None:
    scene.open()
    assert [scene.enroll("w1"), scene.enroll("w1")] == [Answer.OK, Answer.OK]


def test_an_earlier_start_or_attempt_of_a_worker_is_stale(scene: Scene) -> None:
    scene.open()
    store = scene.store
    assert store.call(Enroll("w1", "u", 1000, 2)) is Answer.OK
    assert store.call(Enroll("w1", "u", 1000, 1)) is Answer.STALE
    assert store.call(Enroll("w1", "u", 999, 2)) is Answer.STALE
    assert store.call(Enroll("w1", "u", 1001, 1)) is Answer.STALE
    assert store.call(Enroll("w1", "u", 1001, 2)) is Answer.OK
    assert store.call(Enroll("w1", "u", 900, 10)) is Answer.OK


def test_each_start_of_a_worker_is_given_a_higher_number_whatever_was_enrolled(scene: Scene) -> None:
    scene.open()
    store = scene.store
    assert [store.call(MintStart(worker)) for worker in ("w1", "w1", "w2")] == [1, 2, 1]
    # as an earlier version enrolled it, by a clock in milliseconds
    assert store.call(Enroll("w1", "u", 1_700_000_000_000, 0)) is Answer.OK
    start = store.call(MintStart("w1"))
    assert start == 1_700_000_000_001
    assert store.call(Enroll("w1", "u", start, 0)) is Answer.OK
    assert store.call(Enroll("w1", "u", 2, 0)) is Answer.STALE


def test_a_container_that_starts_again_after_the_clock_stepped_back_may_work(scene: Scene) -> None:
    scene.set_up("mid/0")
    store = scene.store
    for _ in range(2):
        start = store.call(MintStart("w1"))
        assert isinstance(start, int)
        assert store.call(Enroll("w1", "uid-w1", start, 1)) is Answer.OK
        owner = Owner("mid@w1", f"uid-w1/{start}/1", "ready")
        assert isinstance(store.call(Claim("mid/0", owner, 1)), Claimed)


def test_starts_of_two_uids_have_no_order(scene: Scene) -> None:
    scene.open()
    store = scene.store
    assert store.call(Enroll("w1", "pod-1", 5000, 3)) is Answer.OK
    assert store.call(Enroll("w1", "pod-2", 1000, 0)) is Answer.OK
    assert store.call(Enroll("w1", "pod-1", 5000, 3)) is Answer.OK


def test_the_uid_that_the_map_names_wins_over_an_enrolled_one(scene: Scene) -> None:
    scene.open()
    assert scene.store.call(Enroll("w1", "another", 9_000_000, 9)) is Answer.OK
    scene.publish("mid")
    assert scene.store.call(Enroll("w1", "another", 9_000_000, 9)) is Answer.STALE
    assert scene.enroll("w1") is Answer.OK
    scene.create("mid/0")
    scene.claim("mid/0")


def test_a_worker_of_another_uid_than_the_map_names_is_stale(scene: Scene) -> None:
    scene.open()
    scene.publish("mid")
    assert scene.store.call(Enroll("w1", "other-uid", 5000, 9)) is Answer.STALE
    assert scene.enroll("w1") is Answer.OK


# --- schedules


def test_schedules_are_taken_in_the_order_of_versions(scene: Scene) -> None:
    scene.open()
    assert scene.publish("mid", version=2) is Answer.OK
    assert scene.publish("mid", version=2) is Answer.DONE
    assert scene.publish("mid", version=1) is Answer.STALE
    assert scene.publish("mid", version=5) is Answer.OK
    assert scene.publish("end", version=1) is Answer.OK


def test_a_leader_of_an_earlier_term_publishes_nothing(scene: Scene) -> None:
    scene.open()
    assert scene.publish("mid", version=1, term=7) is Answer.OK
    assert scene.publish("mid", version=2, term=6) is Answer.STALE
    assert scene.publish("mid", version=2, term=8) is Answer.OK


def test_an_assignment_lists_a_workers_executors_and_shards(scene: Scene) -> None:
    scene.open()
    scene.publish("mid", version=3, worker="w2")
    scene.publish("end", version=4, worker="w1")
    assignment = scene.store.call(Assignment("w2"))
    assert assignment.uid == "uid-w2"
    assert not assignment.retracted
    assert assignment.executors == (
        AssignedExecutor("end", "end@w2", 4, 1, ()),
        AssignedExecutor("mid", "mid@w2", 3, 1, ("mid/0", "mid/1")),
    )


def test_an_assignment_lists_only_shards_whose_home_is_this_store(scene: Scene) -> None:
    scene.open("s1")
    homes = (("mid/0", "mid@w1", "s2"), ("mid/1", "mid@w1", "s1"), ("mid/2", "mid@w1", "s1"))
    call = Publish("mid", 1, 1, (("w1", "node-1", "host-1", "uid-w1"),), (("mid@w1", "w1", 2),), homes)
    assert scene.store.call(call) is Answer.OK
    assert scene.store.call(Assignment("w1")).executors == (
        AssignedExecutor("mid", "mid@w1", 1, 2, ("mid/1", "mid/2")),
    )


def test_an_assignment_says_which_tasks_are_remote(scene: Scene) -> None:
    scene.open("s1")
    workers = tuple((name, "node-1", "host-1", f"uid-{name}") for name in ("w1", "w2"))
    executors = (("mid@w1", "w1", 3), ("mid@w2", "w2", 1))
    remote = (("mid@w1", "node-2", 1), ("mid@w1", "node-3", 1))
    assert scene.store.call(Publish("mid", 1, 1, workers, executors, (), remote)) is Answer.OK
    (first,) = scene.store.call(Assignment("w1")).executors
    (second,) = scene.store.call(Assignment("w2")).executors
    assert (first.tasks, first.remote) == (3, (("node-2", 1), ("node-3", 1)))
    assert (second.tasks, second.remote) == (1, ())
    assert scene.store.call(Publish("mid", 2, 1, workers, executors, ())) is Answer.OK
    assert [executor.remote for executor in scene.store.call(Assignment("w1")).executors] == [()]


def test_an_assignment_of_a_worker_that_no_map_names_is_empty(scene: Scene) -> None:
    scene.open()
    scene.publish("mid")
    assignment = scene.store.call(Assignment("w9"))
    assert (assignment.uid, assignment.executors) == ("", ())


def test_a_worker_leaves_the_map_with_the_last_schedule_that_names_it(scene: Scene) -> None:
    scene.open()
    scene.publish("mid")
    scene.publish("end")
    scene.workers = ("w1",)
    scene.publish("mid", version=2)
    assert scene.store.call(Assignment("w2")).uid == "uid-w2"
    scene.publish("end", version=2)
    assert scene.store.call(Assignment("w2")).uid == ""


def test_publishing_wakes_every_worker_of_the_old_and_the_new_schedule(scene: Scene) -> None:
    scene.open()
    scene.workers = ("w1", "w2")
    scene.publish("mid", version=1)
    before = {worker: control(scene, worker) for worker in ("w1", "w2", "w3", "w4")}
    scene.workers = ("w2", "w3")
    scene.publish("mid", version=2, worker="w2")
    after = {worker: control(scene, worker) for worker in ("w1", "w2", "w3", "w4")}
    assert {worker for worker in after if after[worker] > before[worker]} == {"w1", "w2", "w3"}


def test_a_refused_schedule_wakes_nobody(scene: Scene) -> None:
    scene.open()
    scene.publish("mid", version=2)
    before = control(scene, "w1")
    scene.publish("mid", version=2)
    scene.publish("mid", version=1)
    assert control(scene, "w1") == before


def test_waiting_for_control_answers_the_last_number(scene: Scene) -> None:
    scene.open()
    scene.publish("mid", version=1)
    last = control(scene, "w1")
    assert scene.store.call(WaitControl("w1", last, 1)) == last
    scene.publish("mid", version=2)
    assert scene.store.call(WaitControl("w1", last, 1)) > last


# --- records


def test_a_record_is_created_once(scene: Scene) -> None:
    scene.set_up()
    assert scene.create("mid/0") is Answer.OK
    assert scene.create("mid/0") is Answer.EXISTS


def test_creating_again_changes_nothing(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", position=b"after line 7", again=True)
    assert scene.create("src/0", position=b"start") is Answer.EXISTS
    assert scene.claim("src/0").position == b"after line 7"


def test_a_topology_sees_nothing_of_another(backend: Backend) -> None:
    one = Scene(backend.open_store(topology="t1")).set_up("mid/0")
    other = Scene(backend.open_store(topology="t2"))
    assert other.store.call(Measure(("mid/0",))) == [None]
    assert other.append("mid/0", 1) is Answer.UNKNOWN
    assert other.store.call(Assignment("w1")).executors == ()
    assert one.append("mid/0", 1) is Answer.OK


# --- topologies


def topologies(backend: Backend) -> list[str]:
    return backend.open_store(topology="any").call(Topologies())


def test_a_topology_is_listed_from_its_first_schedule_or_record_on(backend: Backend) -> None:
    one, two, three = (Scene(backend.open_store(topology=name)) for name in ("t1", "t2", "t3"))
    one.open()
    assert topologies(backend) == []
    three.enroll("w1")
    assert topologies(backend) == []
    two.create("mid/0")
    one.publish("mid")
    assert topologies(backend) == ["t1", "t2"]


def test_a_retracted_topology_is_not_listed_any_more(backend: Backend) -> None:
    one, two = (Scene(backend.open_store(topology=name)).set_up("mid/0") for name in ("t1", "t2"))
    retract(one)
    assert topologies(backend) == ["t2"]
    one.create("mid/0")
    one.publish("mid")
    assert topologies(backend) == ["t2"]
    retract(two)
    assert topologies(backend) == []


def test_of_some_topologies_it_is_told_which_are_there(backend: Backend) -> None:
    for name in ("t1", "t2"):
        Scene(backend.open_store(topology=name)).set_up("mid/0")
    store = backend.open_store(topology="any")
    assert store.call(TopologiesAmong(("t3", "t2", "t1"))) == ["t1", "t2"]
    assert store.call(TopologiesAmong(())) == []
    assert store.call(SomeTopologies(9)) == (2, ["t1", "t2"])
    count, some = store.call(SomeTopologies(1))
    assert (count, len(some)) == (2, 1)


def test_of_topologies_that_are_not_kept_it_is_forgotten_that_they_were_named(backend: Backend) -> None:
    for name in ("t1", "t2"):
        Scene(backend.open_store(topology=name)).set_up("mid/0")
    store = backend.open_store(topology="any")
    store.call(KeepTopologies(("t2", "t3")))
    assert topologies(backend) == ["t2"]
    store.call(KeepTopologies(()))
    assert topologies(backend) == []
    Scene(backend.open_store(topology="t1")).publish("mid", version=2)
    assert topologies(backend) == ["t1"], "its next Schedule names it again"


# --- retraction


def retract(scene: Scene) -> None:
    while scene.store.call(Retract()):
        pass


def test_a_retracted_topology_answers_unknown(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.commit("src/0", out("mid/0"), out("far/0"), state=(), again=True)
    late = scene.next_commit("src/0")
    retract(scene)
    assert scene.store.call(late) is Answer.UNKNOWN
    assert scene.try_claim("mid/0") is Answer.UNKNOWN
    assert scene.append("mid/0", 1) is Answer.UNKNOWN
    assert scene.create("mid/0") is Answer.UNKNOWN
    assert scene.publish("mid", version=9) is Answer.UNKNOWN
    assert scene.enroll("w1") is Answer.UNKNOWN
    assert scene.store.call(MintStart("w1")) is Answer.UNKNOWN
    assert scene.acknowledge("src/0", "far/0", 1) is Answer.UNKNOWN
    assert scene.fetch("mid@w1").shards == ()
    assert scene.outgoing() == []


def test_a_retracted_topology_says_so_in_assignments(scene: Scene) -> None:
    scene.set_up("mid/0")
    retract(scene)
    assignment = scene.store.call(Assignment("w1"))
    assert assignment.retracted
    assert assignment.executors == ()


def test_a_retraction_leaves_other_topologies_alone(backend: Backend) -> None:
    one = Scene(backend.open_store(topology="t1")).set_up("mid/0")
    other = Scene(backend.open_store(topology="t11")).set_up("mid/0")
    retract(one)
    assert other.append("mid/0", 1) is Answer.OK
    assert other.store.call(Assignment("w1")).uid == "uid-w1"


# --- task maps


def test_a_workers_enrolled_start_says_which_task_runs_which_shard(scene: Scene) -> None:
    scene.set_up()
    mapping = (("mid/0", "mid@w1#0"), ("mid/1", "mid@w1#1"))
    call = SetTasks("w1", incarnation("w1"), "mid@w1", mapping)
    assert scene.store.call(Tasks("mid@w1", "mid")) == TaskMap("", {}, 1)
    assert scene.store.call(call) is Answer.OK
    assert scene.store.call(Tasks("mid@w1", "mid")) == TaskMap(incarnation("w1"), dict(mapping), 1)


def test_tasks_that_stand_without_a_shard_are_named_and_woken(scene: Scene) -> None:
    scene.set_up()
    call = SetTasks("w1", incarnation("w1"), "mid@w1", (("mid/0", "a"),), ("a", "b"))
    assert scene.store.call(call) is Answer.OK
    answer = scene.store.call(Tasks("mid@w1", "mid"))
    assert answer == TaskMap(incarnation("w1"), {"mid/0": "a"}, 1, frozenset({"b"}))
    assert scene.fetch("b").control
    scene.store.call(SetTasks("w1", incarnation("w1"), "mid@w1", (("mid/0", "a"),)))
    assert scene.fetch("b").control


def test_an_earlier_start_of_a_worker_sets_no_tasks(scene: Scene) -> None:
    scene.set_up()
    scene.enroll("w1", attempt=2)
    mapping = (("mid/0", "a"),)
    assert scene.store.call(SetTasks("w1", incarnation("w1", 1), "mid@w1", mapping)) is Answer.STALE
    assert scene.store.call(SetTasks("w1", incarnation("w1", 2), "mid@w1", mapping)) is Answer.OK


def test_setting_tasks_wakes_every_task_named_before_or_now(scene: Scene) -> None:
    scene.set_up()
    for mapping in ((("mid/0", "a"), ("mid/1", "b")), (("mid/0", "b"), ("mid/1", "c"))):
        for ready in "abc":
            scene.fetch(ready)
        scene.store.call(SetTasks("w1", incarnation("w1"), "mid@w1", mapping))
    assert [scene.fetch(ready).control for ready in "abcd"] == [True, True, True, False]


def test_a_ready_list_keeps_one_control_token_at_most(scene: Scene) -> None:
    scene.set_up()
    assert not scene.store.call(WaitReady("a", 1))
    assert scene.store.call(Wake("a")) is Answer.OK
    assert scene.store.call(Wake("a")) is Answer.OK
    assert scene.store.call(WaitReady("a", 1))
    assert scene.fetch("a").control
    assert not scene.fetch("a").control
    assert not scene.store.call(WaitReady("a", 1))


def test_a_control_token_is_found_before_any_shard(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    scene.store.call(Wake("mid@w1"))
    fetched = scene.fetch("mid@w1", shards_max=1)
    assert fetched.control
    assert [one.shard for one in fetched.shards] == ["mid/0"]


# --- failures and metrics


def report(scene: Scene, shard: str, message: str, **changes: int) -> Answer:
    claimed = scene.claims[shard]
    fields = {"generation": claimed.generation, "epoch": claimed.epoch, **changes}
    return scene.store.call(ReportFailure(shard=shard, operator="mid", message=message, **fields))


def test_the_first_failure_of_an_operator_is_kept(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    assert report(scene, "mid/0", "first") is Answer.OK
    assert report(scene, "mid/1", "second") is Answer.DONE
    assert scene.store.call(Failures()) == {"mid": "first"}


def test_a_late_owner_reports_no_failure(scene: Scene) -> None:
    claimed = scene.set_up("mid/0").claims["mid/0"]
    scene.claim("mid/0")
    assert report(scene, "mid/0", "late", epoch=claimed.epoch) is Answer.FENCED
    assert report(scene, "mid/0", "late", generation=claimed.generation - 1) is Answer.FENCED
    assert scene.store.call(Failures()) == {}


def test_a_cleared_failure_is_forgotten(scene: Scene) -> None:
    scene.set_up("mid/0")
    report(scene, "mid/0", "first")
    assert scene.store.call(ClearFailure("mid")) is Answer.OK
    assert scene.store.call(ClearFailure("mid")) is Answer.OK
    assert scene.store.call(Failures()) == {}
    assert report(scene, "mid/0", "again") is Answer.OK


def test_metric_rows_are_replaced_by_name(scene: Scene) -> None:
    scene.set_up()
    assert scene.store.call(ReadMetrics()) == {}
    assert scene.store.call(PutMetrics((("a", b"1"), ("b", b"2")))) is Answer.OK
    assert scene.store.call(PutMetrics((("a", b"\x00\xff"),))) is Answer.OK
    assert scene.store.call(ReadMetrics()) == {"a": b"\x00\xff", "b": b"2"}


STREAM = 8192
"""What a stream may take beyond its entries: it grows by blocks."""


def weight(scene: Scene, shard: str = "mid/0") -> int:
    (found,) = scene.store.call(Weigh((shard,)))
    assert found is not None
    return found


def test_a_shard_weighs_what_its_inbox_and_its_state_hold(backend: Backend) -> None:
    scene = Scene(backend.open_store(bounds=Bounds()))
    scene.set_up("src/0", "mid/0")
    empty = weight(scene)
    scene.commit("src/0", *[out("mid/0", b"x" * 900) for _ in range(5)])
    full = weight(scene)
    assert 5 * 900 <= full - empty <= 5 * 900 + STREAM
    entries = scene.fetch_one("mid/0")
    kept = tuple(StateWrite(b"", b"%d" % number, b"y" * 400) for number in range(20))
    scene.commit("mid/0", entries=entries, state=kept)
    with_values = weight(scene)
    assert 20 * 400 <= with_values - empty <= 20 * 600 + STREAM
    listed = tuple(StateWrite(b"list %d" % n, b"%d" % i, b"z" * 300) for n in range(30) for i in range(3))
    scene.commit("mid/0", state=listed)
    assert 90 * 300 <= weight(scene) - with_values <= 90 * 700
    gone = tuple(StateWrite(b"list %d" % n, None, None) for n in range(30))
    scene.commit("mid/0", state=gone)
    assert weight(scene) < with_values + 300


def test_shards_are_weighed_in_order_and_what_is_not_there_weighs_nothing(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    first, none, last = scene.store.call(Weigh(("mid/0", "mid/9", "mid/1"), samples=1))
    assert (first == last, none) == (True, None)
    assert scene.store.call(Weigh(())) == []


def test_publish_takes_an_operator_without_shards_or_workers(scene: Scene) -> None:
    scene.open()
    assert scene.store.call(Publish("mid", 1, 1, (), (), ())) is Answer.OK


def test_tasks_of_an_executor_that_is_named_no_more_are_woken_and_forgotten(scene: Scene) -> None:
    scene.set_up()
    call = SetTasks("w2", incarnation("w2"), "mid@w2", (("mid/0", "r2"),), ("r3",))
    assert scene.store.call(call) is Answer.OK
    for ready in ("r2", "r3"):
        assert scene.fetch(ready).control
    scene.workers = ("w1",)
    assert scene.publish("mid", version=2) is Answer.OK
    assert [scene.fetch(ready).control for ready in ("r2", "r3")] == [True, True]
    assert scene.store.call(Tasks("mid@w2", "mid")) == TaskMap("", {}, 2)
