"""The operator of `make bench-operator`, as a process of its own.

It is the product's replica, with its Kubernetes client and kopf's watches over HTTP. Only the way to the
stores is the bench's: all are databases of one redis-server.

Each line on stdin asks for what was counted since the last one; the answer is a line of JSON on stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.loop_lag import CollectorPauses, LoopLag
from bench.operator_cluster import Databases

from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.kubernetes_api.client import connect
from penstock_operator.cluster.kubernetes_api.loop_thread import LoopThread
from penstock_operator.cluster.kubernetes_api.watches import watch_by_kopf
from penstock_operator.cluster.main import SWITCH_INTERVAL_S, Replica, Surroundings
from worlds.operator_world import operator_config


@dataclass
class Counted:
    """Since it was last told."""

    turns: dict[str, int] = field(default_factory=dict)
    decisions: int = 0
    turn_s: list[float] = field(default_factory=list)
    of_topologies: list[float] = field(default_factory=list)
    """From when a change came in to the end of the turn that took it up, of Topologies' loops."""
    of_stores: list[float] = field(default_factory=list)
    """The same of the node stores' loop, which takes a turn each half second at most."""
    cpu_s: float = field(default_factory=time.process_time)
    at_s: float = field(default_factory=time.monotonic)


class RecordingMetrics(OperatorMetrics):
    """Keeps every figure as it is, beside the histograms."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = Counted()

    def turned(self, loop: str, seconds: float) -> None:
        super().turned(loop, seconds)
        self.counted.turns[loop] = self.counted.turns.get(loop, 0) + 1
        self.counted.turn_s.append(seconds)

    def decided(self) -> None:
        super().decided()
        self.counted.decisions += 1

    def taken_up(self, loop: str, seconds: float) -> None:
        super().taken_up(loop, seconds)
        of_loop = self.counted.of_topologies if loop == "topology" else self.counted.of_stores
        of_loop.append(seconds)


async def run(kubeconfig: str, databases: Databases, metrics_port: int) -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    config = operator_config(metrics_port)
    os.environ["KUBECONFIG"] = kubeconfig
    lease_runs = LoopThread("lease")
    around = Surroundings(
        cluster=await connect(config.namespace, kubeconfig),
        open_store=databases.open_at,
        open_wire=databases.wire_at,
        watch=watch_by_kopf,
        identity="bench",
        reporter="bench",
        lease_cluster=await lease_runs.run(connect(config.namespace, kubeconfig)),
        lease_runs=lease_runs,
    )
    replica = Replica(config, around)
    metrics = replica.metrics = RecordingMetrics()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    lags = {"turns": LoopLag(), "lease": LoopLag()}
    pauses = CollectorPauses()
    beside = [
        asyncio.create_task(lags["turns"].run()),
        asyncio.create_task(lease_runs.run(lags["lease"].run())),
        asyncio.create_task(_tell(replica, metrics, {**lags, "collector": pauses})),
    ]
    try:
        return await replica.run(stop)
    finally:
        for one in beside:
            one.cancel()
        await around.cluster.close()


async def _tell(
    replica: Replica, metrics: RecordingMetrics, lags: Mapping[str, LoopLag | CollectorPauses]
) -> None:
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        counted, metrics.counted = metrics.counted, Counted()
        told = {
            "seconds": metrics.counted.at_s - counted.at_s,
            "cpu_s": metrics.counted.cpu_s - counted.cpu_s,
            "turns": counted.turns,
            "turn_ms": sorted(round(1e3 * one, 2) for one in counted.turn_s),
            "taken_up_ms": sorted(round(1e3 * one, 2) for one in counted.of_topologies),
            "stores_taken_up_ms": sorted(round(1e3 * one, 2) for one in counted.of_stores),
            "decisions": counted.decisions,
            "running": replica.running(),
            "resting": replica.reconciler.resting() if replica.reconciler is not None else 0,
            "lag_ms_max": {name: lag.told_ms() for name, lag in lags.items()},
            "lease_late": replica.elector.late,
            "lease_renewals": replica.elector.renewals,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--redis", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--metrics-port", type=int, required=True)
    told = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    code = asyncio.run(run(told.kubeconfig, Databases(told.redis, told.nodes), told.metrics_port))
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
