"""`maxCores`: what all Topologies of a namespace may ask for together."""

from __future__ import annotations

import math

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, TOPOLOGIES
from penstock_operator.cluster.observing.core_budget import CoreBudget
from penstock_operator.cluster.observing.observed import TopologyKey
from worlds.core_budgets import budget_of, key, schedule, topology

TWO = [topology("words"), topology("trades", task_cpu=None)]


def test_without_a_bound_everything_is_left() -> None:
    budget, _ = budget_of(None, TWO, schedule("words.count", "words", 100, 1))
    assert budget.left_to(key("words"), {"count"}) == math.inf


def test_what_others_ask_for_is_not_left() -> None:
    # 3 tasks of half a core beside it, 2 of a whole one, which is the default, in the other topology.
    budget, _ = budget_of(
        10.0,
        TWO,
        schedule("words.count", "words", 4, 1),
        schedule("words.lines", "words", 3, 1),
        schedule("trades.match", "trades", 2, 1),
    )
    assert budget.left_to(key("words"), {"count"}) == 10 - 1.5 - 2
    assert budget.left_to(key("words"), {"count", "lines"}) == 10 - 2
    assert budget.left_to(key("trades"), {"match"}) == 10 - 2 - 1.5


def test_what_somebody_has_is_not_taken_from_him() -> None:
    budget, _ = budget_of(
        2.0, TWO, schedule("words.count", "words", 6, 1), schedule("trades.match", "trades", 2, 1)
    )
    assert budget.left_to(key("words"), {"count"}) == 3.0
    assert budget.left_to(key("trades"), {"match"}) == 2.0


def test_a_schedule_that_changed_is_counted_anew_and_one_without_topology_is_not() -> None:
    budget, mirror = budget_of(
        10.0, TWO, schedule("words.count", "words", 4, 1), schedule("gone.count", "gone", 50, 1)
    )
    assert budget.left_to(key("trades"), {"match"}) == 8.0
    mirror.put(SCHEDULES, schedule("words.count", "words", 8, 2))
    assert budget.left_to(key("trades"), {"match"}) == 6.0


def test_what_is_being_written_is_nobody_elses() -> None:
    budget, _ = budget_of(4.0, TWO, schedule("words.count", "words", 2, 1))
    with budget.promised(key("words"), {"count": 3.0}):
        assert budget.left_to(key("trades"), {"match"}) == 1.0
        assert budget.left_to(key("words"), {"count"}) == 4.0
    assert budget.left_to(key("trades"), {"match"}) == 3.0
    with budget.promised(key("words"), {"count": 0.5}):
        assert budget.left_to(key("trades"), {"match"}) == 3.0, "fewer count once they are written"


def test_topologies_of_all_namespaces_share_what_there_is_and_do_not_meet() -> None:
    mirrors = {}
    for namespace in ("streams", "team-a"):
        mirrors[namespace] = Mirror(lambda *_: None)
        mirrors[namespace].put(TOPOLOGIES, topology("words", "1"))
        mirrors[namespace].put(SCHEDULES, schedule("words.count", "words", 3, 1))
    budget = CoreBudget(10.0, mirrors)
    assert budget.left_to(TopologyKey("team-a", "words"), {"count"}) == 7.0
    with budget.promised(TopologyKey("streams", "words"), {"count": 5.0}):
        assert budget.left_to(TopologyKey("team-a", "words"), {"count"}) == 5.0
        assert budget.left_to(TopologyKey("streams", "words"), {"count"}) == 7.0
