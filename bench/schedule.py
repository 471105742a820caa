"""`make bench-schedule`: how fast a decision becomes work on a real cluster, and what the control side costs.

Four figures, on the kind cluster of the end-to-end tests:

- patch to commit: from the patch of a Schedule that gives a shard to a worker on the other node (its home
  moves with it) until that worker's first commit to it, of a topology whose state outlives processes, and of
  one whose state outlives the machine: each write is on its node's disk before it is answered. There is no
  operator meanwhile: the patches are ours.
- apply to output, cold: from `kubectl apply` of a Topology to the first row in its sink.
- apply to output, warm: from `kubectl apply` that asks for one more worker, with a spare one there, to the
  first commit of that worker.
- operator and agent, CPU and memory: idle, and with 50 Topologies whose workers do nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import machine, schedule_moves
from bench.commit_watch import CommitWatch
from bench.screen import Screen, seconds_per_figure, show
from rich.table import Table

from e2e.harness.cluster import ROOT, Cluster, ready
from e2e.harness.commands import CommandFailed
from e2e.harness.images import version
from e2e.harness.installation import Installation, node_of
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import Running, Sizes, example, share, sized
from e2e.harness.watching import NotReached, wait_until

NAMESPACE = "penstock-bench"
SHARDS = 4
RECORDS_PER_SECOND = 400
DURABILITIES = ("Process", "Disk")
TOPOLOGIES = 50
SECONDS = 30.0
MIB = 1 << 20
SETTLE_S = 10.0
START_S = 90.0
MANY_START_S = 400.0
IDLE_WORKER = f"penstock-idle-worker:{version()}"


# --- from apply to output ----------------------------------------------------------------------------


def cold_start(cluster: Cluster, shared: SharedFolder) -> float:
    """Seconds from `kubectl apply` of a Topology to the first row in its sink."""
    made = counting(cluster, shared, "cold")
    began_s = time.monotonic()
    with topology(cluster, made) as running:
        running.wait_rows(seconds=START_S)
        return time.monotonic() - began_s


def warm_start(cluster: Cluster, installation: Installation, shared: SharedFolder) -> float:
    """Seconds from `kubectl apply` that asks for a second worker to that worker's first commit."""
    made = counting(cluster, shared, "warm")
    workers = made.manifest["spec"]["workers"]
    made.manifest["spec"]["workers"] = {**workers, "min": 1, "max": 1, "warm": 1}
    with topology(cluster, made) as running:
        pods = running.wait_workers(2)
        running.wait_rows(seconds=START_S)
        busy = {each["worker"] for found in running.schedules() for each in found["spec"]["executors"]}
        (spare,) = [pod for pod in pods if pod["metadata"]["name"] not in busy]
        uid = running.state_uid()
        shards = [f"count/{number}" for number in range(SHARDS)]
        with CommitWatch.beside(cluster, installation.store_pod(node_of(spare)), uid) as watch:
            made.manifest["spec"]["workers"] = {**workers, "min": 2, "max": 2, "warm": 0}
            watch.ask(shards, str(spare["metadata"]["name"]))
            began_s = time.time()
            cluster.apply(made.manifest)
            return watch.answer()["committed"] - began_s


def counting(cluster: Cluster, shared: SharedFolder, name: str, durability: str = "Process") -> Running:
    """The zipf calculator with even keys and no work: each shard has a record every few milliseconds."""
    sizes = Sizes(task_cpu="250m", cores_min="1", cores_max="2", durability=durability)
    manifest = share(sized(example("zipf-calculator"), name, sizes), ("out", "/app/out"))
    spec = manifest["spec"]
    spec["code"] = {"configMap": "bench-code"}
    generator, calculator, totals = spec["operators"]
    generator["source"]["zipf"] |= {
        "exponent": 0.0,
        "serviceTime": "0s",
        "recordBytes": 8,
        "ratePerSecond": RECORDS_PER_SECOND,
        "shufflesPerMinute": 0,
    }
    calculator |= {"name": "count", "shards": SHARDS}
    totals["inputs"] = ["count"]
    totals["sink"]["files"]["path"] = "/app/out"
    return Running(cluster, manifest, shared.fresh(name))


@contextmanager
def topology(cluster: Cluster, running: Running) -> Iterator[Running]:
    cluster.apply(running.manifest)
    try:
        yield running
    finally:
        running.delete()
        running.wait_gone()


