"""The fault runner's short form: a drawn topology under a few drawn faults. `make faults` is the long one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults import plan, topology
from faults.scene import Scene

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SEED = int(os.environ.get("PENSTOCK_FAULTS_SEED", "4"))
LINES = 3_000
ROUNDS = {
    1: (3, ("task killed", "task terminated", "store killed")),
    2: (2, ("task killed", "worker killed", "store killed")),
}
"""By number of workers: how many rounds, of which faults. With 1 nothing is hit whose start takes seconds."""
SLACK = 8.0
"""What pauses may take here, in bounds: other tests share the cores."""
LIMIT_S = 270.0


@pytest.mark.slow(held_by="test_windows_and_windows_of_windows_are_whole_whatever_is_killed")
@pytest.mark.parametrize("workers", ROUNDS)
def test_a_drawn_topology_under_drawn_faults_loses_doubles_and_leaves_nothing(
    tmp_path: Path, workers: int
) -> None:
    seed = SEED + workers
    said: list[str] = []
    drawn = topology.draw(seed, LINES, workers=[workers])
    rounds, kinds = ROUNDS[workers]
    outcome = Scene(drawn, plan.draw(seed, rounds, kinds), tmp_path, LIMIT_S, said.append).play()
    faults = "\n".join(outcome.faults(SLACK))
    assert not faults, f"seed {seed}: {drawn.words()}\n" + "\n".join(said) + f"\n{faults}"
    assert outcome.verdict.rows > 0
    assert any(struck.existed for struck in outcome.struck)
