"""From the patch of a Schedule to the new owner's first commit on the other node, and where the time goes.

Neighbours: `schedule` runs it beside its other figures, `first_commits` sees the parts in the target's store.
"""

from __future__ import annotations

import http.client
import json
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from bench.commit_gaps import p99
from bench.commit_watch import CommitWatch
from bench.first_commits import FACTS, PARTS
from bench.screen import Screen

from e2e.harness.cluster import Cluster
from e2e.harness.installation import OPERATORS, RELEASE, Installation
from e2e.harness.topologies import Running
from e2e.harness.watching import Object
from penstock.api.schedule_object import from_object, owner_of, to_spec
from penstock.schedule.record import OperatorSchedule, ShardPlace

MOVES = 200
PAUSE_S = 0.2
"""After a move: its agents drop the old copy and report, which is not the next one's time."""
GONE_S = 90.0
STAGES = ("written", *FACTS, *PARTS)
"""What a move has behind it: first the API server's answer to the patch."""
SLOW = 0.1

Stages = Mapping[str, float]
"""Stage -> milliseconds from the patch until it was seen."""


def until_ms(moves: Sequence[Stages]) -> dict[str, dict[str, float]]:
    """Of each stage p50 and p99, and its median over the slowest tenth of the moves."""
    slowest = sorted(moves, key=lambda stages: stages[PARTS[-1]])[-max(1, round(SLOW * len(moves))) :]
    return {
        stage: {
            "p50": round(statistics.median(stages[stage] for stages in moves), 1),
            "p99": round(p99([stages[stage] for stages in moves]), 1),
            "slowest_tenth": round(statistics.median(stages[stage] for stages in slowest), 1),
        }
        for stage in STAGES
    }


def patch_to_commit(
    cluster: Cluster, installation: Installation, running: Running, screen: Screen
) -> list[Stages]:
    """The stages of each move; "committed" is the figure."""
    with ExitStack() as stack:
        stack.enter_context(no_operator(cluster, installation))
        uid = str(running.schedules()[0]["spec"]["topologyUid"])
        api = stack.enter_context(ApiServer.reached(cluster))
        watches = {
            node: stack.enter_context(CommitWatch.beside(cluster, installation.store_pod(node), uid))
            for node in cluster.worker_nodes
        }
        (name,) = [
            each["metadata"]["name"] for each in running.schedules() if each["spec"]["operator"] == "count"
        ]
        moves = []
        for number in range(MOVES):
            screen.tell(f"move {number + 1} of {MOVES}")
            moves.append(one_move(api, name, watches, number))
            time.sleep(PAUSE_S)
        return moves


def one_move(api: ApiServer, name: str, watches: Mapping[str, CommitWatch], number: int) -> Stages:
    """Counted from the write that is taken; agents write the object's status meanwhile."""
    found = api.schedule(name)
    schedule = from_object(found)
    shard = sorted(schedule.shards)[number % len(schedule.shards)]
    target = other_executor(schedule, shard)
    node = {worker.name: worker.node for worker in schedule.workers}[target.worker]
    shards = {**schedule.shards, shard: ShardPlace(target.name, node)}
    changed = replace(schedule, version=schedule.version + 1, shards=shards)
    owner = owner_of(found)
    spec = to_spec(changed, owner.topology, owner.topology_uid, owner.store_memory_bytes, owner.durability)
    watches[node].ask([shard], target.worker, executor=target.name, version=changed.version)
    while True:
        began_s = time.time()
        try:
            api.write(name, spec, found["metadata"]["resourceVersion"])
        except Conflict:
            found = api.schedule(name)
        else:
            seen_s = {"written": time.time(), **watches[node].answer()}
            # a mapping that was written after the commit is one that the task did not have to wait for
            return {stage: (seen_s.get(stage, seen_s[PARTS[-1]]) - began_s) * 1000 for stage in STAGES}


def other_executor(schedule: OperatorSchedule, shard: str) -> Any:
    """An executor on another node than the shard's, with a task."""
    nodes = {worker.name: worker.node for worker in schedule.workers}
    home = schedule.shards[shard].home
    return next(each for each in schedule.executors if each.tasks and nodes[each.worker] != home)


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


@contextmanager
def no_operator(cluster: Cluster, installation: Installation) -> Iterator[None]:
    deployment = f"deployment/{RELEASE}-operator"
    cluster.kubectl("scale", deployment, "--replicas=0")
    cluster.wait_all("pods", OPERATORS, "no operator is left", lambda pods: not pods, GONE_S)
    try:
        yield
    finally:
        cluster.kubectl("scale", deployment, "--replicas=2")
        installation.wait_ready()
