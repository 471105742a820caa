"""`make bench-schedule`: how fast a decision becomes work on a real cluster, and what the control side costs.

Four figures, on the kind cluster of the end-to-end tests:

- patch to commit: from the patch of a Schedule that gives a shard to a worker on the other node (its home
  moves with it) until that worker's first commit to it. There is no operator meanwhile: the patches are ours.
- apply to output, cold: from `kubectl apply` of a Topology to the first row in its sink.
- apply to output, warm: from `kubectl apply` that asks for one more worker, with a spare one there, to the
  first commit of that worker.
- operator and agent, CPU and memory: idle, and with 50 Topologies whose workers do nothing.
"""

from __future__ import annotations

import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import machine
from bench.screen import Screen, seconds_per_figure, show
from rich.table import Table

from e2e.harness.cluster import ROOT, Cluster, ready
from e2e.harness.commands import CommandFailed
from e2e.harness.images import version
from e2e.harness.installation import DISK_VALUES, OPERATORS, RELEASE, Installation, node_of
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import Running, Sizes, example, share, sized
from e2e.harness.watching import NotReached, Object, wait_until
from penstock.api.schedule_object import from_object, owner_of, to_spec
from penstock.schedule.record import OperatorSchedule, ShardPlace

NAMESPACE = "penstock-bench"
MOVES = 60
SHARDS = 4
RECORDS_PER_SECOND = 400
TOPOLOGIES = 50
SECONDS = 30.0
MIB = 1 << 20
SETTLE_S = 10.0
START_S = 90.0
MANY_START_S = 400.0
IDLE_WORKER = f"penstock-idle-worker:{version()}"


# --- from patch to commit -------------------------------------------------------------------------


class Conflict(Exception):
    """Somebody else wrote in between."""


