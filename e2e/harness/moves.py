"""Moves of shards, as an edit of a Schedule asks for them."""

from __future__ import annotations

from e2e.harness.commands import CommandFailed
from e2e.harness.topologies import Running
from e2e.harness.watching import Object, wait_until

MOVED_S = 90


def schedule_of(running: Running, operator: str) -> Object:
    (found,) = [each for each in running.schedules() if each["spec"]["operator"] == operator]
    return found


def send_to_the_other_node(running: Running, operator: str) -> bool:
    """Write a version of the operator's Schedule in which its executors have changed shards, as Penstock's
    operator would, on the version that was read. False when that is not the newest, or one node has all."""
    found = schedule_of(running, operator)
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
        running.cluster.patch("schedule", found["metadata"]["name"], change)
    except CommandFailed:
        return False
    return True


def wait_moved(running: Running) -> None:
    """Until every store has applied the newest version of each Schedule, and no shard is on its way."""

    def moved() -> bool:
        return all(
            [(each["version"], each.get("shardsMoving", 0)) for each in found["status"].get("applied", [])]
            == [(found["spec"]["version"], 0)] * len(found["spec"]["stores"])
            for found in running.schedules()
        )

    wait_until("all shards are at home", moved, MOVED_S, every_s=0.5)
