"""Somebody asks about a topology that is finished: it has one worker meanwhile, and nothing else changes."""

from __future__ import annotations

import pytest

from penstock_operator.cluster.decisions.turn import ASKED_S
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_ASKED
from worlds.cluster_world import World
from worlds.started_world import started


def finished(**changes: object) -> World:
    world = started(**changes)
    world.finished = True
    world.run(10)
    assert world.status["phase"] == "Finished"
    assert world.pods == {}
    return world


def ask(world: World, text: str = "") -> None:
    """Nobody does any more, without a text."""
    annotations = {ANNOTATION_ASKED: text} if text else {}
    world.document = {
        **world.document,
        "metadata": {**world.document["metadata"], "annotations": annotations},
    }


@pytest.mark.parametrize("isolation", ["Topology", "Operator"])
def test_a_finished_topology_has_a_worker_while_somebody_asks(isolation: str) -> None:
    world = finished(spec__workers__isolation=isolation)
    before = dict(world.schedules)
    ask(world, "a1")
    world.run(10)
    assert len(world.ready_pods()) == 1
    assert world.status["phase"] == "Finished"
    ask(world)
    world.run(10)
    assert world.pods == {}
    assert world.schedules == before


def test_who_asked_and_went_away_leaves_no_worker_for_good() -> None:
    world = finished()
    ask(world, "a1")
    world.run(10)
    assert len(world.ready_pods()) == 1
    world.run(int(ASKED_S) + 10)
    assert world.pods == {}
    ask(world, "a2")
    world.run(10)
    assert len(world.ready_pods()) == 1


def test_a_topology_that_works_has_no_worker_more_when_somebody_asks() -> None:
    world = started()
    before = world.uids()
    ask(world, "a1")
    world.run(10)
    assert world.uids() == before


def test_what_is_left_in_an_inbox_is_worked_on_by_the_workers_that_the_topology_wants() -> None:
    world = finished()
    ask(world, "a1")
    world.run(10)
    world.inbox_entries = {"count": 1}
    world.run(20)
    assert len(world.ready_pods()) == 2
    assert world.status["phase"] == "Running"
    assert world.is_whole()
    world.inbox_entries = {}
    world.run(10)
    assert world.status["phase"] == "Finished"
    assert len(world.ready_pods()) == 1
    ask(world)
    world.run(10)
    assert world.pods == {}
