"""Keys that meet are learned while rows flow, and come to one node: over real stores, agents and workers of
two nodes, with somebody killed while a table is carried out.

Each row of a key of `mid` goes to the same key of `end`, whose shards live on the other node at first: by
hash nothing stays. User code raises where a row is lost, doubled or out of order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from penstock.control.locality.locality_decision import LocalityDecision
from penstock.control.locality.tables import TableRules
from penstock.locality.loop import LocalityLoop, LoopRules
from penstock.locality.record import TablesBrought
from penstock.locality.routed_plan import routed_plan
from penstock.locality.seen import LocalitySeen
from penstock_operator.partitioning.choice import installed_partitioner
from processes.counting_plan import counting_plan
from scenes.kill_scene import NODES, TARGETS, KillScene, let_pass

pytestmark = pytest.mark.integration

RULES = LoopRules(tables=TableRules(records_min=500, key_bytes=1.0), every_s=1.0, rest_s=600.0, measure_s=5.0)
LOOKS_S = 90.0


@dataclass
class Kept:
    """Keeps the port `TableDecisionKeeper`."""

    decided: list[LocalityDecision] = field(default_factory=list)
    brought: list[TablesBrought] = field(default_factory=list)

    def tables_decided(self, decision: LocalityDecision, *, dry_run: bool) -> int:
        assert not dry_run
        self.decided.append(decision)
        return len(self.decided)

    def tables_brought(self, outcome: TablesBrought) -> None:
        self.brought.append(outcome)


@pytest.fixture
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillScene]:
    scene = KillScene(tmp_path_factory.mktemp("locality"), tables=True)
    # Number n of `mid` is on one node, number n of `end` on the other.
    for number, shard in enumerate(TARGETS["mid"]):
        scene.give(shard, to=("a1", "b1")[number % 2])
    for number, shard in enumerate(TARGETS["end"]):
        scene.give(shard, to=("b2", "a2")[number % 2])
    scene.start()
    yield scene
    scene.stop()


def seen_in(scene: KillScene, loop: LocalityLoop, now_us: int) -> LocalitySeen:
    """What the operator would see."""
    placed = {
        operator: {s: scene.home(s) for s in scene.places if s.startswith(f"{operator}/")}
        for operator in loop.producers
    }
    return LocalitySeen(
        at_us=now_us,
        rows=scene.counted_pairs(),
        tasks={
            name: {f"{name}-{at}": 1 for shard, at in scene.places.items() if shard.startswith(f"{name}/")}
            for name in loop.counting
        },
        homes=placed,
        counts=scene.counts(),
        capacity=dict.fromkeys(NODES, 1.0),
        state_bytes={},
    )


def test_keys_that_meet_are_learned_and_come_to_one_node_whoever_is_killed(scene: KillScene) -> None:
    kept = Kept()
    loop = LocalityLoop(
        routed_plan(counting_plan(4, tables=True)), installed_partitioner(), kept, rules=RULES
    )
    struck = False
    until_s = time.monotonic() + LOOKS_S
    while not kept.brought:
        assert time.monotonic() < until_s, f"{kept.decided[-1:]} {loop.lines()} {scene.describe()}"
        turn = loop.turn(seen_in(scene, loop, time.time_ns() // 1000))
        if turn.table is not None:
            scene.put_table(turn.table.operator, turn.table.table)
            loop.recorded(turn.table.operator, turn.table.table)
            if not struck:
                struck = True
                for one in (scene.workers["a1"], scene.servers["b"], scene.agents["a"]):
                    one.kill()
                    one.start()
        let_pass(0.5)
    change = next(one for one in kept.decided if one.action is not None)
    assert change.by_hash is not None
    assert change.by_hash.local_share < 0.01
    (outcome,) = kept.brought
    assert outcome.local_share > 0.99, outcome
    (line,) = loop.lines()
    assert line.local_share == pytest.approx(outcome.local_share, abs=0.01)
    assert max(line.versions) == 1
    scene.wait_at_home()
    scene.settle()
