"""What the operator decides about a topology on a cluster of tests: workers, scale, nodes, new code."""

from __future__ import annotations

import pytest

from penstock.store.failure_names import failure_name
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_TEMPLATE, worker_name
from worlds.cluster_world import World, manifest
from worlds.started_world import started


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


def test_why_no_partitions_of_a_source_are_found_is_told_until_there_are_some() -> None:
    world = World(manifest(), 2)
    found, world.partitions = world.partitions, ()
    world.no_partitions = "no broker of Kafka at kafka-0:9092 answers"
    world.run(15)
    told = "workers have yet to tell the partitions of lines: no broker of Kafka at kafka-0:9092 answers"
    assert (world.condition("Ready"), world.message("Ready")) == (("False", "WorkersStarting"), told)
    world.partitions = found
    world.run(10)
    assert world.status["phase"] == "Running"


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
