"""Keys go to other shards by tables while rows flow, over real stores and processes, whoever is killed.

Each round puts a table of one keyed stage into both stores, strikes somebody, now and then moves a shard too,
and waits until nobody is left that goes by the table before. User code raises where a row is lost, doubled or
out of order. `tests/simulation` does the same at every step; here are Redis, agents and kills as they are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from clocks.eventually import eventually
from penstock.dataflow.routing import Router
from penstock.dataflow.routing_table import RoutingTable, next_table
from penstock_worker.state.encoding import pack
from processes.counting_plan import KEYS
from scenes.kill_scene import NODES, SOURCES, TARGETS, WORKERS, KillScene

pytestmark = pytest.mark.integration

ROUNDS = 6


@pytest.fixture
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillScene]:
    scene = KillScene(tmp_path_factory.mktemp("tables"), tables=True)
    scene.start()
    yield scene
    scene.stop()


def by_hash(packed: bytes) -> int:
    return Router(["string"], len(TARGETS["mid"])).route((KEYS_BY_PACKED[packed],))


KEYS_BY_PACKED = {pack((key,)): key for key in KEYS}


def test_keys_go_where_tables_say_and_totals_are_exact_whoever_is_killed(scene: KillScene) -> None:
    rng = random.Random(20)
    tables: dict[str, RoutingTable] = {}
    for number in range(ROUNDS):
        operator = ("mid", "end")[number % 2]
        producers = SOURCES if operator == "mid" else TARGETS["mid"]
        keys = {packed: rng.randrange(4) for packed in KEYS_BY_PACKED if rng.random() < 0.7}
        table = tables[operator] = next_table(tables.get(operator), keys, by_hash, producers)
        assert table.moves
        scene.put_table(operator, table)
        if number % 2:
            scene.give(rng.choice(TARGETS[operator]), to=rng.choice(list(WORKERS)))
            scene.publish()
        of_nodes = [scene.agents[rng.choice(NODES)], scene.servers[rng.choice(NODES)]]
        struck = rng.choice([*scene.workers.values(), *of_nodes])
        struck.kill()
        struck.start()
        eventually(lambda o=operator, t=table: scene.is_carried_out(o, t), f"table {number} is carried out")
        scene.wait_at_home()
        scene.settle()
        for of, made in tables.items():
            placed = dict(made.keys)
            for packed, key in KEYS_BY_PACKED.items():
                shard = placed.get(packed, by_hash(packed))
                has = [part for part, name in enumerate(TARGETS[of]) if key in scene.keys_on(name)]
                assert has == [shard], (of, key)
