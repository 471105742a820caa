"""Shards change nodes, by edits of a Schedule, while containers are killed and stopped: exact totals."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from e2e.harness.faults import frozen, kill_container
from e2e.harness.installation import Installation
from e2e.harness.moves import MOVED_S, send_to_the_other_node, wait_moved
from e2e.harness.topologies import WordCount
from e2e.harness.watching import wait_until

pytestmark = pytest.mark.alone

ROUNDS = 6
STRIKE_S_MAX = 1.5
STOPPED_S = 4.0
"""Longer than the delayed kill of a worker: its tasks come back as zombies."""
EXACT_S = 240


def containers(counting: WordCount, installation: Installation) -> list[tuple[str, str]]:
    """Pods and containers that moves have to do with."""
    workers = [(str(each["metadata"]["name"]), "worker") for each in counting.workers()]
    stores = [(pod, name) for pod in installation.stores() for name in ("agent", "store")]
    return [*stores, *workers, (installation.leading_pod(), "operator")]


@pytest.mark.slow(held_by="test_a_node_is_drained_and_used_again")
@pytest.mark.parametrize("seed", [1])
def test_shards_change_nodes_again_and_again_while_pods_are_killed_and_stopped(
    installation: Installation, word_count: Callable[..., WordCount], seed: int
) -> None:
    counting = word_count("moves-under-fire", lines=200)
    with counting.held_open():
        counting.wait_workers(2)
        counting.wait_rows()
        rng = random.Random(seed)
        # Each once: one that was killed twice would stay away for longer, by kubelet's back-off.
        for number, (pod, container) in enumerate(rng.sample(containers(counting, installation), ROUNDS)):
            operator = rng.choice(("count", "count", "lines"))
            edit = partial(send_to_the_other_node, counting, operator)
            wait_until("the Schedule is edited", edit, MOVED_S)
            time.sleep(rng.uniform(0, STRIKE_S_MAX))
            if number % 2:
                with frozen(counting.cluster, pod, container):
                    time.sleep(STOPPED_S)
            else:
                kill_container(counting.cluster, pod, container)
            wait_moved(counting)
            assert counting.faults(complete=False) == [], (pod, container)
    counting.assert_exact(EXACT_S)
