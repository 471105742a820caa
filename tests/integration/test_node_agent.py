"""The node agent as a process, over real stores: births, deliveries, kills, outages, moves, farewells."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
import redis

from clocks.eventually import eventually
from penstock.api.schedule_object import to_spec
from penstock.dataflow.routing import Router
from penstock.errors import PenstockError
from penstock.metrics.rows import HELD_ROW_NAME, HeldRow, unpack
from penstock.store.lives import life_of
from penstock.store.port import (
    Assignment,
    Claim,
    Owner,
    ReadFacts,
    ReadMetrics,
    ShardStatus,
    TakeFacts,
    Topologies,
    Watermark,
    WatermarkFact,
    Weigh,
)
from processes.counting_plan import UID
from processes.node_processes import AgentProcess
from scenes.agent_scene import AgentScene

pytestmark = pytest.mark.integration

_END_S_MAX = 3.0
"""The agent shall end within a second; a busy machine is given three times that."""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[AgentScene]:
    scene = AgentScene(tmp_path).start()
    try:
        yield scene
    finally:
        scene.stop()


def begin(scene: AgentScene, pace_s: float = 0.0) -> None:
    """Everything runs; the workers take `pace_s` from batch to batch, and leave something for `finish`."""
    for worker in scene.workers.values():
        worker.step_s = pace_s
        worker.part = 0.8 if pace_s else 1.0
    scene.publish()
    scene.wait_applied()
    scene.work()


def wait_under_way(scene: AgentScene, part: float = 0.2) -> None:
    """Until some of the rows have arrived."""
    total = scene.expected().total()
    eventually(lambda: scene.counts("end").total() >= part * total, "rows are under way")


def finish(scene: AgentScene) -> None:
    """Let everything through, and see that it has arrived, once each."""
    assert scene.counts("end").total() < scene.expected().total()
    for worker in scene.workers.values():
        worker.part = 1.0
    scene.wait_done()


def generation(scene: AgentScene, node: str) -> int:
    return int(scene.api.applied("words-mid").get(node, {}).get("generation", 0))


# --- the way of a schedule


def test_a_topology_over_two_stores_counts_exactly(scene: AgentScene) -> None:
    scene.work()
    scene.publish()
    scene.wait_applied()
    scene.wait_done()


def test_births_are_reported_before_anything_is_published(scene: AgentScene) -> None:
    """While the report cannot be written nobody may claim; afterwards they may."""
    eventually(lambda: scene.api.watches >= 2, "both agents watch")
    scene.api.refuse_reports = True
    scene.publish()
    eventually(lambda: scene.counters("src/0") is not None, "the shard was made")
    store = scene.store("a")
    assert store.call(Assignment("worker-a")).executors == ()
    owner = Owner("src-a", "uid-worker-a/1/0", "r")
    assert str(store.call(Claim("src/0", owner, 1))) == "STALE"
    scene.api.refuse_reports = False
    scene.wait_applied()
    eventually(lambda: store.call(Assignment("worker-a")).executors, "it was published")
    store.close()


def test_later_versions_are_published_in_order_and_reported_once(scene: AgentScene) -> None:
    scene.publish()
    scene.wait_applied()
    for version in (2, 3, 4):
        scene.version = version
        scene.publish()
    scene.wait_applied()
    told = [
        entry["version"]
        for name, _, entry in scene.api.reports
        if (name, entry["node"]) == ("words-mid", "a")
    ]
    assert told == sorted(set(told))
    assert {manager for _, manager, entry in scene.api.reports if entry["node"] == "b"} == {
        "penstock-agent-b"
    }


def test_new_shards_of_a_running_operator_are_made_at_their_home(scene: AgentScene) -> None:
    scene.publish()
    scene.wait_applied()
    scene.homes["mid/9"] = "b"
    scene.version, scene.born["mid/9"] = 2, 2
    scene.publish()
    scene.wait_applied()
    assert scene.counters("mid/9", "b") is not None
    assert scene.counters("mid/9", "a") is None


def test_what_a_producer_told_comes_to_the_other_store_and_on_after_its_restart(scene: AgentScene) -> None:
    scene.publish()
    scene.wait_applied()
    here, there = scene.store("a"), scene.store("b")

    def tell(version: int) -> WatermarkFact:
        fact = WatermarkFact("src/0", version, Watermark(10 * version))
        here.call(TakeFacts("src", (fact,)))
        return fact

    for number in range(1, 4):
        fact = tell(number)
        eventually(lambda: there.call(ReadFacts("src")) == [fact], "the fact has come")  # noqa: B023
    scene.servers["b"].kill()
    last = tell(9)
    scene.servers["b"].start()

    def has_come() -> bool:
        try:
            return there.call(ReadFacts("src")) == [last]
        except PenstockError:
            return False

    eventually(has_come, "the newest fact has come")
    here.close()
    there.close()


# --- faults


def test_an_agent_that_is_killed_in_the_middle_of_deliveries_loses_and_doubles_nothing(
    scene: AgentScene,
) -> None:
    begin(scene, pace_s=0.01)
    for number in range(4):
        wait_under_way(scene, 0.1 + 0.15 * number)
        agent = scene.agents["ab"[number % 2]]
        agent.kill()
        agent.start()
    finish(scene)
    assert generation(scene, "a") == generation(scene, "b") == 1


def test_a_store_that_is_killed_comes_back_with_everything_and_a_new_generation(scene: AgentScene) -> None:
    begin(scene, pace_s=0.01)
    wait_under_way(scene)
    for node in ("a", "b"):
        scene.servers[node].kill()
        scene.servers[node].start()
    finish(scene)
    eventually(lambda: (generation(scene, "a"), generation(scene, "b")) == (2, 2), "the generations are told")


def test_an_outage_of_the_api_server_stops_nothing_even_when_agents_and_stores_start_anew(
    scene: AgentScene,
) -> None:
    begin(scene, pace_s=0.01)
    wait_under_way(scene, 0.1)
    scene.api.go_away()
    for node in ("a", "b"):
        scene.agents[node].kill()
        scene.servers[node].kill()
        scene.servers[node].start()
        scene.agents[node].start()
    finish(scene)
    scene.api.come_back()
    scene.version = 2
    scene.publish()
    scene.wait_applied()
    assert generation(scene, "a") == 2


def test_a_watch_that_lost_its_place_lists_again(scene: AgentScene) -> None:
    eventually(lambda: scene.api.watches >= 2, "both agents watch")
    scene.publish()
    scene.wait_applied()
    scene.api.go_away()
    scene.version = 2
    scene.publish()
    scene.api.forget_history()
    scene.api.come_back()
    scene.wait_applied()


def test_a_store_that_lost_its_state_says_so_and_does_not_begin_anew(scene: AgentScene) -> None:
    scene.publish()
    scene.wait_applied()
    scene.servers["a"].kill()
    scene.servers["a"].lose_everything()
    scene.servers["a"].start()
    mine = sum(home == "a" for shard, home in scene.homes.items() if shard.startswith("mid/"))
    eventually(lambda: scene.api.applied("words-mid")["a"]["lostShards"] == mine, "the loss is told")
    assert scene.counters("mid/1", "a") is None
    assert scene.api.applied("words-mid")["b"]["lostShards"] == 0
    assert scene.api.applied("words-mid")["a"]["generation"] == 1


def test_shards_that_were_lost_with_a_node_live_once_more_on_another_one(scene: AgentScene) -> None:
    """Those that lived on keep every row, and what comes next goes through all."""
    scene.homes |= dict.fromkeys(scene.rows, "b")
    lost = [shard for shard, home in scene.homes.items() if home == "a"]
    begin(scene, pace_s=0.01)
    wait_under_way(scene, 0.1)
    completed = {shard: scene.completed(shard) for shard in scene.homes if shard not in lost}
    kept = scene.keys_at("mid", "b")
    scene.lose_node("a")
    scene.version, scene.born, scene.lives = 2, dict.fromkeys(lost, 2), dict.fromkeys(lost, 1)
    scene.homes |= dict.fromkeys(lost, "b")
    scene.publish()
    scene.wait_applied()
    scene.workers["b"].part = 1.0

    def is_through() -> bool:
        seen = [scene.counters(shard) for shard in scene.homes]
        is_read = all(one is not None and one.finished for one in seen[: len(scene.rows)])
        return is_read and not any(one is None or one.inbox_entries + one.outbox_entries for one in seen)

    eventually(is_through, "all rows are worked off")
    for shard in scene.homes:
        counters = scene.counters(shard)
        assert counters is not None
        assert life_of(counters.epoch) == int(shard in lost)
        if shard not in scene.rows:
            assert counters.completed_rows > completed.get(shard, 0)
    expected, mid, end = scene.expected(), scene.counts("mid"), scene.counts("end")
    assert {key for key in expected if mid[key] == expected[key]} >= kept, "these were never away"
    assert kept
    assert 0 < end.total() < expected.total()
    assert scene.failures("b") == {}


# --- moves


def test_homes_that_change_places_while_rows_flow_keep_every_row(scene: AgentScene) -> None:
    begin(scene, pace_s=0.01)
    wait_under_way(scene)
    other = {"a": "b", "b": "a"}
    for shard, home in scene.homes.items():
        scene.homes[shard] = other[home]
    scene.version, scene.born = 2, {}
    scene.publish()
    finish(scene)
    for shard, home in scene.homes.items():
        here, there = scene.counters(shard, home), scene.counters(shard, other[home])
        assert here is not None
        assert here.status is ShardStatus.ACTIVE
        assert there is None or there.status is ShardStatus.MOVED
    eventually(
        lambda: all(
            scene.api.applied(f"words-{o}")[n]["shardsMoving"] == 0 for o in scene.targets for n in "ab"
        ),
        "nothing moves any more",
    )
    assert all(scene.api.applied("words-mid")[node]["lostShards"] == 0 for node in "ab")


def test_agents_that_are_killed_in_the_middle_of_moves_go_on_with_them(scene: AgentScene) -> None:
    begin(scene, pace_s=0.01)
    wait_under_way(scene)
    other = {"a": "b", "b": "a"}
    for version in (2, 3):
        for shard, home in scene.homes.items():
            scene.homes[shard] = other[home]
        scene.version, scene.born = version, {}
        scene.publish()
        for agent in scene.agents.values():
            agent.kill()
            agent.start()
    finish(scene)


# --- farewells


def test_a_topology_without_schedules_is_retracted(scene: AgentScene) -> None:
    begin(scene)
    scene.wait_done()
    for operator in ("src", "mid"):
        scene.api.remove(f"words-{operator}")
    stores = [scene.store(node) for node in "ab"]
    eventually(lambda: scene.api.lists >= 2, "lists were made")
    assert [store.call(Topologies()) for store in stores] == [[UID], [UID]]
    scene.api.remove("words-end")
    eventually(lambda: all(store.call(Topologies()) == [] for store in stores), "its state is removed")
    assert all(store.call(Assignment("worker-a")).retracted for store in stores)


def test_a_schedule_that_cannot_be_read_keeps_its_topology(scene: AgentScene) -> None:
    scene.publish()
    scene.wait_applied()
    for operator in ("src", "mid", "end"):
        scene.api.put(f"words-{operator}", {"topologyUid": UID, "operator": 7})
    lists = scene.api.lists
    for agent in scene.agents.values():
        agent.kill()
        agent.start()
    eventually(lambda: scene.api.lists >= lists + 2, "the agents listed again")

    def is_up() -> bool:
        try:
            return '"store": "open"' in scene.agents["a"].get("/healthz")
        except OSError:
            return False  # not listening yet, or 503 while the store is being opened

    eventually(is_up, "the agent is up")
    store = scene.store("a")
    assert store.call(Topologies()) == [UID]
    assert scene.counters("src/0") is not None


# --- topologies whose workers write what Penstock never writes


def test_a_topology_that_writes_over_its_own_keys_disturbs_no_other_one(scene: AgentScene) -> None:
    begin(scene, pace_s=0.01)
    scene.api.put("hostile-mid", to_spec(scene.schedule("mid"), "hostile", "hostile-1"))
    with redis.Redis(port=scene.servers["a"].port) as admin:

        def keys() -> list[bytes]:
            return list(admin.scan_iter("penstock:hostile-1:*"))

        eventually(lambda: any(b":schedule:" in key for key in keys()), "it is published")
        for key in keys():
            admin.delete(key)
            admin.sadd(key, b"\xff")
        admin.sadd("penstock:hostile-1:telling", b"\xff")
        scene.version = 2
        scene.publish()
        scene.wait_applied()
        finish(scene)
        for node in "ab":
            assert "penstock_agent_thread_faults_total{" not in scene.agents[node].get("/metrics")
        scene.api.remove("hostile-mid")
        eventually(lambda: not keys(), "nothing is left of it")


# --- the process


def test_an_agent_ends_within_a_second_when_told_to(scene: AgentScene) -> None:
    begin(scene, pace_s=0.01)
    wait_under_way(scene)
    for agent in scene.agents.values():
        code, seconds = agent.stop()
        assert code == 0
        assert seconds < _END_S_MAX


def test_health_and_metrics_tell_of_store_and_deliveries(scene: AgentScene) -> None:
    begin(scene)
    scene.wait_done()
    agent = scene.agents["a"]
    metrics = agent.get("/metrics")
    assert 'penstock_agent_applied_version{schedule="words-mid"} 1.0' in metrics
    assert f'penstock_agent_delivered_entries_total{{store="b",topology_uid="{UID}"}}' in metrics
    assert "penstock_agent_store_generation 1.0" in metrics
    with redis.Redis(port=scene.servers["a"].port) as admin:
        admin.config_set("maxmemory", 1 << 30)
    name = "penstock_agent_store_memory_limit_bytes "

    def limits() -> list[float]:
        lines = agent.get("/metrics").splitlines()
        return [float(line.removeprefix(name)) for line in lines if line.startswith(name)]

    eventually(lambda: limits() == [1 << 30], "the server's own limit is told")
    scene.servers["a"].kill()

    def is_unhealthy() -> bool:
        try:
            agent.get("/healthz")
        except HTTPError as answer:
            return answer.code == 503
        return False

    eventually(is_unhealthy, "the agent says that its store is away")
    agent.get("/livez")
    scene.servers["a"].start()
    eventually(lambda: not is_unhealthy(), "the agent says that its store is back")


def test_what_a_topology_holds_is_weighed_and_left_in_the_store(scene: AgentScene) -> None:
    begin(scene)
    scene.wait_done()
    store = scene.store("a")
    shards = tuple(shard for shard, home in scene.homes.items() if home == "a")

    def told() -> HeldRow | None:
        data = store.call(ReadMetrics()).get(HELD_ROW_NAME)
        row = None if data is None else unpack(HELD_ROW_NAME, data)
        return row if isinstance(row, HeldRow) else None

    def weights() -> int:
        return sum(weight or 0 for weight in store.call(Weigh(shards)))

    eventually(lambda: (row := told()) is not None and row.held_bytes == weights(), "it is weighed")
    row = told()
    assert row is not None
    assert (row.node, row.generation, row.shards) == ("a", 1, len(shards))
    assert f'penstock_agent_held_bytes{{topology_uid="{UID}"}}' in scene.agents["a"].get("/metrics")
    store.close()


def test_without_a_needed_variable_the_sentence_names_it(scene: AgentScene) -> None:
    agent = AgentProcess(scene.folder, scene.servers["a"], scene.kubeconfig, PENSTOCK_NODE="")
    agent.start()
    assert agent.wait() == 1
    assert "agent: the environment variable PENSTOCK_NODE is not set" in agent.log()


# --- the server's settings


def test_a_disk_store_syncs_while_a_topology_asks_for_it(tmp_path: Path) -> None:
    scene = AgentScene(tmp_path, nodes=("a",))
    scene.agents["a"] = AgentProcess(
        tmp_path,
        scene.servers["a"],
        scene.kubeconfig,
        PENSTOCK_STORE_DURABILITY="Disk",
        PENSTOCK_STORE_MEMORY_BYTES=str(256 << 20),
    )
    scene.start()
    try:
        with redis.Redis(port=scene.servers["a"].port) as admin:
            scene.publish(durability="Disk")
            scene.wait_applied()
            settings = admin.config_get("*")
            assert settings["appendfsync"] == "always"
            assert settings["maxmemory-policy"] == "noeviction"
            assert settings["maxmemory"] == str(256 << 20)
            scene.publish(durability="Process")
            eventually(lambda: admin.config_get("appendfsync")["appendfsync"] == "no", "it syncs no more")
            scene.publish()
            eventually(lambda: admin.config_get("appendfsync")["appendfsync"] == "always", "it syncs again")
    finally:
        scene.stop()


def test_a_hanging_store_keeps_back_only_what_goes_there(tmp_path: Path) -> None:
    scene = AgentScene(tmp_path, nodes=("a", "b", "c"), rows=200, shards=2)
    scene.homes = {"src/0": "a", "src/1": "a", "mid/0": "b", "mid/1": "c", "end/0": "b", "end/1": "c"}
    scene.start()
    try:
        scene.publish()
        scene.wait_applied()
        scene.servers["c"].kill(signal.SIGSTOP, wait=False)
        for node in "ab":
            scene.workers[node].start()
        router = Router(["string"], 2)
        expected = sum(router.route((key,)) == 0 for rows in scene.rows.values() for _, key, _ in rows)

        def arrived() -> int:
            counters = scene.counters("end/0")
            return counters.completed_rows if counters else 0

        eventually(lambda: arrived() == expected, "what goes to the other store has arrived")
        scene.servers["c"].kill(signal.SIGCONT, wait=False)
        scene.workers["c"].start()
        scene.wait_done()
    finally:
        scene.stop()
