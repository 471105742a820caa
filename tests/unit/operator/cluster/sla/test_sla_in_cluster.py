"""A LatencySLA in a cluster: the real keeper beside the operator's real decisions, on a world in a dict."""

from __future__ import annotations

from typing import Any

import pytest

from clocks.running import run
from penstock.api.latency_sla import LatencySLAStatus
from penstock_operator.cluster.kubernetes_api.port import EVENTS
from penstock_operator.cluster.observing.observed import SlaControl, TopologyKey
from worlds.cluster_world import manifest
from worlds.core_budgets import budget_of, schedule, topology
from worlds.kstatus import kstatus
from worlds.sla_world import SlaWorld, latency_sla


def health(world: SlaWorld) -> str:
    return kstatus(world.sla("quick"))


def started(
    load_per_s: float = 50, nodes: int = 2, sla: dict[str, Any] | None = None, **spec: Any
) -> SlaWorld:
    """One worker that may have four tasks; `count` begins with one."""
    sizes = {"spec__workers__min": 1, "spec__operators__2__tasks": {"min": 1, "max": 8, "initial": 1}}
    world = SlaWorld(manifest(**(sizes | spec)), nodes, load_per_s)
    world.apply_sla(sla or latency_sla())
    world.run(15)
    assert world.status["phase"] == "Running"
    return world


def tasks(world: SlaWorld) -> int:
    return world.schedules["words.count"].schedule.tasks


def settled(world: SlaWorld, seconds: int = 30) -> None:
    """Nothing is undone or done again."""
    world.run(seconds)
    versions = {name: seen.schedule.version for name, seen in world.schedules.items()}
    for _ in range(5):
        assert world.step().actions == ()
    assert {name: seen.schedule.version for name, seen in world.schedules.items()} == versions


def reasons(world: SlaWorld) -> list[str]:
    return [one["reason"] for one in run(world.slas.list(EVENTS)).items]


def test_more_load_than_a_task_can_serve_makes_executors_in_the_worker_that_stands() -> None:
    world = started()
    assert tasks(world) == 1
    pods = world.uids()
    world.load_per_s = 180
    world.run(20)
    schedule = world.schedules["words.count"].schedule
    assert 3 <= schedule.tasks <= 4
    assert {executor.tasks for executor in schedule.executors} == {1}
    assert {executor.worker for executor in schedule.executors} == {"words-w0"}
    assert world.uids() == pods, "no pod came or went"
    assert world.backlog() < 20
    assert world.is_whole()
    settled(world)


def test_the_topology_tells_whether_its_slas_are_met() -> None:
    world = started()
    world.load_per_s = 180
    world.run(20)
    assert world.condition("SLAMet") == world.sla_condition("SLAMet") == ("True", "WithinBound")
    assert world.message("SLAMet").startswith("LatencySLA quick: ")
    world.apply_sla(latency_sla("unreadable", operator="nobody"))
    world.run(2)
    assert world.condition("SLAMet") == ("Unknown", "NotKept")
    world.load_per_s = 3000
    world.run(4)
    assert world.condition("SLAMet") == ("False", "BoundExceeded"), (
        "what is broken is told before the unknown"
    )
    assert "BoundExceeded" in reasons(world)
    assert "BoundExceeded" not in {event.reason for event in world.events}, "it is told of the SLA's object"


def test_a_new_leader_and_no_sla_leave_the_topologys_condition_as_it_is() -> None:
    world = started()
    world.load_per_s = 180
    world.run(20)
    since = world.status["conditions"][-1]
    world.new_leader()
    world.step(keep_memory=False)
    assert world.status["conditions"][-1] == since
    world.delete_sla()
    world.run(2)
    assert "SLAMet" not in {one["type"] for one in world.status["conditions"]}


def test_what_the_sla_decided_is_not_undone_by_the_next_leader() -> None:
    world = started()
    world.load_per_s = 180
    world.run(20)
    before = world.schedules["words.count"].schedule
    world.new_leader()
    world.step(keep_memory=False)
    world.run(4)
    after = world.schedules["words.count"].schedule
    assert [e.name for e in after.executors] == [e.name for e in before.executors]


def test_cores_follow_the_tasks_that_the_sla_decided() -> None:
    world = started()
    before = world.pods["words-w0"].cpu_millis
    world.load_per_s = 180
    world.run(20)
    assert world.pods["words-w0"].cpu_millis > before


def test_a_worker_more_comes_when_the_one_that_stands_is_full_and_goes_when_it_is_not_needed() -> None:
    world = started(spec__workers__cores={"min": "0.5", "max": "3"})
    world.load_per_s = 250
    world.run(40)
    assert sorted(world.ready_pods()) == ["words-w0", "words-w1"]
    assert tasks(world) >= 4
    assert len(set(world.tasks("count"))) == 2
    assert world.is_whole()
    world.load_per_s = 20
    world.run(240)
    assert tasks(world) <= 2
    assert len(world.ready_pods()) == len(world.pods) == 1
    assert world.is_whole()
    settled(world)


