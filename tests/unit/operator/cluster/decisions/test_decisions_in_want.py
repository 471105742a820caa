"""What the operator decides where something is wanting: room, code, a store, a schedule that was applied."""

from __future__ import annotations

from penstock_operator.cluster.decisions.decide import AT_ONCE_S, LATER_S, SOON_S
from penstock_operator.cluster.observing.observed import Need, Resize
from worlds.cluster_world import GIB, World, manifest
from worlds.started_world import started


def test_without_room_it_is_pending_and_says_what_is_missing_in_figures() -> None:
    world = World(nodes=1)
    world.nodes["node-a"].cpu_millis = 400
    world.run(30)
    assert world.status["phase"] == "Pending"
    assert world.condition("Ready") == ("False", "InsufficientResources")
    assert "Insufficient cpu (0.4 of 0.4 cores free)" in world.message("Ready")
    assert "all 2 would fit with taskCpu: 100m and workers.cores.min: 200m" in world.message("Ready")
    assert world.last is not None
    assert world.last.need is not None
    assert world.last.need.pods == 2
    world.nodes["node-a"].cpu_millis = 8000
    world.run(15)
    assert world.status["phase"] == "Running"


def test_cores_follow_tasks_in_place() -> None:
    world = started()
    before = world.uids()
    world.edit(spec__operators__2__tasks={"min": 6, "max": 8})
    world.run(10)
    assert world.uids() == before
    assert sum(world.tasks("count").values()) == 6
    tasks = {name: world.tasks("count").get(name, 0) + world.tasks("lines").get(name, 0) for name in before}
    for name, pod in world.pods.items():
        assert pod.cpu_millis == min(tasks[name] * 1000, 3999)
    world.edit(spec__workers__cores={"min": "0.5", "max": "2"})
    world.run(10)
    assert world.uids() == before
    assert {pod.cpu_millis for pod in world.pods.values()} == {1999}
    assert sum(world.tasks("count").values()) + sum(world.tasks("lines").values()) == 4


def test_disk_on_stores_of_process_is_pending_in_words() -> None:
    world = World()
    world.document["spec"]["durability"] = "Disk"
    world.run(5)
    assert world.status["phase"] == "Pending"
    assert world.condition("StoreAvailable") == ("False", "DurabilityUnavailable")
    assert world.pods == {}


def test_without_its_code_nothing_is_made_and_what_runs_runs_on() -> None:
    world = World()
    world.code = None
    world.run(5)
    assert world.condition("Ready") == ("False", "CodeMissing")
    assert world.pods == {}
    world.code = {"words.py": "..."}
    world.run(15)
    assert world.is_whole()
    before = world.uids()
    world.code = None
    world.run(10)
    assert world.uids() == before


def test_a_service_account_that_is_not_allowed_is_refused_and_what_runs_runs_on() -> None:
    world = started()
    before = world.uids()
    world.edit(spec__pod={"serviceAccountName": "cluster-admin"})
    world.run(5)
    assert world.condition("Ready") == ("False", "ServiceAccountRefused")
    assert world.condition("Stalled") == ("True", "ServiceAccountRefused")
    assert "cluster-admin is not one of those" in world.message("Ready")
    assert world.uids() == before
    allowed = world.config.worker.model_copy(update={"service_accounts": ("reader",)})
    world.config = world.config.model_copy(update={"worker": allowed})
    world.edit(spec__pod={"serviceAccountName": "reader"})
    world.run(40)
    assert {pod.document["spec"]["serviceAccountName"] for pod in world.pods.values()} == {"reader"}
    assert world.is_whole()


def test_an_event_is_posted_once_for_each_transition() -> None:
    world = started()
    told = [event.reason for event in world.events]
    assert told.count("Running") == 1
    world.run(10)
    assert [event.reason for event in world.events] == told


def test_while_a_store_has_not_applied_a_version_only_the_dead_are_treated() -> None:
    world = started()
    world.agents_work = False
    world.edit(spec__operators__2__tasks={"min": 3, "max": 8})
    world.run(3)
    version = world.schedules["words.count"].schedule.version
    world.edit(spec__operators__2__tasks={"min": 4, "max": 8})
    world.run(5)
    assert world.schedules["words.count"].schedule.version == version
    assert world.condition("Progressing") == ("True", "ApplyingSchedule")
    world.delete_pod("words-w0")
    world.run(2)
    assert set(world.tasks("count")) == {"words-w1"}
    world.agents_work = True
    world.run(20)
    assert world.is_whole()


def test_nothing_new_is_decided_while_shards_are_on_their_way() -> None:
    world = started()
    world.moves_go_on = False
    world.nodes["node-a"].schedulable = False
    world.edit(spec__workers__min=3)
    world.run(8)
    assert world.status["shardsMoving"] > 0
    assert "shards of count leave node node-a" in world.message("Progressing")
    version = world.schedules["words.count"].schedule.version
    world.edit(spec__operators__2__tasks={"min": 4, "max": 8})
    world.run(20)
    assert world.schedules["words.count"].schedule.version == version
    world.moves_go_on = True
    world.run(20)
    assert world.status["shardsMoving"] == 0
    assert sum(world.tasks("count").values()) == 4


