"""What the operator decides about kept state: retained topologies, new shards, crashes between writes."""

from __future__ import annotations

from dataclasses import replace

from penstock_operator.cluster.decisions.actions import WriteSchedule
from penstock_operator.cluster.decisions.decide import decide
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.observing.observed import Observed
from worlds.cluster_world import World, manifest
from worlds.started_world import started


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


def test_retained_state_goes_on_with_a_sink_of_dead_letters_that_came_and_not_with_another_one() -> None:
    world = started(spec__deletionPolicy="Retain")
    world.pods.clear()
    for path, uid in (("dead", "uid-second"), ("elsewhere", "uid-third")):
        world.document = manifest(
            metadata__uid=uid,
            spec__deletionPolicy="Retain",
            spec__deadLetters={"files": {"path": path, "format": "jsonl"}},
        )
        world.memory = Memory()
        world.run(20)
        if path == "dead":
            assert world.is_whole()
            assert {seen.topology_uid for seen in world.schedules.values()} == {"uid-words"}
    assert world.condition("Ready") == ("False", "RetainedStateDiffers")


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
        store.kept.clear()
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


def test_a_schedule_of_a_later_leader_is_written_under_the_own_term_which_is_refused() -> None:
    world = started()
    name = "words.count"
    seen = world.schedules[name]
    world.schedules[name] = replace(seen, schedule=replace(seen.schedule, term=7))
    world.edit(spec__operators__2__tasks={"min": 3, "max": 8})
    decision = decide(world.observed(), world.memory, world.now_s)
    terms = {action.schedule.term for action in decision.actions if isinstance(action, WriteSchedule)}
    assert terms == {world.term}
