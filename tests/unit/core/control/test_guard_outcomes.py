"""The guard around a policy: no plan again that brought nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from penstock.control.decision import (
    AddExecutor,
    AssignCores,
    ExecutorView,
    Health,
    MoveShards,
    PolicyDecision,
    Prediction,
    Treatment,
)
from penstock.control.guard import PAPER_RULES, GuardRules
from penstock.control.outcomes import share_of_promise
from penstock.control.target import TaskLimits
from scenes.control_scene import decision
from scenes.guard_scene import SECOND, Scene


def carry_out(scene: Scene) -> None:
    """Three looks of a treatment, then E3 has s0."""
    scene.treatment = True
    for _ in range(3):
        scene.look()
    scene.treatment = False
    scene.executors.append("E3")
    scene.assignment["s0"] = "E3"


def test_an_outcome_is_measured_a_window_after_the_treatment_ended() -> None:
    scene = Scene()
    out = scene.look(scene.severe_out(latency_us=100_000.0))
    carry_out(scene)
    for _ in range(10):
        scene.look(decision(0, seen=scene.views(50.0, 200_000.0)))
        assert scene.guard.outcomes == ()
    scene.look(decision(0, seen=scene.views(50.0, 200_000.0), without=Prediction(2000, 3)))
    (outcome,) = scene.guard.outcomes
    assert outcome.decision == out
    assert (outcome.latency_us, outcome.tasks) == (200_000.0, 3)
    # From 500 ms to 200 ms, where 100 ms were promised.
    assert outcome.share == pytest.approx(0.75)


def ineffective(
    rules: GuardRules | None = None, latency_us: float = 2_000_000.0, arrival: float = 50.0
) -> Scene:
    scene = Scene(rules)
    scene.look(scene.severe_out(latency_us=100_000.0))
    carry_out(scene)
    for _ in range(11):
        scene.look(decision(0, seen=scene.views(arrival, latency_us), health=Health.SEVERE))
    # As if it could be done once more.
    scene.assignment["s0"] = "E1"
    return scene


def test_a_plan_that_brought_less_than_a_tenth_is_not_repeated_for_a_while() -> None:
    scene = ineffective(GuardRules(blocked_us=2 * SECOND))
    assert scene.guard.outcomes[0].share == pytest.approx(0.05)
    held = scene.look(scene.severe_out())
    assert (held.treatment, held.rule) == (Treatment.HOLD, "guard-blocked")
    assert "did not help: 100 ms was promised, 2.0 s came" in held.reason
    other = replace(scene.severe_out(), actions=(AddExecutor("E3"), MoveShards(("s1",), "E2", "E3")))
    scene.at_us += 3 * SECOND
    assert scene.look(scene.severe_out()).treatment is Treatment.SCALE_OUT
    assert ineffective().look(other).treatment is Treatment.SCALE_OUT


def test_shares_are_of_reserve_where_nothing_had_piled_up() -> None:
    out = Scene().severe_out(latency_us=100_000.0)
    # 1 / 100 ms was promised from nothing, 1 / 200 ms came.
    assert share_of_promise(out, 90_000.0, 200_000.0) == pytest.approx(0.5)
    better = replace(out, without=Prediction(1_000_000.0, 2))
    # (1 / 0.2 - 1 / 1) / (1 / 0.1 - 1 / 1).
    assert share_of_promise(better, None, 200_000.0) == pytest.approx(4 / 9)
    assert share_of_promise(replace(out, expected=Prediction(float("inf"), 3)), None, 1.0) is None


def test_a_plan_that_brought_what_it_promised_may_be_repeated() -> None:
    scene = ineffective(latency_us=150_000.0)
    # From 500 ms to 150 ms, where 100 ms were promised.
    assert scene.guard.outcomes[0].share == pytest.approx(0.875)
    assert scene.look(scene.severe_out()).treatment is Treatment.SCALE_OUT


def test_a_promise_is_void_once_the_load_has_grown() -> None:
    # 100/s came to E1 before, 200/s each to E1 and E3 after.
    scene = ineffective(arrival=200.0)
    assert scene.guard.outcomes[0].share is None
    assert scene.look(scene.severe_out()).treatment is Treatment.SCALE_OUT


def test_what_helped_nobody_may_be_given_back() -> None:
    scene = Scene(GuardRules(scale_in_after_us=0))
    more = decision(
        0,
        Treatment.CORES,
        Health.SEVERE,
        actions=(AssignCores("E1", {"n": 2}),),
        seen=scene.views(instantaneous_us=500_000.0),
        without=Prediction(float("inf"), 2),
        expected=Prediction(100_000.0, 3),
    )
    assert scene.look(more).treatment is Treatment.CORES
    scene.treatment = True
    scene.look()
    scene.treatment = False
    for _ in range(11):
        scene.look(decision(0, seen=scene.views(50.0, 2_000_000.0), health=Health.SEVERE))
    assert scene.look(more).rule == "guard-blocked"
    scene.tasks = 2
    fewer = decision(0, Treatment.CORES, actions=(AssignCores("E1", {"n": 1}),))
    assert scene.look(fewer).treatment is Treatment.CORES


def more_cores(
    scene: Scene,
    cores: int,
    arrival: float = 100.0,
    health: Health = Health.SEVERE,
    without: float = math.inf,
) -> PolicyDecision:
    """E1 is to have so many."""
    return decision(
        0,
        Treatment.CORES,
        health,
        actions=(AssignCores("E1", {"n": cores}),),
        seen=tuple(replace(one, health=health) for one in scene.views(arrival, 500_000.0)),
        without=Prediction(without, 2),
        expected=Prediction(100_000.0, 1 + cores),
    )


def blocked() -> Scene:
    """Two cores for E1 brought nothing at 100/s."""
    scene = Scene()
    scene.look(more_cores(scene, 2))
    scene.treatment = True
    scene.look()
    scene.treatment = False
    for _ in range(11):
        scene.look(decision(0, seen=scene.views(50.0, 2_000_000.0), health=Health.SEVERE))
    assert scene.look(more_cores(scene, 2)).rule == "guard-blocked"
    return scene


def test_other_cores_than_those_that_brought_nothing_are_another_plan() -> None:
    scene = blocked()
    assert scene.look(more_cores(scene, 3)).treatment is Treatment.CORES


def test_a_plan_that_brought_nothing_may_be_tried_under_a_greater_load() -> None:
    scene = blocked()
    assert scene.look(more_cores(scene, 2, arrival=105.0)).rule == "guard-blocked"
    assert scene.look(more_cores(scene, 2, arrival=120.0)).treatment is Treatment.CORES


def test_no_task_comes_where_doing_nothing_is_expected_to_keep_the_bound() -> None:
    scene = Scene()
    held = scene.look(more_cores(scene, 2, health=Health.MODERATE, without=180.0))
    assert (held.treatment, held.rule) == (Treatment.HOLD, "guard-need")
    assert held.reason.startswith("180 us is expected if nothing is done, 1.0 s is allowed")
    late = more_cores(scene, 2, health=Health.MODERATE, without=1_100_000.0)
    assert scene.look(late).treatment is Treatment.CORES


def test_who_is_severe_or_has_too_few_tasks_gets_more_whatever_is_expected() -> None:
    scene = Scene()
    assert scene.look(more_cores(scene, 2, without=180.0)).treatment is Treatment.CORES
    few = Scene(limits=TaskLimits(3, 4))
    filling = more_cores(few, 2, health=Health.GOOD, without=180.0)
    assert few.look(filling).treatment is Treatment.CORES
    paper = Scene(PAPER_RULES)
    asked = more_cores(paper, 2, health=Health.GOOD, without=180.0)
    assert paper.look(asked).treatment is Treatment.CORES


def test_an_executor_of_several_tasks_has_room_for_what_they_serve_together() -> None:
    # 250/s came to both. Three tasks of E1 serve 375/s, of which 300/s are used.
    scene = Scene(GuardRules(scale_in_after_us=SECOND), TaskLimits(1, 8))

    def views(tasks: int) -> tuple[ExecutorView, ...]:
        one, other = scene.views(125.0)
        return replace(one, service_per_s=125.0 * tasks, tasks=tasks), replace(other, service_per_s=375.0)

    for tasks, treatment in ((3, Treatment.SCALE_IN), (2, Treatment.HOLD)):
        for _ in range(12):
            scene.look(decision(0, seen=views(tasks)))
        assert scene.look(replace(scene.good_in(), seen=views(tasks))).treatment is treatment


def test_tasks_of_one_executor_count_for_what_the_most_tasks_serve() -> None:
    scene = Scene(limits=TaskLimits(1, 8))
    scene.executors = ["E1"]
    (one,) = scene.views(500.0, 500_000.0)
    seen = (replace(one, service_per_s=400.0, tasks=4, health=Health.SEVERE),)
    severe = decision(0, seen=seen, health=Health.SEVERE, without=Prediction(math.inf, 4))
    # 100/s a task: eight of them serve 800/s.
    assert "Infeasible" not in scene.look(severe).conditions


def test_with_the_papers_rules_no_plan_is_blocked() -> None:
    scene = ineffective(PAPER_RULES)
    assert scene.look(scene.severe_out()).treatment is Treatment.SCALE_OUT


def test_a_treatment_that_came_to_nothing_is_blocked() -> None:
    scene = Scene()
    scene.look(scene.severe_out())
    scene.treatment = True
    scene.look()
    scene.treatment = False
    for _ in range(11):
        scene.look()
    assert [outcome.share for outcome in scene.guard.outcomes] == [0.0]
    assert scene.look(scene.severe_out()).rule == "guard-blocked"


def test_a_decision_that_nobody_carried_out_has_no_outcome() -> None:
    scene = Scene()
    for _ in range(30):
        assert scene.look(scene.severe_out()).treatment is Treatment.SCALE_OUT
    assert scene.guard.outcomes == ()


def test_a_window_cut_short_by_another_treatment_is_not_held_against_the_first() -> None:
    scene = Scene()
    scene.look(scene.severe_out())
    carry_out(scene)
    scene.look()
    scene.look(replace(scene.severe_out(), actions=(AddExecutor("E4"), MoveShards(("s1",), "E2", "E4"))))
    assert [outcome.share for outcome in scene.guard.outcomes] == [None]


def test_a_scale_in_promises_no_latency() -> None:
    scene = Scene(PAPER_RULES)
    scene.look(scene.good_in())
    scene.executors, scene.assignment = ["E1"], {"s0": "E1", "s1": "E1"}
    for _ in range(12):
        scene.look()
    assert [outcome.share for outcome in scene.guard.outcomes] == [None]
