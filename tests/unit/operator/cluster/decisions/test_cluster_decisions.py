"""What the operator does when things happen: a whole state and an event go in, a whole state comes out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.store.failure_names import failure_name
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_TEMPLATE, worker_name
from penstock_operator.cluster.observing.observed import Need, Observed, Resize
from worlds.cluster_world import GIB, World, manifest


def started(**changes: object) -> World:
    world = World()
    if changes:
        world.edit(**changes)
    world.run(15)
    assert world.status["phase"] == "Running", world.status
    return world


def test_a_topology_gets_workers_on_both_nodes_and_a_schedule_for_each_stage() -> None:
    world = started()
    assert world.ready_pods() == {"words-w0": "node-a", "words-w1": "node-b"}
    assert set(world.schedules) == {"words.lines", "words.count"}
    assert world.tasks("count") == {"words-w0": 1, "words-w1": 1}
    assert world.nodes_of("count") == {"node-a": 4, "node-b": 4}
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")
    assert world.status["workers"] == "2/2"
    assert world.status["tasks"] == "3/3"
    assert world.budget == 2


def test_nothing_more_is_done_once_all_is_as_it_should_be() -> None:
    world = started()
    for _ in range(30):
        assert world.step().actions == ()
    assert world.step(keep_memory=False).actions == (), "nor by a new leader that remembers nothing"


def test_a_scale_edit_adds_workers_and_tasks_and_deletes_no_pod() -> None:
    world = started()
    before = world.uids()
    world.edit(spec__workers__min=3, spec__operators__2__tasks={"min": 4, "max": 8})
    world.run(20)
    assert world.deleted == []
    assert {name: world.uids()[name] for name in before} == before
    assert sorted(world.ready_pods()) == ["words-w0", "words-w1", "words-w2"]
    assert sum(world.tasks("count").values()) == 4
    assert world.is_whole()


def test_a_new_worker_has_its_tasks_up_before_it_gets_shards() -> None:
    world = started()
    world.edit(spec__workers__min=3, spec__operators__2__tasks={"min": 3, "max": 8})
    had_shards_before_tasks = []
    for _ in range(15):
        world.step()
        schedule = world.schedules["words.count"].schedule
        holding = [e for e in schedule.executors if e.worker == "words-w2"]
        had_shards_before_tasks.append(bool(holding) and bool(schedule.shards_of(holding[0].name)))
        if holding:
            break
    assert had_shards_before_tasks[-1] is False, "first it is announced"
    world.run(10)
    assert world.tasks("count")["words-w2"] == 1
    assert world.is_whole()


def test_a_scale_in_moves_shards_away_and_only_then_deletes_the_pod() -> None:
    world = started(spec__workers__min=3, spec__operators__2__tasks={"min": 3, "max": 8})
    world.edit(spec__workers__min=2, spec__operators__2__tasks={"min": 2, "max": 8})
    while not world.deleted:
        world.step()
        if world.deleted:
            break
    (gone,) = world.deleted
    assert gone not in world.tasks("count")
    assert gone not in world.tasks("lines")
    world.run(10)
    assert world.deleted == [gone]
    assert len(world.ready_pods()) == 2
    assert world.is_whole()


def test_a_pod_that_is_deleted_loses_its_shards_at_once_and_comes_back_by_the_same_name() -> None:
    world = started()
    old = world.uids()["words-w0"]
    world.delete_pod("words-w0")
    world.step()
    assert set(world.tasks("count")) == {"words-w1"}, "the living take over"
    world.run(20)
    assert world.uids()["words-w0"] != old
    assert world.is_whole()
    assert set(world.tasks("count")) == {"words-w0", "words-w1"}


def test_the_only_worker_that_is_deleted_is_made_anew_and_its_schedules_name_the_new_pod() -> None:
    world = started(spec__workers__min=1)
    version = world.schedules["words.count"].schedule.version
    world.delete_pod("words-w0")
    world.run(3)
    assert world.condition("Ready")[1] in ("WorkersStarting", "WorkersMissing")
    world.run(15)
    schedule = world.schedules["words.count"].schedule
    assert [place.uid for place in schedule.workers] == [world.uids()["words-w0"]]
    assert schedule.version > version
    assert world.is_whole()


def test_no_two_events_of_one_look_say_the_same_words() -> None:
    world = World()
    told = 0
    for _ in range(20):
        already = len(world.events)
        world.step()
        words = [event.message for event in world.events[already:]]
        assert len(set(words)) == len(words), words
        told += len(words)
    assert told > 1
    assert world.status["phase"] == "Running"


def test_a_pod_that_is_not_listed_for_a_moment_costs_nothing() -> None:
    world = started()
    before = dict(world.schedules)
    held_back = dict(world.pods)
    del world.pods["words-w0"]
    decision = world.step()
    world.pods = held_back
    assert [type(action).__name__ for action in decision.actions if "Schedule" in type(action).__name__] == []
    world.run(5)
    assert world.schedules == before
    assert world.deleted == []


def test_new_code_rolls_worker_by_worker_and_shards_move_first() -> None:
    world = started()
    old = set(world.uids().values())
    world.code = {"words.py": "better"}
    for _ in range(60):
        shards_of_gone = {
            name: [e for s in world.schedules.values() for e in s.schedule.executors if e.worker == name]
            for name, pod in world.pods.items()
            if pod.deleted_in is not None
        }
        assert not any(shards_of_gone.values())
        assert len(world.pods) <= 3
        assert sum(pod.ready for pod in world.pods.values()) >= 2
        world.step()
    assert not old & set(world.uids().values())
    assert len(world.deleted) == 2
    assert world.is_whole()
    assert len(world.config_maps) == 1


def test_a_roll_without_room_for_one_more_hands_over_to_the_others() -> None:
    world = World(nodes=2)
    for node in world.nodes.values():
        node.memory_bytes = 1 << 30
    world.run(15)
    old = set(world.uids().values())
    world.code = {"words.py": "better"}
    world.run(60)
    assert not old & set(world.uids().values())
    assert world.is_whole()


def test_a_roll_of_the_only_worker_without_room_replaces_it_in_place() -> None:
    world = World(nodes=1)
    world.nodes["node-a"].memory_bytes = 1 << 30
    world.edit(spec__workers__min=1)
    world.run(15)
    old = world.uids()
    world.code = {"words.py": "better"}
    world.run(30)
    assert world.uids()["words-w0"] != old["words-w0"]
    assert world.is_whole()


def test_a_cordoned_node_is_evacuated_and_its_store_goes_when_nothing_names_it() -> None:
    world = started()
    world.nodes["node-a"].schedulable = False
    world.run(40)
    assert set(world.ready_pods().values()) == {"node-b"}
    assert len(world.ready_pods()) == 2
    assert set(world.stores) == {"node-b"}
    assert world.nodes_of("count") == {"node-b": 8}
    assert world.is_whole()
    world.nodes["node-a"].schedulable = True
    world.run(10)
    assert set(world.stores) == {"node-a", "node-b"}


def test_a_cordoned_node_without_another_one_keeps_its_only_worker_and_says_why() -> None:
    world = World(nodes=1)
    world.edit(spec__workers__min=1)
    world.run(15)
    world.nodes["node-a"].schedulable = False
    world.run(10)
    assert world.deleted == []
    assert world.is_whole()
    assert world.condition("Progressing") == ("False", "InsufficientResources")
    assert "is cordoned" in world.message("Progressing")


def test_the_shards_of_a_lost_node_wait_and_all_else_goes_on() -> None:
    world = started()
    before = dict(world.schedules)
    world.lose_node("node-a")
    world.run(60)
    assert world.schedules == before
    assert world.deleted == []
    assert world.condition("StoreAvailable") == ("False", "StoreAway")
    assert "node-a" in world.message("StoreAvailable")
    assert world.condition("Ready") == ("False", "StoreAway")
    assert world.status["phase"] == "Running"
    world.return_node("node-a")
    world.run(10)
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")


def test_a_warm_worker_holds_nothing_and_takes_over_when_one_dies() -> None:
    world = started(spec__workers__warm=1)
    assert len(world.ready_pods()) == 3
    assert set(world.tasks("count")) == {"words-w0", "words-w1"}
    assert world.pods["words-w2"].cpu_millis == 500
    world.delete_pod("words-w0")
    world.run(6)
    assert "words-w2" in world.tasks("count") or "words-w2" in world.tasks("lines")
    world.run(15)
    assert len(world.ready_pods()) == 3
    assert world.is_whole()


def test_with_isolation_operator_each_stage_has_workers_of_its_own() -> None:
    world = started(spec__workers__isolation="Operator", spec__workers__min=1)
    count, lines = worker_name("words", "count", 0), worker_name("words", "lines", 0)
    assert sorted(world.ready_pods()) == [count, lines]
    assert set(world.tasks("count")) == {count}
    assert set(world.tasks("lines")) == {lines}
    assert world.is_whole()


def test_paused_sources_have_no_tasks_and_resuming_restores_them() -> None:
    world = started()
    before = world.schedules["words.lines"].schedule
    world.edit(spec__paused=True)
    world.inbox_entries = {"count": 3}
    world.run(3)
    assert world.status["phase"] == "Draining"
    world.inbox_entries = {}
    world.run(3)
    assert world.status["phase"] == "Paused"
    assert set(world.tasks("lines").values()) == {0}
    assert sum(world.tasks("count").values()) == 2
    world.edit(spec__paused=False)
    world.run(3)
    after = world.schedules["words.lines"].schedule
    assert (after.executors, after.shards.keys()) == (before.executors, before.shards.keys())
    assert world.status["phase"] == "Running"


def test_a_topology_whose_input_is_worked_off_is_finished_and_gives_its_workers_back() -> None:
    world = started()
    world.finished = True
    world.run(6)
    assert world.status["phase"] == "Finished"
    assert world.pods == {}
    before = dict(world.schedules)
    for keep in (True, False, True):
        assert world.step(keep_memory=keep).actions == ()
    assert world.schedules == before, "its state is kept"


def test_an_idle_operator_gives_back_its_last_task_and_gets_it_again_with_input() -> None:
    world = started(spec__operators__2__tasks={"min": 0, "max": 4})
    assert sum(world.tasks("count").values()) == 1
    world.run(65)
    assert sum(world.tasks("count").values()) == 0
    assert world.is_whole()
    world.inbox_entries = {"count": 1}
    world.run(2)
    assert sum(world.tasks("count").values()) == 1
    assert sum(world.tasks("lines").values()) == 1, "a source is never idle"


def test_user_code_that_fails_is_shown_and_the_rest_goes_on() -> None:
    world = started()
    annotations = [pod.document["metadata"]["annotations"] for pod in world.pods.values()]
    (template,) = {found[ANNOTATION_TEMPLATE] for found in annotations}
    world.failures = {failure_name("count", template): "Traceback\n  File words.py\nValueError: no such word"}
    world.run(3)
    assert world.status["phase"] == "Failed"
    assert world.condition("Ready") == ("False", "UserCodeFailed")
    assert "no such word" in world.message("Ready")
    assert len(world.ready_pods()) == 2


def test_a_failure_of_code_that_was_mended_is_history() -> None:
    world = started()
    world.failures = {failure_name("count", "01234567"): "ValueError: no such word"}
    world.run(3)
    assert world.status["phase"] == "Running"


def test_without_room_it_is_pending_and_says_what_is_missing_in_figures() -> None:
    world = World(nodes=1)
    world.nodes["node-a"].cpu_millis = 400
    world.run(30)
    assert world.status["phase"] == "Pending"
    assert world.condition("Ready") == ("False", "InsufficientResources")
    assert "Insufficient cpu (0.4 of 0.4 cores free)" in world.message("Ready")
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


def test_a_retained_topology_goes_on_with_its_state_under_its_first_uid() -> None:
    world = started(spec__deletionPolicy="Retain")
    assert {seen.owner_uid for seen in world.schedules.values()} == {""}
    world.pods.clear()
    world.config_maps.clear()
    world.budget = None
    world.memory = Memory()
    world.document = manifest(metadata__uid="uid-second", spec__deletionPolicy="Retain")
    world.run(20)
    assert world.is_whole()
    assert {seen.topology_uid for seen in world.schedules.values()} == {"uid-words"}
    assert world.status["stateUid"] == "uid-words"
    pod = next(iter(world.pods.values()))
    env = {entry["name"]: entry.get("value") for entry in pod.document["spec"]["containers"][0]["env"]}
    assert env["PENSTOCK_TOPOLOGY_UID"] == "uid-words"
    assert pod.document["metadata"]["ownerReferences"][0]["uid"] == "uid-second"


def test_retained_state_of_other_keys_is_refused_in_words() -> None:
    world = started(spec__deletionPolicy="Retain")
    world.pods.clear()
    world.document = manifest(metadata__uid="uid-second", spec__operators__2__shards=16)
    world.memory = Memory()
    assert world.step().actions == ()
    assert world.condition("Ready") == ("False", "RetainedStateDiffers")
    assert "operator count has other keys, shards" in world.message("Ready")


def test_retained_state_whose_rows_go_elsewhere_is_refused() -> None:
    world = started(spec__deletionPolicy="Retain")
    world.pods.clear()
    world.document = manifest(metadata__uid="uid-second", spec__operators__3__sink={"console": {}})
    world.memory = Memory()
    assert world.step().actions == ()
    assert "operator count has other keys, shards, columns, partitions or sinks" in world.message("Ready")


def test_the_identity_in_a_schedule_is_kept_as_this_operator_makes_it() -> None:
    world = started(spec__deletionPolicy="Retain")
    known = {name: seen.identity for name, seen in world.schedules.items()}
    name = next(iter(known))
    world.schedules[name] = replace(world.schedules[name], identity="of-another-version")
    world.run(5)
    assert {name: seen.identity for name, seen in world.schedules.items()} == known


def test_a_topology_waits_until_its_namesakes_schedules_are_collected() -> None:
    world = started()
    world.pods.clear()
    world.document = manifest(metadata__uid="uid-second")
    world.memory = Memory()
    assert world.step().actions == ()
    assert world.condition("Ready") == ("False", "FormerTopologyLeaving")
    world.schedules.clear()
    for store in world.stores.values():
        store.held.clear()
        store.applied.clear()
    world.run(15)
    assert world.is_whole()


def test_another_deletion_policy_or_quota_rewrites_schedules_once_and_moves_nothing() -> None:
    world = started()
    before = {name: seen.schedule for name, seen in world.schedules.items()}
    world.edit(spec__deletionPolicy="Retain", spec__storeMemory="64Mi")
    world.run(3)
    assert {seen.owner_uid for seen in world.schedules.values()} == {""}
    assert {seen.store_memory_bytes for seen in world.schedules.values()} == {64 << 20}
    for name, seen in world.schedules.items():
        assert seen.schedule.version == before[name].version + 1
        assert seen.schedule.executors == before[name].executors
    assert world.step().actions == ()


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


def test_new_files_add_shards_and_files_that_are_gone_take_none_away() -> None:
    world = started()
    world.partitions = ("lines/texts/b.txt", "lines/texts/c.txt")
    world.run(10)
    schedule = world.schedules["words.lines"].schedule
    assert set(schedule.shards) == {"lines/texts/a.txt", "lines/texts/b.txt", "lines/texts/c.txt"}
    assert world.is_whole()


def test_the_first_schedules_wait_for_the_source_partitions() -> None:
    world = World()
    partitions, world.partitions = world.partitions, ()
    world.run(15)
    assert world.schedules == {}
    assert world.status["phase"] == "Starting"
    assert "partitions of lines" in world.message("Ready")
    world.partitions = partitions
    world.run(5)
    assert world.is_whole()


def test_a_manifest_that_cannot_be_read_touches_nothing() -> None:
    world = started()
    seen = replace(world.observed().topology, topology=None, plan=None, faults=("spec: is missing",))
    decision = world.step(look=lambda observed: replace(observed, topology=seen))
    assert decision.actions == ()
    assert world.condition("Ready") == ("False", "InvalidManifest")
    world.run(2)
    assert world.is_whole()


def test_a_crash_between_two_schedules_is_gone_on_from() -> None:
    world = World()
    while not world.schedules:
        decision = world.step()
    del world.schedules["words.count"]
    for store in world.stores.values():
        store.held = {shard for shard in store.held if not shard.startswith("count")}
        store.applied.pop("count", None)
    assert decision.actions
    world.run(10)
    assert world.is_whole()


def test_shards_that_their_home_may_still_have_to_make_stay_with_it_even_when_their_worker_dies() -> None:
    world = World()
    while not world.schedules:
        world.step()
    before = {s: p.home for s, p in world.schedules["words.count"].schedule.shards.items()}
    world.delete_pod("words-w0")

    def before_agents_told(seen: Observed) -> Observed:
        return replace(seen, schedules=tuple(replace(one, applied=()) for one in seen.schedules))

    world.step(look=before_agents_told)
    after = {s: p.home for s, p in world.schedules["words.count"].schedule.shards.items()}
    assert after == before
    world.run(20)
    assert world.is_whole()


@pytest.mark.parametrize(("first", "then"), [("Topology", "Operator"), ("Operator", "Topology")])
def test_another_isolation_moves_everything_to_workers_of_the_other_kind(first: str, then: str) -> None:
    world = started(spec__workers__isolation=first)
    old = set(world.uids().values())
    world.edit(spec__workers__isolation=then)
    world.run(60)
    assert not old & set(world.uids().values())
    assert len(world.pods) == (4 if then == "Operator" else 2)
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")
