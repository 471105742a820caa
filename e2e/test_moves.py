"""Shards change nodes, by edits of a Schedule, while containers are killed and stopped: exact totals."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from e2e.harness.commands import CommandFailed
from e2e.harness.faults import frozen, kill_container
from e2e.harness.installation import Installation
from e2e.harness.topologies import WordCount
from e2e.harness.watching import Object, wait_until

pytestmark = pytest.mark.alone

ROUNDS = 6
STRIKE_S_MAX = 1.5
STOPPED_S = 4.0
"""Longer than the delayed kill of a worker: its tasks come back as zombies."""
MOVED_S = 90
EXACT_S = 240


def schedule_of(counting: WordCount, operator: str) -> Object:
    (found,) = [each for each in counting.schedules() if each["spec"]["operator"] == operator]
    return found


def send_to_the_other_node(counting: WordCount, operator: str) -> bool:
    """Write a version of the operator's Schedule in which its executors have changed shards, as Penstock's
    operator would, on the version that was read. False when that is not the newest, or one node has all."""
    found = schedule_of(counting, operator)
    spec = found["spec"]
    nodes = {executor["name"]: executor["node"] for executor in spec["executors"]}
    home_of = {store["node"]: store["id"] for store in spec["stores"]}
    if len(set(nodes.values())) < 2:
        return False
    other = {name: next(o for o in nodes if nodes[o] != node) for name, node in nodes.items()}
    shards = [
        part | {"executor": other[part["executor"]], "home": home_of[nodes[other[part["executor"]]]]}
        for part in spec["shards"]
    ]
    change = {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "spec": {"version": spec["version"] + 1, "shards": shards},
    }
    try:
        counting.cluster.patch("schedule", found["metadata"]["name"], change)
    except CommandFailed:
        return False
    return True


def wait_moved(counting: WordCount) -> None:
    """Until every store has applied the newest version of each Schedule, and no shard is on its way."""

    def moved() -> bool:
        return all(
            [(each["version"], each.get("shardsMoving", 0)) for each in found["status"].get("applied", [])]
            == [(found["spec"]["version"], 0)] * len(found["spec"]["stores"])
            for found in counting.schedules()
        )

    wait_until("all shards are at home", moved, MOVED_S, every_s=0.5)


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