def moves_between_nodes(
    cluster: Cluster, installation: Installation, shared: SharedFolder, screen: Screen, durability: str
) -> list[schedule_moves.Stages]:
    made = counting(cluster, shared, f"moved-{durability.lower()}", durability)
    with topology(cluster, made) as running:
        screen.tell("starting")
        running.wait_workers(2)
        running.wait_rows(seconds=START_S)
        return schedule_moves.patch_to_commit(cluster, installation, running, screen)


# --- what the control side costs -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one container: share of a core, and memory that cannot be given back."""

    cpu_percent: float
    memory_mib: float


def costs(cluster: Cluster, installation: Installation, seconds: float) -> tuple[Cost, Cost]:
    """(the leading operator, the agent that costs most)."""
    began_s = time.monotonic()
    before = usages(cluster)
    time.sleep(seconds)
    after = usages(cluster)
    took_s = time.monotonic() - began_s
    found = {
        key: Cost(100 * (after[key][0] - before[key][0]) / 1e9 / took_s, after[key][1] / MIB)
        for key in before.keys() & after.keys()
    }
    agents = [cost for (_, container), cost in found.items() if container == "agent"]
    return found[installation.leading_pod(), "operator"], max(agents, key=lambda cost: cost.memory_mib)


def usages(cluster: Cluster) -> dict[tuple[str, str], tuple[int, int]]:
    """(pod, container) -> (nanoseconds of CPU, bytes) of the namespace's containers."""
    found = {}
    for node in cluster.worker_nodes:
        for each in json.loads(cluster.docker("exec", node, "crictl", "stats", "--output=json"))["stats"]:
            labels = each["attributes"]["labels"]
            if labels["io.kubernetes.pod.namespace"] == cluster.namespace:
                key = (labels["io.kubernetes.pod.name"], labels["io.kubernetes.container.name"])
                found[key] = (
                    int(each["cpu"]["usageCoreNanoSeconds"]["value"]),
                    int(each["memory"]["workingSetBytes"]["value"]),
                )
    return found


@contextmanager
def many_topologies(cluster: Cluster, screen: Screen) -> Iterator[None]:
    build_idle_worker(cluster)
    sizes = Sizes(workers=1, task_cpu="10m", cores_min="10m", cores_max="20m", memory="256Mi", tasks=1)
    made = []
    for number in range(TOPOLOGIES):
        manifest = sized(example("zipf-calculator"), f"idle-{number}", sizes)
        manifest["spec"] |= {"code": {"configMap": "bench-code"}, "image": IDLE_WORKER}
        made.append(manifest)
    names = [manifest["metadata"]["name"] for manifest in made]
    cluster.apply(*made)
    try:
        screen.tell("waiting for the workers")
        cluster.wait_all(
            "pods",
            "app.kubernetes.io/component=worker",
            f"{TOPOLOGIES} workers are ready",
            lambda pods: len(pods) == TOPOLOGIES and all(map(ready, pods)),
            MANY_START_S,
        )
        wait_until(
            "every topology has its Schedules",
            lambda: len(cluster.names("schedules")) == 2 * TOPOLOGIES,
            MANY_START_S,
            every_s=2,
        )
        yield
    finally:
        cluster.delete("topology", *names)
        cluster.wait_all(
            "pods", "app.kubernetes.io/component=worker", "no worker is left", lambda pods: not pods, START_S
        )


def build_idle_worker(cluster: Cluster) -> None:
    cluster.docker(
        "build",
        f"--tag={IDLE_WORKER}",
        f"--build-arg=OPERATOR_IMAGE=penstock-operator:{version()}",
        str(Path(__file__).with_name("idle_worker")),
    )
    cluster.environment.run(str(ROOT / "e2e/cluster/load_images.sh"), IDLE_WORKER, seconds=300)


def stage_rows(until_ms: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str, str]]:
    return [
        (
            f"  until {stage}: p50, p99, the slowest tenth's p50",
            " ".join(f"{ms:.0f}" for ms in its_ms.values()),
            "",
        )
        for stage, its_ms in until_ms.items()
    ]


# --- all of it -----------------------------------------------------------------------------------------