def test_a_warm_worker_is_taken_before_a_new_pod_is_made_and_refilled_behind() -> None:
    world = started(spec__workers__cores={"min": "0.5", "max": "2"}, spec__workers__warm=1)
    assert sorted(world.ready_pods()) == ["words-w0", "words-w1"]
    world.load_per_s = 180
    world.run(8)
    assert "words-w1" in world.tasks("count")
    world.run(20)
    assert sorted(world.ready_pods()) == ["words-w0", "words-w1", "words-w2"]


def test_workers_stay_within_the_bounds_of_the_topology_and_of_the_sla() -> None:
    bounds = {"workers": {"max": 2}}
    world = started(
        sla=latency_sla(bounds=bounds), spec__workers__cores={"min": "0.5", "max": "2"}, load_per_s=50
    )
    world.load_per_s = 700
    most = 0
    for _ in range(60):
        world.step()
        most = max(most, len(world.pods))
    assert most == 2
    assert world.sla_condition("SLAMet")[0] == "False"


def test_a_budget_bounds_the_tasks() -> None:
    world = started(sla=latency_sla(budget={"cores": "2"}))
    world.load_per_s = 350
    world.run(40)
    assert tasks(world) == 2
    assert [one["rule"] for one in world.sla_status()["decisions"]][:1] == ["at-limit"]


def test_the_budget_of_the_namespace_bounds_the_tasks_of_all_topologies() -> None:
    world = started()
    world.core_budget, _ = budget_of(6.0, [topology("other")], schedule("other.calculator", "other", 4, 1))
    world.new_leader()
    left: list[float] = []
    world.at_write = lambda: left.append(
        world.core_budget.left_to(TopologyKey("streams", "other"), {"calculator"})
    )
    world.load_per_s = 700
    world.run(40)
    assert tasks(world) == 4, "the other topology has 4 tasks of half a core"
    assert world.sla_status()["decisions"][0]["rule"] == "at-limit"
    assert 2.0 == min(left) <= max(left) <= 4.0, "what is being written is not the other one's"


def test_more_than_all_tasks_can_serve_is_told_as_infeasible() -> None:
    world = started()
    world.load_per_s = 3000
    world.run(20)
    assert world.sla_condition("Infeasible") == ("True", "Infeasible")
    (told,) = [one for one in world.sla_status()["conditions"] if one["type"] == "Infeasible"]
    assert "the most allowed" in told["message"]
    assert "Infeasible" in reasons(world)
    assert tasks(world) == 8, "the best that can be done"


def test_nothing_is_decided_over_shards_that_are_on_their_way() -> None:
    world = started(spec__workers__min=2, spec__operators__2__tasks={"min": 1, "max": 8, "initial": 2})
    world.moves_go_on = False
    world.nodes["node-a"].schedulable = False
    world.run(8)
    assert world.told_leeway.busy.endswith("leave node node-a")
    version = world.schedules["words.count"].schedule.version
    world.load_per_s = 600
    world.run(20)
    assert world.schedules["words.count"].schedule.version == version
    world.moves_go_on = True
    world.run(20)
    assert tasks(world) > 2
    assert world.is_whole()


def test_a_lost_worker_leaves_its_executors_to_the_living() -> None:
    world = started(spec__workers__min=2, spec__operators__2__tasks={"min": 1, "max": 8, "initial": 2})
    world.load_per_s = 180
    world.run(20)
    before = tasks(world)
    world.delete_pod("words-w0")
    world.run(25)
    assert tasks(world) >= before - 1
    assert world.is_whole()
    settled(world)


def test_under_streamswitch_an_executor_of_several_tasks_is_split() -> None:
    world = started(spec__operators__2__tasks={"min": 1, "max": 8, "initial": 3}, load_per_s=150)
    schedule = world.schedules["words.count"].schedule
    assert [executor.tasks for executor in schedule.executors] == [1, 1, 1]
    assert world.sla_status()["decisions"][-1]["treatment"] == "Repartition"


def test_a_store_that_does_not_answer_holds_and_is_told() -> None:
    world = started()
    world.silent = set(world.stores)
    world.load_per_s = 400
    version = world.schedules["words.count"].schedule.version
    world.run(6)
    assert world.sla_condition("MetricsUnavailable") == ("True", "MetricsMissing")
    assert world.schedules["words.count"].schedule.version == version
    assert world.counted_unread
    world.silent = set()
    world.run(10)
    assert world.sla_condition("MetricsUnavailable")[0] == "False"
    assert tasks(world) > 1


def test_what_a_store_has_and_nobody_can_read_does_not_count_as_the_stores_silence() -> None:
    world = started()
    world.silent = world.written_over = set(world.stores)
    world.run(6)
    assert world.sla_condition("MetricsUnavailable") == ("True", "MetricsMissing")
    assert world.counted_unread == set()


