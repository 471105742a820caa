# ruff: noqa: A005 - a module of a package, named as its target is
"""`make bench-operator`: what the operator costs with 1 000 Topologies on 200 nodes, and how soon it answers.

The operator's process as it is, with its Kubernetes client and kopf's watches, on the twin of the Kubernetes
API over HTTP; its nodes' stores are databases of one redis-server. Two phases are measured: idle, when
nothing changes but the workers' rows in the stores; and changes, at an even rate: edits of Topologies, pods
that are no longer ready and ready again, nodes whose labels change.

A turn's latency is from when a change came in at the process to the end of the turn that took it up, so that
waiting counts. How late each loop was, the twin's too, says who was too busy; how long a piece of work of the
bench's own took, and what the host took from the cores, whether it was the machine. BENCH_SECONDS is the
length of each phase, BENCH_TOPOLOGIES and BENCH_NODES other sizes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench import cpu, machine
from bench.loop_lag import LoopLag
from bench.operator_cluster import (
    CONFIG,
    Databases,
    ManyTopologies,
    Written,
    bring_up_template,
    node_name,
)
from bench.pace import Pace
from bench.screen import Screen, scratch, seconds_per_figure, show
from rich.table import Table

from backends.cluster_api_server import ClusterApiServer
from clocks.eventually import eventually_awaited
from penstock.store.port import StoreUnreachable
from penstock.store.redis.store import load_functions
from penstock_operator.cluster.kubernetes_api.port import LEASES, NODES, PODS, SCHEDULES, TOPOLOGIES, Object
from penstock_simulation.twins.memory_cluster import MemoryCluster
from processes.free_ports import free_port
from worlds.operator_world import NAMESPACE

TOPOLOGIES_HERE = 1000
NODES_HERE = 200
OPERATORS = 10
SECONDS = 62.0
"""A whole minute and more: every 60 s all objects are listed."""
START_WITHIN_S = 1500.0
RESTS_WITHIN_S = 60.0
"""So long after that they have nothing to do any more."""
EDITS_PER_S = 2.0
PODS_PER_S = 5.0
NODES_PER_S = 0.2
ROWS_EVERY_S = 4.0
MIB = 1 << 20


class OperatorProcess:
    """The process that is measured, and what it tells of itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process

    @staticmethod
    async def start(kubeconfig: Path, redis: int, nodes: int, log: Path) -> OperatorProcess:
        arguments = ["--kubeconfig", str(kubeconfig), "--redis", str(redis), "--nodes", str(nodes)]
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.operator_process", *arguments),
                *("--metrics-port", str(free_port())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                limit=64 << 20,
            )
        return OperatorProcess(process)

    async def told(self) -> dict[str, Any]:
        """What was counted since the last time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the operator ended with code {await self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told

    def memory_mib(self) -> float:
        return sum(cpu.pss_by_name(self.pid).values()) / MIB

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()


@dataclass
class TakeOver:
    """From the process's start until all Topologies are found running, and until they rest."""

    seconds: float = 0.0
    rests_s: float = 0.0
    cpu_s: float = 0.0
    decisions: int = 0
    lag_ms_max: dict[str, float] = field(default_factory=dict)

    def add(self, told: dict[str, Any], twin_lag_ms: float) -> None:
        self.cpu_s += told["cpu_s"]
        self.decisions += told["decisions"]
        for name, lag_ms in _lags(told, twin_lag_ms).items():
            self.lag_ms_max[name] = max(self.lag_ms_max.get(name, 0.0), lag_ms)

    def figures(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 1),
            "rests_s": round(self.rests_s, 1),
            "cpu_s": round(self.cpu_s, 1),
            "decisions": self.decisions,
            "lag_ms_max": self.lag_ms_max,
        }


