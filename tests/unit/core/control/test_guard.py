"""The guard around a policy: bounds, budget, up at once and down slowly, under any load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.baselines.static import Static
from penstock.control.decision import (
    AddExecutor,
    AssignCores,
    Health,
    MoveShards,
    RemoveExecutor,
    Treatment,
)
from penstock.control.guard import PAPER_RULES, Guard, GuardRules, tasks_after
from penstock.control.samples.sample_table import Shards
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot
from penstock.control.streamswitch.policy import StreamSwitch
from penstock.control.target import Scope, TaskLimits
from penstock.simulation.queueing.ahead.looking_ahead import looking_ahead
from penstock.simulation.queueing.ahead.snapshot_series import OperatorSeries, SnapshotSeries
from scenes.control_scene import SLOT_US, Water, decision, view
from scenes.guard_scene import OUT, SECOND, TARGET, Scene, Scripted


def test_within_bounds_everything_passes_as_it_is() -> None:
    scene = Scene()
    out = scene.severe_out()
    assert scene.look(out) == replace(out, at_us=SLOT_US)
    assert scene.guard.name == "Scripted"


def test_a_decision_that_leads_over_the_most_tasks_is_held() -> None:
    scene = Scene(limits=TaskLimits(1, 2))
    held = scene.look(scene.severe_out())
    assert (held.treatment, held.rule, held.actions) == (Treatment.HOLD, "guard-bounds", ())
    assert held.reason == "op may have 2 tasks at most; otherwise: a test says so"
    assert held.expected is None


def test_a_decision_that_leads_under_the_least_tasks_is_held() -> None:
    scene = Scene(PAPER_RULES, TaskLimits(2, 4))
    assert scene.look(scene.good_in()).rule == "guard-bounds"


def test_a_decision_that_leads_back_into_bounds_passes() -> None:
    scene = Scene(PAPER_RULES, TaskLimits(1, 1))
    assert scene.look(scene.good_in()).treatment is Treatment.SCALE_IN


def test_an_operator_below_its_least_tasks_is_brought_up_to_them() -> None:
    scene = Scene(limits=TaskLimits(3, 4))
    back = scene.look()
    assert (back.treatment, back.rule) == (Treatment.SCALE_OUT, "back-into-bounds")
    assert back.reason == "op has 2 tasks, 3 at least are asked for"
    assert tasks_after(scene.snapshot(), back) == {"op": 3}
    assert back.actions[0] == AddExecutor("op-b1")


def test_an_operator_above_its_most_tasks_is_brought_down_to_them_at_once() -> None:
    scene = Scene(limits=TaskLimits(1, 1))
    back = scene.look()
    assert (back.treatment, back.rule) == (Treatment.SCALE_IN, "back-into-bounds")
    assert tasks_after(scene.snapshot(), back) == {"op": 1}
    moved = {shard for action in back.actions if isinstance(action, MoveShards) for shard in action.shards}
    gone = {action.name for action in back.actions if isinstance(action, RemoveExecutor)}
    assert moved == {shard for shard, executor in scene.assignment.items() if executor in gone}


def test_a_decision_that_leads_away_from_bounds_or_nowhere_is_replaced_by_one_that_leads_back() -> None:
    scene = Scene(limits=TaskLimits(3, 4))
    assert scene.look(scene.good_in()).rule == "back-into-bounds"
    unknown = decision(0, Treatment.HOLD, Health.UNKNOWN)
    assert scene.look(unknown).rule == "back-into-bounds"
    out = scene.severe_out()
    assert scene.look(out) == replace(out, at_us=scene.at_us)


def test_nothing_leads_back_into_bounds_during_a_treatment_or_over_the_budget() -> None:
    scene = Scene(limits=TaskLimits(4, 4), cores_max=2.0)
    held = scene.look()
    assert (held.treatment, held.rule, held.actions) == (Treatment.HOLD, "guard-bounds", ())
    assert held.reason == "op has 2 tasks, 4 at least are asked for, and the budget has no core left"
    scene = Scene(limits=TaskLimits(4, 4))
    scene.treatment = True
    assert scene.look().actions == ()


@pytest.mark.parametrize(("limits", "wanted"), [(TaskLimits(7, 9), 7), (TaskLimits(1, 3), 3)])
def test_executors_of_several_tasks_come_back_into_bounds_by_their_cores(
    limits: TaskLimits, wanted: int
) -> None:
    scene = Scene(limits=limits)
    scene.tasks = 3
    back = scene.look()
    assert tasks_after(scene.snapshot(), back) == {"op": wanted}
    assert all(isinstance(action, AssignCores) for action in back.actions)


def test_looks_out_of_bounds_are_not_passed_over() -> None:
    shards = Shards(["s0", "s1"])
    still = np.zeros((5, 2))
    executors = (ExecutorSeen("E1", 1, 1), ExecutorSeen("E2", 1, 1))
    held = {"s0": "E1", "s1": "E2"}
    one = OperatorSeries("op", executors, shards, held, still, still, still, still, still, treatment=True)
    during = SnapshotSeries(np.arange(1, 6) * SLOT_US, {"op": one})
    after = replace(during, operators={"op": replace(one, treatment=False)})
    scope = Scope({"op": TARGET}, {"op": TaskLimits(3, 4)})
    content = Static(Scope({"op": TARGET}, {}), {"op": 2})
    ahead = looking_ahead(Guard(content, scope, PAPER_RULES))
    assert ahead is not None
    assert ahead.observe_many(during) == 5
    assert ahead.observe_many(after) == 0


def test_the_budget_is_for_all_operators_and_counts_what_was_granted_a_moment_ago() -> None:
    operators = {
        name: OperatorSnapshot(name, (ExecutorSeen(f"{name}1", 1, 1),), {f"{name}s": f"{name}1"}, {})
        for name in ("a", "b")
    }
    script = Scripted()
    scope = Scope(
        {"a": TARGET, "b": TARGET}, {"a": TaskLimits(1, 9), "b": TaskLimits(1, 9)}, 3.0, {"a": 1.0, "b": 1.0}
    )
    script.next = tuple(
        decision(0, Treatment.SCALE_OUT, Health.SEVERE, operator=name, actions=(AddExecutor(f"{name}2"),))
        for name in ("a", "b")
    )
    first, second = Guard(script, scope).decide(TopologySnapshot(SLOT_US, operators))
    assert first.treatment is Treatment.SCALE_OUT
    assert (second.treatment, second.rule) == (Treatment.HOLD, "guard-bounds")
    assert second.reason.startswith("the budget is 3 cores, and 3 are in use")
    wide = replace(scope, cores_max=None)
    first, second = Guard(script, wide).decide(TopologySnapshot(SLOT_US, operators, cores_max=3.0))
    assert first.treatment is Treatment.SCALE_OUT
    assert second.reason.startswith("others leave 3 cores of maxCores, and 3 are in use")


def test_cores_assigned_count_as_tasks() -> None:
    scene = Scene()
    grown = decision(0, Treatment.CORES, Health.SEVERE, actions=(AssignCores("E1", {"n0": 2, "n1": 2}),))
    assert tasks_after(scene.snapshot(), grown) == {"op": 5}
    assert scene.look(grown).rule == "guard-bounds"


def test_a_decision_about_a_topology_counts_for_the_operators_it_touches() -> None:
    scene = Scene(limits=TaskLimits(1, 2))
    whole = decision(0, Treatment.REPARTITION, Health.SEVERE, operator="", actions=OUT)
    assert tasks_after(scene.snapshot(), whole) == {"op": 3}
    assert scene.look(whole).rule == "guard-bounds"


def test_nothing_passes_during_a_treatment() -> None:
    scene = Scene()
    scene.treatment = True
    assert scene.look(scene.severe_out()).rule == "guard-treatment"


def test_more_than_all_tasks_can_serve_is_infeasible() -> None:
    scene = Scene(limits=TaskLimits(1, 2))
    crowd = replace(scene.severe_out(), seen=scene.views(arrival_per_s=1500.0))
    # 2 * 1500/s against 2 * 1000/s.
    assert scene.look(crowd).conditions == {
        "Infeasible": "3000/s arrive, and 2 tasks, the most allowed, serve 2000/s"
    }
    assert scene.look(scene.severe_out()).conditions == {}


def test_with_the_papers_rules_a_scale_in_passes_at_once() -> None:
    scene = Scene(PAPER_RULES)
    assert scene.look(scene.good_in()).treatment is Treatment.SCALE_IN


def test_a_scale_in_waits_for_good_health_that_lasts() -> None:
    scene = Scene(GuardRules(scale_in_after_us=SECOND))
    held = scene.look(scene.good_in())
    assert (held.treatment, held.rule) == (Treatment.HOLD, "guard-scale-in")
    assert held.reason.startswith("good health for 0 us, 1.0 s are asked for")
    for _ in range(9):
        assert scene.look(scene.good_in()).treatment is Treatment.HOLD
    assert scene.look(scene.good_in()).treatment is Treatment.SCALE_IN


def test_one_bad_look_starts_the_clock_again() -> None:
    scene = Scene(GuardRules(scale_in_after_us=SECOND))
    for _ in range(9):
        scene.look(scene.good_in())
    scene.look(decision(0, health=Health.MODERATE, seen=scene.views()))
    for _ in range(10):
        assert scene.look(scene.good_in()).treatment is Treatment.HOLD
    assert scene.look(scene.good_in()).treatment is Treatment.SCALE_IN


def test_two_scale_ins_are_as_far_apart() -> None:
    scene = Scene(GuardRules(scale_in_after_us=SECOND))
    looks = [scene.look(scene.good_in()).treatment for _ in range(24)]
    assert [i for i, treatment in enumerate(looks) if treatment is Treatment.SCALE_IN] == [10, 21]


def test_a_scale_in_must_hold_the_greatest_loads_of_late() -> None:
    # 450/s and 100/s now; 450/s and 360/s a moment ago are 810/s of 800/s.
    scene = Scene(GuardRules(scale_in_after_us=SECOND))
    busy = (view("E1", 450.0), view("E2", 360.0))
    calm = (view("E1", 450.0), view("E2", 100.0))
    scene.look(decision(0, seen=busy))
    for _ in range(10):
        held = scene.look(replace(scene.good_in(), seen=calm))
    assert held.rule == "guard-scale-in"
    assert held.reason.startswith("810/s came to both in the last 1.0 s, E1 should get 800/s at most")
    assert scene.look(replace(scene.good_in(), seen=calm)).treatment is Treatment.SCALE_IN


def test_a_scale_in_must_hold_at_the_least_service_rate_of_late() -> None:
    scene = Scene(GuardRules(scale_in_after_us=SECOND))
    slow = (view("E1", 300.0, 500.0), view("E2", 150.0))
    fast = (view("E1", 300.0, 1000.0), view("E2", 150.0))
    scene.look(decision(0, seen=slow))
    for _ in range(10):
        held = scene.look(replace(scene.good_in(), seen=fast))
    assert held.reason.startswith("450/s came to both in the last 1.0 s, E1 should get 400/s at most")
    assert scene.look(replace(scene.good_in(), seen=fast)).treatment is Treatment.SCALE_IN


def test_cores_are_given_up_slowly_too_but_shifted_at_once() -> None:
    scene = Scene(GuardRules(scale_in_after_us=SECOND))
    scene.tasks = 2
    fewer = decision(0, Treatment.CORES, actions=(AssignCores("E1", {"n": 1}),))
    assert scene.look(fewer).rule == "guard-scale-in"
    shift = decision(0, Treatment.CORES, actions=(AssignCores("E1", {"n": 1}), AssignCores("E2", {"n": 3})))
    assert scene.look(shift).treatment is Treatment.CORES


def test_scaling_out_never_waits() -> None:
    scene = Scene(GuardRules(scale_in_after_us=100 * SECOND))
    assert scene.look(scene.severe_out()).treatment is Treatment.SCALE_OUT


COOL_DOWN_US = 3 * SECOND


def loads_of(rng: np.random.Generator, shards: int, phases: Sequence[float]) -> list[dict[str, int]]:
    """Slots of rows by shard: skewed shares that are drawn anew each phase, with noise on top."""
    slots = []
    for total in phases:
        share = rng.dirichlet(np.full(shards, 3.0))
        for _ in range(int(rng.integers(15, 60))):
            rows = rng.poisson(np.minimum(total * share, 600.0) * SLOT_US / 1e6)
            slots.append({f"s{i}": int(count) for i, count in enumerate(rows)})
    return slots


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.lists(st.floats(50, 3500), min_size=3, max_size=8))
def test_under_random_loads_bounds_are_kept_and_nothing_swings(seed: int, phases: list[float]) -> None:
    """No scale-in is taken back within the cool-down while the load is none that was not there before it."""
    limits = TaskLimits(1, 5)
    scope = Scope({"op": TARGET}, {"op": limits}, cores_max=5.0)
    guard = Guard(StreamSwitch(scope), scope, GuardRules(scale_in_after_us=COOL_DOWN_US))
    water = Water([f"s{i}" for i in range(10)], ["E1", "E2"])
    window: list[dict[str, int]] = []
    scale_in: int | None = None
    untouched: set[str] = set()
    for slot, rows in enumerate(loads_of(np.random.default_rng(seed), 10, phases)):
        window.append(rows)
        (taken,) = guard.decide(water.step(rows))
        assert limits.min <= len(water.executors) <= limits.max
        if taken.treatment is Treatment.SCALE_IN:
            if scale_in is not None:
                assert (slot - scale_in) * SLOT_US >= COOL_DOWN_US
            scale_in = slot
            untouched = set(water.executors)
        elif taken.treatment is Treatment.SCALE_OUT and scale_in is not None:
            soon = (slot - scale_in) * SLOT_US <= COOL_DOWN_US
            for move in taken.actions:
                if not soon or not isinstance(move, MoveShards) or move.source not in untouched:
                    continue
                held = [shard for shard, name in water.assignment.items() if name == move.source]
                assert rate(window, slot, held) >= max(
                    rate(window, before, held)
                    for before in range(scale_in - COOL_DOWN_US // SLOT_US, scale_in + 1)
                )
        if taken.actions:
            assert taken.treatment not in (Treatment.NONE, Treatment.HOLD)
            if taken.treatment is Treatment.LOAD_BALANCE:
                (move,) = taken.actions
                assert isinstance(move, MoveShards)
                untouched -= {move.source, move.destination}
            water.treat(taken)


def rate(window: list[dict[str, int]], slot: int, shards: Sequence[str]) -> int:
    """Rows of `shards` over the second that ends with `slot`."""
    return sum(rows[shard] for rows in window[max(slot - 9, 0) : slot + 1] for shard in shards)
