"""A cluster in which a topology has come to rest."""

from __future__ import annotations

from worlds.cluster_world import World


def started(**changes: object) -> World:
    world = World()
    if changes:
        world.edit(**changes)
    world.run(15)
    assert world.status["phase"] == "Running", world.status
    return world