@dataclass
class Changes:
    """What others do to the cluster, at an even rate."""

    many: ManyTopologies
    done: dict[str, int]

    async def go_on(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            for per_s, change in (
                (EDITS_PER_S, self._edit),
                (PODS_PER_S, self._flip_pod),
                (NODES_PER_S, self._flip_node),
            ):
                group.create_task(self._repeat(per_s, change, seconds))

    async def _repeat(self, per_s: float, change: Any, seconds: float) -> None:
        began_s = time.monotonic()
        for number in range(int(per_s * seconds)):
            await asyncio.sleep(max(0.0, began_s + number / per_s - time.monotonic()))
            change(number)
            self.done[change.__name__[1:]] = self.done.get(change.__name__[1:], 0) + 1

    def _edit(self, number: int) -> None:
        """One task more of one operator."""
        cluster, names = self.many.cluster, self.many.names()
        held = cluster.held(TOPOLOGIES, names[(7 * number) % len(names)])
        tasks = held["spec"]["operators"][1 + number % (OPERATORS - 1)]["tasks"]
        tasks["initial"] = 3 if tasks.get("initial") == 2 else 2
        cluster.put(TOPOLOGIES, held)

    def _flip_pod(self, number: int) -> None:
        """Not ready at one time, ready at the next."""
        workers = self.many.workers
        _, _, pod, _ = workers[(11 * (number // 2)) % len(workers)]
        self._flip(PODS, pod)

    def _flip_node(self, number: int) -> None:
        """A label: what many agents on nodes write."""
        held = self.many.cluster.held(NODES, node_name((13 * number) % self.many.nodes))
        held["metadata"].setdefault("labels", {})["bench.example/number"] = str(number)
        self.many.cluster.put(NODES, held)

    def _flip(self, kind: Any, name: str) -> None:
        held = self.many.cluster.held(kind, name)
        for one in held["status"]["conditions"]:
            if one["type"] == "Ready":
                one["status"] = "False" if one["status"] == "True" else "True"
        self.many.cluster.put(kind, held)


async def _rows(many: ManyTopologies) -> None:
    """Workers write their rows anew: a part of them each tenth of the interval."""
    part = 0
    while True:
        await asyncio.sleep(ROWS_EVERY_S / 50)
        await asyncio.to_thread(many.refresh_rows, part % 50, 50)
        part += 1


def percentile(values: Sequence[float], percent: float) -> float:
    """Of sorted values; 0 of none."""
    return values[min(len(values) - 1, int(len(values) * percent / 100))] if values else 0.0


async def measure(
    screen: Screen, topologies: int, nodes: int, seconds: float, folder: Path
) -> dict[str, Any]:
    redis_port = free_port()
    redis = subprocess.Popen(
        ["redis-server", "--port", str(redis_port), "--databases", str(nodes + 8), "--save", ""],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    try:
        await eventually_awaited(partial(_is_up, redis_port))
        return await _measure(screen, topologies, nodes, seconds, folder, redis_port)
    finally:
        redis.terminate()
        redis.wait()


async def _is_up(port: int) -> bool:
    try:
        load_functions(f"redis://127.0.0.1:{port}")
    except StoreUnreachable:
        return False
    return True


async def _measure(
    screen: Screen, topologies: int, nodes: int, seconds: float, folder: Path, redis: int
) -> dict[str, Any]:
    databases = Databases(redis, nodes)
    with screen.step("one Topology is brought to run"):
        written = await Written.of(await bring_up_template(databases, OPERATORS))
    cluster = MemoryCluster(clock_s=time.time, namespace=NAMESPACE)
    server = ClusterApiServer(cluster)
    many = ManyTopologies(cluster, databases, topologies, nodes)
    with screen.step(f"{topologies} of them are written"):
        for _ in many.write(written):
            await asyncio.sleep(0)
    cluster.put(LEASES, _free_lease())
    await server.start()
    twin_lag, pace = LoopLag(), Pace()
    beside = [
        asyncio.create_task(_rows(many)),
        asyncio.create_task(twin_lag.run()),
        asyncio.create_task(pace.run()),
    ]
    began_s, take_over = time.monotonic(), TakeOver()
    operator = await OperatorProcess.start(server.kubeconfig(folder), redis, nodes, folder / "operator.log")
    try:
        with screen.step("the operator takes them over"):
            told = await operator.told()
            take_over.add(told, twin_lag.told_ms())
            while told["running"] < topologies:
                if time.monotonic() - began_s > START_WITHIN_S:
                    raise SystemExit(f"{told['running']} Topologies run after {START_WITHIN_S:.0f} s")
                await asyncio.sleep(1)
                told = await operator.told()
                take_over.add(told, twin_lag.told_ms())
                screen.tell(f"{told['running']} of them run")
            take_over.seconds = time.monotonic() - began_s
            rests_by_s = time.monotonic() + RESTS_WITHIN_S
            while told["resting"] < topologies and time.monotonic() < rests_by_s:
                await asyncio.sleep(1)
                told = await operator.told()
                take_over.add(told, twin_lag.told_ms())
                screen.tell(f"{told['resting']} of them rest")
            take_over.rests_s = time.monotonic() - began_s
        writes = len(cluster.calls)
        start = await operator.told()
        twin_lag.told_ms()
        pace.told()
        with screen.step("idle"):
            await asyncio.sleep(seconds)
            idle, idle_twin_ms, idle_pace = await operator.told(), twin_lag.told_ms(), pace.told()
            memory_mib = operator.memory_mib()
        idle_writes = len(cluster.calls) - writes
        with screen.step("changes"):
            changes = Changes(many, {})
            await changes.go_on(seconds)
            await asyncio.sleep(1)
            busy, busy_twin_ms, busy_pace = await operator.told(), twin_lag.told_ms(), pace.told()
        return {
            "take_over": {**take_over.figures(), "lease_late": start["lease_late"]},
            "idle": {**_figures(idle, idle_twin_ms), "machine": idle_pace, "writes": idle_writes},
            "changes": {**_figures(busy, busy_twin_ms), "machine": busy_pace, "done": changes.done},
            "lease_late": busy["lease_late"],
            "lease_renewals": busy["lease_renewals"],
            "memory_mib": round(memory_mib),
            "agent_streams": agent_streams(cluster, nodes),
        }
    finally:
        for one in beside:
            one.cancel()
        await operator.stop()
        await server.stop()


def agent_streams(cluster: MemoryCluster, nodes: int) -> dict[str, float]:
    """What each agent's one watch brings, and what of it names its store."""
    schedules = [cluster.held(SCHEDULES, name) for name in cluster.names(SCHEDULES)]
    named = sum(len(one["spec"]["stores"]) for one in schedules)
    return {"watches": 1, "schedules": len(schedules), "of_its_store": round(named / nodes, 1)}


def _free_lease() -> Object:
    """As a leader leaves it that was told to stop."""
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 1}
    return {"metadata": {"name": f"{CONFIG.fullname}-operator"}, "spec": spec}


def _lags(told: dict[str, Any], twin_ms: float) -> dict[str, float]:
    return {**told["lag_ms_max"], "twin": twin_ms}


def _figures(told: dict[str, Any], twin_lag_ms: float) -> dict[str, Any]:
    looks = told["turns"].get("topology", 0)
    return {
        "cpu_cores": round(told["cpu_s"] / told["seconds"], 3),
        "decisions_per_s": round(told["decisions"] / told["seconds"], 1),
        "looks_per_s": round(looks / told["seconds"], 1),
        "look_us_per_topology": round(1e6 * told["cpu_s"] / looks) if looks else 0,
        "turn_p50_ms": percentile(told["turn_ms"], 50),
        "turn_p99_ms": percentile(told["turn_ms"], 99),
        "taken_up": len(told["taken_up_ms"]),
        "taken_up_p50_ms": percentile(told["taken_up_ms"], 50),
        "taken_up_p99_ms": percentile(told["taken_up_ms"], 99),
        "stores_taken_up_p99_ms": percentile(told["stores_taken_up_ms"], 99),
        "lag_ms_max": _lags(told, twin_lag_ms),
    }


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    topologies = int(os.environ.get("BENCH_TOPOLOGIES", TOPOLOGIES_HERE))
    nodes = int(os.environ.get("BENCH_NODES", NODES_HERE))
    about = machine.description()
    with scratch("operator") as folder:
        found = asyncio.run(measure(Screen(5), topologies, nodes, seconds, folder))
    taken = {"lease_late", "memory_mib", "agent_streams"}
    result = {
        "bench": "operator",
        "topologies": topologies,
        "nodes": nodes,
        "operators": OPERATORS,
        "look_us_per_topology": found["idle"]["look_us_per_topology"],
        "turn_p99_ms": found["changes"]["taken_up_p99_ms"],
        "lease_late": found["lease_late"],
        "cpu_cores": found["idle"]["cpu_cores"],
        "memory_mib": found["memory_mib"],
        "agent_streams": found["agent_streams"],
        **{name: part for name, part in found.items() if name not in taken},
        "seconds": seconds,
        "machine": about,
    }
    table = Table(
        title=f"The operator, with {topologies} Topologies of {OPERATORS} operators on {nodes} nodes"
    )
    for column in ("", "idle", "changes"):
        table.add_column(column, justify="right")
    for name in found["idle"]:
        if name in found["changes"]:
            table.add_row(name, str(found["idle"][name]), str(found["changes"][name]))
    show(table, result)


if __name__ == "__main__":
    main()