def test_what_does_not_settle_holds_nothing_up_for_ever() -> None:
    world = started()
    world.agents_work = False
    world.edit(spec__operators__2__tasks={"min": 3, "max": 8})
    world.run(3)
    world.edit(spec__operators__2__tasks={"min": 4, "max": 8})
    world.run(125)
    assert sum(world.tasks("count").values()) == 4
    assert world.condition("Progressing") == ("False", "DeadlineExceeded")


def test_what_a_topology_of_higher_priority_waits_for_is_not_taken() -> None:
    world = World(nodes=1)
    world.nodes["node-a"].cpu_millis = 3000
    world.needs = (Need("important", 5, "2026-01-02T00:00:00Z", 1, 2500, GIB),)
    world.run(15)
    assert world.status["phase"] == "Pending"
    assert world.pods == {}
    assert "0.5 of 3 cores free" in world.message("Ready")
    assert "kept for important" in world.message("Ready")
    world.needs = (Need("lowly", -5, "2025-01-02T00:00:00Z", 1, 2500, GIB),)
    world.run(45)
    assert world.status["phase"] == "Running"


def test_a_pod_that_its_node_does_not_take_is_made_on_another_one() -> None:
    world = World()
    world.run(4)
    pod = world.pods["words-w0"]
    pod.is_bound, pod.ready, pod.ready_in = False, False, None
    pod.phase, pod.reason = "Pending", "Unschedulable"
    world.run(30)
    assert world.deleted == ["words-w0"]
    assert world.pods["words-w0"].node == "node-b"
    assert world.status["phase"] == "Running"


def test_a_pod_that_was_evicted_is_removed_and_made_again() -> None:
    world = started()
    pod = world.pods["words-w1"]
    pod.phase, pod.ready, pod.ready_in, pod.reason = "Failed", False, None, "Evicted"
    world.run(15)
    assert world.deleted == ["words-w1"]
    assert world.is_whole()


def test_a_resize_that_its_node_can_never_give_sends_the_worker_elsewhere() -> None:
    world = World(nodes=3)
    world.run(15)
    pod = world.pods["words-w0"]
    pod.resize = Resize.INFEASIBLE
    world.run(25)
    assert "words-w0" in world.deleted
    assert world.is_whole()


def test_a_resize_that_is_put_off_is_waited_for_and_then_its_shards_move_elsewhere() -> None:
    world = World(nodes=3)
    world.run(15)
    pod = world.pods["words-w0"]
    pod.resize = Resize.DEFERRED
    world.run(25)
    pod.resize = Resize.NONE
    world.run(1)
    pod.resize = Resize.DEFERRED
    world.run(25)
    assert world.deleted == [], "a node that has the cores in time keeps its worker"
    world.run(30)
    assert world.deleted == ["words-w0"]
    assert "words-w0" not in world.tasks("count")
    assert len(world.ready_pods()) == 2
    assert world.is_whole()
    reasons = {event.message for event in world.events if event.reason == "WorkerRemoved"}
    assert reasons == {"worker words-w0 is removed: node node-a does not give it its cores"}


def test_where_there_is_no_other_room_a_resize_is_waited_for_on_and_on() -> None:
    world = World(nodes=1)
    world.run(20)
    before = world.uids()
    world.nodes["node-a"].cpu_millis = sum(pod.cpu_millis for pod in world.pods.values())
    for pod in world.pods.values():
        pod.resize = Resize.DEFERRED
    world.run(200)
    assert world.uids() == before
    assert world.is_whole()


def test_an_operator_without_a_task_is_looked_after_less_often_the_longer_nothing_comes() -> None:
    world = World(manifest(spec__operators__2__tasks={"min": 0, "max": 8}))
    looks = [
        (sum(world.tasks("count").values()) if world.schedules else 1, world.step().next_look_s)
        for _ in range(200)
    ]
    idle = [look_s for tasks, look_s in looks if not tasks]
    assert idle[1] == AT_ONCE_S
    assert idle == sorted(idle)
    assert idle[-1] == LATER_S
    world.inbox_entries["count"] = 3
    world.step()
    assert sum(world.tasks("count").values()) > 0
    world.inbox_entries.clear()
    world.run(75)
    assert not sum(world.tasks("count").values())
    assert world.step().next_look_s < SOON_S, "what came once may come again"


def test_where_nothing_can_come_an_operator_without_a_task_is_looked_after_in_its_time() -> None:
    world = World(manifest(spec__operators__2__tasks={"min": 0, "max": 8}))
    world.run(30)
    world.edit(spec__paused=True)
    world.run(100)
    assert not sum(world.tasks("count").values())
    assert world.step().next_look_s == LATER_S
