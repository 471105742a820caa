"""`make bench-operator` in short: its cluster with few Topologies. What is counted here does not depend on
the machine: which looks were followed by a decision, and who was woken."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from bench.node_store import NodeStore
from bench.operator_cluster import (
    Databases,
    ManyTopologies,
    Written,
    bring_up_template,
    node_name,
    replica_on,
)
from bench.operator_process import RecordingMetrics

from clocks.eventually import eventually_awaited
from clocks.running import run
from house import ROOT
from penstock.store.port import StoreUnreachable
from penstock.store.redis.store import load_functions
from penstock_operator.cluster.kubernetes_api.port import NODES, TOPOLOGIES, Object
from penstock_simulation.twins.memory_cluster import MemoryCluster
from processes.free_ports import free_port
from worlds.operator_world import NAMESPACE

pytestmark = pytest.mark.integration

NODES_HERE = 8
TOPOLOGIES_HERE = 6
OPERATORS = 3


async def is_up(url: str) -> bool:
    try:
        load_functions(url)
    except StoreUnreachable:
        return False
    return True


def _writes(cluster: MemoryCluster) -> int:
    return sum(kind != "Lease" for _, kind, _ in cluster.calls)


def _relabel(node: Object) -> None:
    node["metadata"]["labels"]["zone"] = "a"


def _shrink(node: Object) -> None:
    node["status"]["allocatable"]["pods"] = "109"


def test_resting_topologies_are_looked_at_without_a_decision_and_a_change_wakes_whom_it_is_about(
    tmp_path: Path,
) -> None:
    async def story(redis: NodeStore) -> None:
        await eventually_awaited(partial(is_up, redis.url))
        databases = Databases(redis.port, NODES_HERE)
        written = await Written.of(await bring_up_template(databases, OPERATORS))
        cluster = MemoryCluster(clock_s=time.time, namespace=NAMESPACE)
        many = ManyTopologies(cluster, databases, TOPOLOGIES_HERE, NODES_HERE)
        assert len(list(many.write(written))) == 1
        replica = replica_on(cluster, databases.open_at, databases.wire_at, "scale")
        metrics = replica.metrics = RecordingMetrics()
        stop = asyncio.Event()
        running = asyncio.create_task(replica.run(stop))

        async def all_rest() -> bool:
            return replica.reconciler is not None and replica.reconciler.resting() == TOPOLOGIES_HERE

        async def looked_at(turns: int) -> bool:
            return metrics.counted.turns.get("topology", 0) >= turns

        try:
            await eventually_awaited(all_rest)
            counted = metrics.counted

            async def looks_without_a_decision() -> bool:
                """That workers tell nothing any more is news once; then nothing is."""
                decisions, writes = counted.decisions, _writes(cluster)
                await eventually_awaited(partial(looked_at, counted.turns["topology"] + TOPOLOGIES_HERE))
                return counted.decisions == decisions and _writes(cluster) == writes

            await eventually_awaited(looks_without_a_decision)
            writes = len(cluster.calls)

            # Two of six are on each of the first four nodes.
            taken_up = len(counted.of_topologies)
            for alter, woken in ((_relabel, 0), (_shrink, 2)):
                held = cluster.held(NODES, node_name(0))
                alter(held)
                cluster.put(NODES, held)
                looks = counted.turns["topology"] + TOPOLOGIES_HERE
                await eventually_awaited(partial(looked_at, looks))
                assert len(counted.of_topologies) == taken_up + woken

            edited = cluster.held(TOPOLOGIES, many.names()[3])
            edited["spec"]["operators"][1]["tasks"]["initial"] = 3
            cluster.put(TOPOLOGIES, edited)

            async def is_applied() -> bool:
                status = cluster.held(TOPOLOGIES, many.names()[3])["status"]
                return bool(status["observedGeneration"] == 2)

            await eventually_awaited(is_applied)
            written_since = cluster.calls[writes:]
            schedules = {
                name for verb, kind, name in written_since if (verb, kind) == ("replace", "Schedule")
            }
            assert schedules == {f"{many.names()[3]}.count1"}
        finally:
            stop.set()
            await running

    redis = NodeStore(tmp_path, "all", free_port())
    redis.start()
    try:
        run(story(redis))
    finally:
        redis.stop()


@pytest.mark.timeout(300)
def test_the_bench_of_the_operator_prints_its_line_in_short_form_too(tmp_path: Path) -> None:
    """With the operator's process, kopf's watches and the twin over HTTP; these figures say nothing."""
    sizes = {"BENCH_TOPOLOGIES": "20", "BENCH_NODES": "10", "BENCH_SECONDS": "3"}
    own = {"BENCH_RESULTS": str(tmp_path), "BENCH_DIR": str(tmp_path)}
    shown = subprocess.run(
        [sys.executable, "-m", "bench.operator"],
        cwd=ROOT,
        env={**os.environ, **sizes, **own, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    line = json.loads(shown.stdout.splitlines()[-1])
    assert json.loads((tmp_path / "operator.json").read_text()) == line
    assert (line["bench"], line["topologies"], line["nodes"]) == ("operator", 20, 10)
    for figure in ("look_us_per_topology", "turn_p99_ms", "cpu_cores", "memory_mib", "lease_renewals"):
        assert line[figure] > 0, figure
    assert line["lease_late"] >= 0
    assert line["agent_streams"] == {"watches": 1, "schedules": 20 * 10, "of_its_store": 40.0}
    assert line["changes"]["done"] == {"edit": 6, "flip_pod": 15}
    for phase in ("take_over", "idle", "changes"):
        assert set(line[phase]["lag_ms_max"]) == {"turns", "lease", "collector", "twin"}
