"""The node agent as a process, over real stores: births, deliveries, kills, outages, farewells, exact results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_scene import AgentScene

pytestmark = pytest.mark.integration


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[AgentScene]:
    scene = AgentScene(tmp_path).start()
    try:
        yield scene
    finally:
        scene.stop()
        for agent in scene.agents.values():
            print(agent.log())


def test_a_topology_over_two_stores_counts_exactly(scene: AgentScene) -> None:
    scene.work()
    scene.publish()
    scene.wait_applied()
    scene.wait_done()