def main() -> None:
    """Measure, show, and print the result as the last line."""
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(6)
    cluster = Cluster.found(NAMESPACE)
    installation = Installation(cluster)
    with screen.step("installing"):
        installation.make_namespace()
        installation.install()
        shared = SharedFolder.made(cluster)
        code = (ROOT / "examples/zipf-calculator/zipf_calculator.py").read_text(encoding="utf-8")
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "bench-code"},
                "data": {"zipf_calculator.py": code},
            }
        )
    try:
        with screen.step("operator and agents, idle"):
            time.sleep(SETTLE_S)
            idle = costs(cluster, installation, seconds)
        with screen.step("from apply to output"):
            cold_s = cold_start(cluster, shared)
            warm_s = warm_start(cluster, installation, shared)
            screen.note(f"cold {cold_s:.1f} s, warm {warm_s:.1f} s")
        until_ms = {}
        for durability in DURABILITIES:
            with screen.step(f"from patch to commit, durability {durability}"):
                moves = moves_between_nodes(cluster, installation, shared, screen, durability)
                until_ms[durability] = schedule_moves.until_ms(moves)
                screen.note("moves, in ms: " + " ".join(f"{stages['committed']:.0f}" for stages in moves))
        many = screen.step(f"operator and agents with {TOPOLOGIES} topologies")
        with many, many_topologies(cluster, screen):
            time.sleep(SETTLE_S)
            busy = costs(cluster, installation, seconds)
    finally:
        installation.uninstall()
        shared.forget(cluster)
    commit_ms, on_disk_ms = (until_ms[durability]["committed"] for durability in DURABILITIES)
    result = {
        "bench": "schedule",
        "patch_to_commit_ms": {name: commit_ms[name] for name in ("p50", "p99")},
        "patch_to_commit_on_disk_ms": {name: on_disk_ms[name] for name in ("p50", "p99")},
        "patch_until_ms": until_ms["Process"],
        "patch_until_on_disk_ms": until_ms["Disk"],
        "apply_to_output_s": {"warm": round(warm_s, 2), "cold": round(cold_s, 2)},
        "operator_mib": round(busy[0].memory_mib, 1),
        "agent_mib": round(busy[1].memory_mib, 1),
        "operator_idle_mib": round(idle[0].memory_mib, 1),
        "agent_idle_mib": round(idle[1].memory_mib, 1),
        "operator_cpu_percent": [round(cost[0].cpu_percent, 1) for cost in (idle, busy)],
        "agent_cpu_percent": [round(cost[1].cpu_percent, 1) for cost in (idle, busy)],
        "topologies": TOPOLOGIES,
        "moves": len(moves),
        "seconds": seconds,
        "machine": machine.description(),
    }
    table = Table(title="From decision to work, on a kind cluster")
    for heading in ("figure", "value", "to reach"):
        table.add_column(heading)
    for row in (
        ("patch of a Schedule to the new owner's first commit, p50", f"{commit_ms['p50']:.0f} ms", "50 ms"),
        ("the same, p99", f"{commit_ms['p99']:.0f} ms", "200 ms"),
        *stage_rows(until_ms["Process"]),
        ("with durability Disk: p50, p99", f"{on_disk_ms['p50']:.0f} ms, {on_disk_ms['p99']:.0f} ms", ""),
        *stage_rows(until_ms["Disk"]),
        ("apply to the first output, cold", f"{cold_s:.1f} s", "15 s"),
        ("apply to a spare worker's first commit", f"{warm_s:.1f} s", ""),
        ("operator, idle", f"{idle[0].memory_mib:.0f} MiB, {idle[0].cpu_percent:.1f}% of a core", ""),
        (
            f"operator, {TOPOLOGIES} topologies",
            f"{busy[0].memory_mib:.0f} MiB, {busy[0].cpu_percent:.1f}%",
            "256 MiB",
        ),
        ("agent, idle", f"{idle[1].memory_mib:.0f} MiB, {idle[1].cpu_percent:.1f}%", ""),
        (f"agent, {TOPOLOGIES} topologies", f"{busy[1].memory_mib:.0f} MiB, {busy[1].cpu_percent:.1f}%", ""),
    ):
        table.add_row(*row)
    show(table, result)


if __name__ == "__main__":
    try:
        main()
    except (CommandFailed, NotReached) as error:
        sys.exit(f"bench-schedule: {error}")