class ApiServer:
    """The API server through `kubectl proxy`, on one connection: a patch costs no start of a program."""

    def __init__(self, connection: http.client.HTTPConnection, namespace: str) -> None:
        self._connection = connection
        self._path = f"/apis/penstock.dev/v1alpha1/namespaces/{namespace}/schedules"

    @classmethod
    @contextmanager
    def reached(cls, cluster: Cluster) -> Iterator[ApiServer]:
        process = cluster.environment.start("kubectl", "proxy", "--port=0")
        try:
            assert process.stdout is not None
            found = re.search(rb"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found is not None
            yield cls(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30), cluster.namespace)
        finally:
            process.terminate()
            process.wait()

    def schedule(self, name: str) -> Object:
        return self._ask("GET", name)

    def write(self, name: str, spec: Object, resource_version: str) -> None:
        change = {"metadata": {"resourceVersion": resource_version}, "spec": spec}
        self._ask("PATCH", name, json.dumps(change), {"Content-Type": "application/merge-patch+json"})

    def _ask(
        self, method: str, name: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Object:
        self._connection.request(method, f"{self._path}/{name}", body, dict(headers or {}))
        answer = self._connection.getresponse()
        found: Object = json.loads(answer.read())
        if answer.status == http.client.CONFLICT:
            raise Conflict
        if answer.status != http.client.OK:
            raise RuntimeError(f"the API server answered {answer.status}: {found.get('message')}")
        return found


class CommitWatch:
    """`first_commits` in the agent's container of one store."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def beside(cls, cluster: Cluster, pod: str, uid: str) -> Iterator[CommitWatch]:
        script = Path(__file__).with_name("first_commits.py").read_text(encoding="utf-8")
        command = ["kubectl", f"--namespace={cluster.namespace}", "exec", "--stdin", pod, "--container=agent"]
        process = subprocess.Popen(
            [*command, "--", "python", "-c", script, uid],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(cluster.environment.variables),
        )
        try:
            watch = cls(process)
            assert watch._line() == "ready"
            yield watch
        finally:
            process.kill()
            process.wait()

    def ask(self, shards: list[str], worker: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"shards": shards, "worker": worker}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> float:
        """When the commit was seen, in seconds since 1970."""
        found = json.loads(self._line())
        if found is None:
            raise RuntimeError("the worker committed nothing in time")
        return float(found)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def patch_to_commit(
    cluster: Cluster, installation: Installation, shared: SharedFolder, screen: Screen
) -> list[float]:
    """Milliseconds of each move."""
    with topology(cluster, counting(cluster, shared, "moved")) as running, ExitStack() as stack:
        screen.tell("starting")
        running.wait_workers(2)
        running.wait_rows(seconds=START_S)
        with no_operator(cluster, installation):
            uid = str(running.schedules()[0]["spec"]["topologyUid"])
            api = stack.enter_context(ApiServer.reached(cluster))
            watches = {
                node: stack.enter_context(CommitWatch.beside(cluster, installation.store_pod(node), uid))
                for node in cluster.worker_nodes
            }
            (name,) = [
                each["metadata"]["name"]
                for each in running.schedules()
                if each["spec"]["operator"] == "count"
            ]
            took_ms = []
            for number in range(MOVES):
                screen.tell(f"move {number + 1} of {MOVES}")
                took_ms.append(one_move(api, name, watches, number))
        return took_ms


def one_move(api: ApiServer, name: str, watches: Mapping[str, CommitWatch], number: int) -> float:
    """Milliseconds from the write that is taken; agents write the object's status meanwhile."""
    found = api.schedule(name)
    schedule = from_object(found)
    shard = sorted(schedule.shards)[number % len(schedule.shards)]
    target = other_executor(schedule, shard)
    node = {worker.name: worker.node for worker in schedule.workers}[target.worker]
    shards = {**schedule.shards, shard: ShardPlace(target.name, node)}
    changed = replace(schedule, version=schedule.version + 1, shards=shards)
    owner = owner_of(found)
    spec = to_spec(changed, owner.topology, owner.topology_uid, owner.store_memory_bytes, owner.durability)
    watches[node].ask([shard], target.worker)
    while True:
        began_s = time.time()
        try:
            api.write(name, spec, found["metadata"]["resourceVersion"])
        except Conflict:
            found = api.schedule(name)
        else:
            return (watches[node].answer() - began_s) * 1000


def other_executor(schedule: OperatorSchedule, shard: str) -> Any:
    """An executor on another node than the shard's, with a task."""
    nodes = {worker.name: worker.node for worker in schedule.workers}
    home = schedule.shards[shard].home
    return next(each for each in schedule.executors if each.tasks and nodes[each.worker] != home)


@contextmanager
def no_operator(cluster: Cluster, installation: Installation) -> Iterator[None]:
    deployment = f"deployment/{RELEASE}-operator"
    cluster.kubectl("scale", deployment, "--replicas=0")
    cluster.wait_all("pods", OPERATORS, "no operator is left", lambda pods: not pods, START_S)
    try:
        yield
    finally:
        cluster.kubectl("scale", deployment, "--replicas=2")
        installation.wait_ready()


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
            return watch.answer() - began_s


def counting(cluster: Cluster, shared: SharedFolder, name: str) -> Running:
    """The zipf calculator with even keys and no work: each shard has a record every few milliseconds."""
    manifest = share(
        sized(example("zipf-calculator"), name, Sizes(task_cpu="250m", cores_min="1", cores_max="2")),
        ("out", "/app/out"),
    )
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


# --- all of it -----------------------------------------------------------------------------------------


def main() -> None:
    """Measure, show, and print the result as the last line."""
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(5)
    cluster = Cluster.found(NAMESPACE)
    installation = Installation(cluster)
    with screen.step("installing"):
        installation.make_namespace()
        installation.install(values=DISK_VALUES)
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
        with screen.step("from patch to commit"):
            moves_ms = patch_to_commit(cluster, installation, shared, screen)
            screen.note(f"moves, in ms: {' '.join(f'{took:.0f}' for took in moves_ms)}")
        many = screen.step(f"operator and agents with {TOPOLOGIES} topologies")
        with many, many_topologies(cluster, screen):
            time.sleep(SETTLE_S)
            busy = costs(cluster, installation, seconds)
    finally:
        installation.uninstall()
        shared.forget(cluster)
    percentiles = statistics.quantiles(moves_ms, n=100)
    result = {
        "bench": "schedule",
        "patch_to_commit_ms": {"p50": round(percentiles[49], 1), "p99": round(percentiles[98], 1)},
        "apply_to_output_s": {"warm": round(warm_s, 2), "cold": round(cold_s, 2)},
        "operator_mib": round(busy[0].memory_mib, 1),
        "agent_mib": round(busy[1].memory_mib, 1),
        "operator_idle_mib": round(idle[0].memory_mib, 1),
        "agent_idle_mib": round(idle[1].memory_mib, 1),
        "operator_cpu_percent": [round(cost[0].cpu_percent, 1) for cost in (idle, busy)],
        "agent_cpu_percent": [round(cost[1].cpu_percent, 1) for cost in (idle, busy)],
        "topologies": TOPOLOGIES,
        "moves": MOVES,
        "seconds": seconds,
        "machine": machine.description(),
    }
    table = Table(title="From decision to work, on a kind cluster")
    for heading in ("figure", "value", "to reach"):
        table.add_column(heading)
    for row in (
        ("patch of a Schedule to the new owner's first commit, p50", f"{percentiles[49]:.0f} ms", "50 ms"),
        ("the same, p99", f"{percentiles[98]:.0f} ms", "200 ms"),
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
