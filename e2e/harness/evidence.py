"""What a failed test leaves for whoever looks into it: objects, events, logs, and the stores' figures.

Never Secrets, and no data of topologies: of the stores only counts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from e2e.harness.cluster import Cluster, ready
from e2e.harness.commands import CommandFailed

KINDS = (
    "topologies,latencyslas,schedules,pods,statefulsets,deployments,jobs,configmaps,poddisruptionbudgets,"
    "persistentvolumeclaims,services,endpointslices,leases,networkpolicies"
)
DESCRIBED = "topologies,latencyslas,schedules,pods,statefulsets,jobs"
LOG_LINES = 3000
TOLD_LINES = 15
"""So much of a log is told where only a run's output is left."""
# Counts alone: how many keys there are of each kind, and the server's own figures.
_FIGURES = """
import collections, os, redis
password = open(os.environ["PENSTOCK_STORE_PASSWORD_FILE"]).read().strip()
store = redis.Redis(username="agent", password=password, socket_timeout=5)
for part in ("server", "persistence", "memory", "stats", "clients"):
    for name, value in sorted(store.info(part).items()):
        print(part, name, value)
kinds = collections.Counter(":".join(key.decode(errors="replace").split(":")[:3])
                            for key in store.scan_iter(count=1000))
for kind, count in sorted(kinds.items()):
    print("keys", kind, count)
"""


def gather(cluster: Cluster, folder: Path) -> None:
    """Write everything that is known into a folder; what cannot be had is said in its place."""
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, ask: Callable[..., str], *arguments: str) -> None:
        (folder / name).write_text(_told(ask, *arguments), encoding="utf-8")

    keep("objects.txt", cluster.kubectl, "get", KINDS, "--output=wide")
    keep("objects.yaml", cluster.kubectl, "get", "topologies,latencyslas,schedules,pods", "--output=yaml")
    keep("described.txt", cluster.kubectl, "describe", DESCRIBED)
    keep("events.txt", cluster.kubectl, "get", "events", "--sort-by=.lastTimestamp")
    keep("nodes.txt", cluster.kubectl, "describe", "nodes")
    try:
        pods = cluster.all("pods")
    except (CommandFailed, subprocess.TimeoutExpired):
        return
    for pod in pods:
        name = pod["metadata"]["name"]
        for status in pod.get("status", {}).get("containerStatuses", []):
            asked = _log_of(name, status["name"], LOG_LINES)
            keep(f"{name}.{status['name']}.log", cluster.kubectl, *asked)
            if status["restartCount"]:
                keep(f"{name}.{status['name']}.previous.log", cluster.kubectl, *asked, "--previous")
        if pod["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "node-store":
            keep(f"{name}.figures.txt", cluster.execute, name, "agent", "python", "-c", _FIGURES)


def unready_in_short(cluster: Cluster) -> str:
    """The end of what the containers of pods say that are not ready: what a test waited for in vain."""
    try:
        unready = [pod for pod in cluster.all("pods") if not ready(pod)]
    except (CommandFailed, subprocess.TimeoutExpired) as failed:
        return f"not to be had: {failed}"
    told = []
    for pod in unready:
        name = pod["metadata"]["name"]
        for status in pod.get("status", {}).get("containerStatuses", []):
            text = _told(cluster.kubectl, *_log_of(name, status["name"], TOLD_LINES))
            told.append(f"{name}, {status['name']}, started {status['restartCount'] + 1} times:\n{text}")
    return "\n".join(told) or "every pod is ready"


def _log_of(pod: str, container: str, lines: int) -> tuple[str, ...]:
    """What kubectl is asked for the end of a container's log."""
    return ("logs", pod, f"--container={container}", f"--tail={lines}", "--timestamps")


def _told(ask: Callable[..., str], *arguments: str) -> str:
    """The answer; in its place why there is none."""
    try:
        return ask(*arguments)
    except (CommandFailed, subprocess.TimeoutExpired) as failed:
        return f"not to be had: {failed}\n"