def test_a_dry_run_decides_and_shows_and_changes_nothing() -> None:
    world = started(sla=latency_sla(dryRun=True))
    world.load_per_s = 180
    world.run(20)
    assert tasks(world) == 1
    assert world.writes == 0
    assert world.sla_condition("Ready") == ("True", "DryRun")
    (decision, *_) = world.sla_status()["decisions"]
    assert decision["treatment"] == "ScaleOut"
    assert decision["dryRun"] is True
    assert world.keeper.control == SlaControl(met=world.keeper.control.met)


def test_the_status_tells_latency_success_tasks_and_the_decisions_with_what_they_brought() -> None:
    world = started()
    world.load_per_s = 600
    world.run(2)
    world.load_per_s = 180
    world.run(60)
    status = world.sla_status()
    LatencySLAStatus.model_validate(status, by_alias=True, by_name=False)
    assert status["observedGeneration"] == 1
    assert status["met"] is True
    assert status["latency"].endswith("ms")
    assert status["predictedLatency"].endswith("ms")
    assert status["tasks"] == status["executors"] == tasks(world)
    assert 1 < status["meanTasks"] < status["tasks"]
    assert 0 < status["successRate"] < 1
    assert 0 < status["successRateSinceStart"] < 1
    assert status["lastDecision"].startswith("count: ")
    assert status["lastScaled"]
    assert world.sla_condition("SLAMet") == ("True", "WithinBound")
    assert world.sla_condition("Ready") == ("True", "Kept")
    assert world.sla_condition("Rebalancing") == ("False", "Settled")
    treated = [one for one in status["decisions"] if "actions" in one]
    assert treated
    assert all("done in" in one["brought"] for one in treated)
    assert {"Kept", "BoundExceeded", "WithinBound", "ScaleOut"} <= set(reasons(world))


def measured(world: SlaWorld) -> dict[str, float]:
    families = world.sla_metrics.collect()
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_metrics_tell_bound_latency_cores_and_how_long_the_bound_was_broken() -> None:
    world = started()
    assert measured(world)["penstock_sla_met"] == 1.0
    assert measured(world)["penstock_sla_broken_seconds_total"] == 0.0
    world.load_per_s = 600
    world.run(4)
    told = measured(world)
    assert told["penstock_sla_met"] == 0.0
    assert 0.5 < told["penstock_sla_broken_seconds_total"] <= 4.0
    assert told["penstock_sla_latency_seconds"] > told["penstock_sla_target_seconds"] > 0
    assert told["penstock_sla_cores"] == told["penstock_sla_tasks"] == tasks(world)
    world.edit(spec__paused=True)
    world.run(10)
    world.delete_sla("quick")
    world.run(2)
    assert measured(world) == {}


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"topology": "wrods"}, "TopologyMissing", "there is no Topology 'wrods' in this namespace"),
        ({"operator": "cuont"}, "Invalid", "has no operator 'cuont'"),
        ({"operator": "lines"}, "Invalid", "operator lines is not keyed"),
        ({"bounds": {"tasks": {"min": 20}}}, "Invalid", "20 cannot be met"),
    ],
)
def test_an_sla_that_cannot_be_kept_says_why(spec: dict[str, Any], reason: str, words: str) -> None:
    world = SlaWorld(manifest())
    world.apply_sla(latency_sla(**spec))
    world.is_known = spec.get("topology") is None
    world.run(3)
    assert world.sla_condition("Ready") == ("False", reason)
    assert words in world.sla_status()["conditions"][0]["message"]


def test_an_sla_that_nobody_could_keep_has_failed_for_who_applies_it_and_one_at_rest_has_settled() -> None:
    world = SlaWorld(manifest())
    world.apply_sla(latency_sla(operator="cuont"))
    world.run(3)
    assert health(world) == "Failed"
    world = started()
    assert health(world) == "Current"
    world.edit(spec__paused=True)
    world.run(10)
    assert world.sla_condition("Ready") == ("True", "TopologyAtRest")
    assert health(world) == "Current"


def test_of_two_slas_on_one_operator_the_older_one_is_kept() -> None:
    world = started()
    world.apply_sla(latency_sla("another"))
    world.run(3)
    assert world.sla_condition("Ready", "another") == ("False", "Invalid")
    assert world.sla_condition("Ready", "quick") == ("True", "Kept")


def test_an_sla_that_is_deleted_leaves_the_operator_to_the_topology() -> None:
    world = started()
    world.load_per_s = 180
    world.run(20)
    assert tasks(world) > 1
    world.delete_sla()
    world.run(20)
    assert world.tasks("count") == {"words-w0": 1}
    assert world.is_whole()


def test_a_write_that_comes_second_drops_its_decision_and_decides_anew() -> None:
    world = started()
    clashes = 0

    def clash() -> None:
        nonlocal clashes
        if clashes < 3:
            clashes += 1
            seen = world.schedules["words.count"]
            world.schedules["words.count"] = type(seen)(
                **{name: getattr(seen, name) for name in seen.__slots__} | {"resource_version": f"x{clashes}"}
            )

    world.at_write = clash
    world.load_per_s = 180
    world.run(25)
    assert clashes == 3
    assert tasks(world) >= 3
    assert world.is_whole()
    settled(world)
