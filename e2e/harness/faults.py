"""Faults, as the tests make them happen: processes killed where they run, nodes stopped or filled, leaders
frozen.

Processes are found in their node's own process table, by the container that holds them, and only those are
signalled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.harness.cluster import Cluster
from e2e.harness.images import word_count_image
from e2e.harness.watching import Object


def kill_container(cluster: Cluster, pod: str, container: str, signal: str = "KILL") -> None:
    """Send a signal to the processes of a pod's container: kubelet starts killed ones again."""
    found = cluster.get("pods", pod)
    node = str(found["spec"]["nodeName"])
    (status,) = [each for each in found["status"]["containerStatuses"] if each["name"] == container]
    identity = str(status["containerID"]).rpartition("/")[2]
    processes = _processes(cluster, node, identity)
    assert processes, f"container {container} of {pod} runs no process on {node}"
    # The first one's end may take others along.
    each = f'for each; do kill -{signal} "$each" || [ ! -e "/proc/$each" ] || exit 1; done'
    cluster.docker("exec", node, "sh", "-c", each, "sh", *processes)


@contextmanager
def frozen(cluster: Cluster, pod: str, container: str) -> Iterator[None]:
    """Stop a container's processes where they stand, and let them go on afterwards."""
    kill_container(cluster, pod, container, "STOP")
    try:
        yield
    finally:
        kill_container(cluster, pod, container, "CONT")


def kill_pod(cluster: Cluster, pod: str) -> None:
    """Delete a pod without giving it time."""
    cluster.delete("pod", pod, "--grace-period=0", "--force")


def stop_node(cluster: Cluster, node: str) -> None:
    """End everything on a node at once."""
    cluster.docker("kill", node)


def start_node(cluster: Cluster, node: str, seconds: float = 120) -> None:
    """Start a node that was stopped, and wait until it is ready."""
    cluster.docker("start", node)
    cluster.wait_node(node, True, seconds)


@contextmanager
def cordoned(cluster: Cluster, node: str) -> Iterator[None]:
    cluster.kubectl("cordon", node)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", node)


@contextmanager
def tainted(cluster: Cluster, node: str, taint: str) -> Iterator[None]:
    """As an autoscaler does before it takes a node away: `key=value:Effect`."""
    cluster.kubectl("taint", "node", node, taint)
    try:
        yield
    finally:
        cluster.kubectl("taint", "node", node, f"{taint}-")


@contextmanager
def filled(cluster: Cluster, node: str, *, left_millis: int) -> Iterator[None]:
    """Have a pod ask for the CPU of a node that nobody has asked for, but so much of it; it does nothing."""
    asked = f"--field-selector=spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    pods = json.loads(cluster.kubectl("get", "pods", "--all-namespaces", asked, "--output=json"))["items"]
    containers = [each for pod in pods for each in pod["spec"]["containers"]]
    taken = sum(_millis(each.get("resources", {}).get("requests", {}).get("cpu", "0")) for each in containers)
    there = _millis(str(cluster.get("node", node)["status"]["allocatable"]["cpu"]))
    name = f"fills-{node}"
    cluster.apply(_sleeper(name, node, there - taken - left_millis))
    try:
        cluster.wait("pod", name, f"{name} runs", lambda pod: pod["status"].get("phase") == "Running", 30)
        yield
    finally:
        cluster.delete("pod", name, "--grace-period=0", "--force")


def _millis(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else round(float(cpu) * 1000)


def _sleeper(name: str, node: str, cpu_millis: int) -> Object:
    container = {
        "name": "sleeper",
        "image": word_count_image(),
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": f"{cpu_millis}m"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [container], "securityContext": security},
    }


def _processes(cluster: Cluster, node: str, container: str) -> list[str]:
    """The ids, in the node's table, of a container's processes."""
    shown: Object = json.loads(cluster.docker("exec", node, "crictl", "inspect", container))
    first = str(shown["info"]["pid"])
    listed = cluster.docker("exec", node, "ps", "-e", "-o", "pid=,ppid=")
    children: dict[str, list[str]] = {}
    for line in listed.splitlines():
        pid, parent = line.split()
        children.setdefault(parent, []).append(pid)
    family, rest = [], [first]
    while rest:
        pid = rest.pop()
        family.append(pid)
        rest += children.get(pid, [])
    return family
