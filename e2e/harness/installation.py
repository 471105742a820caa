"""The chart's release in the tests' namespace, and who is who in it.

Neighbours: `cluster` runs commands, `faults` does harm to what is found here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.harness.cluster import ROOT, Cluster, ready
from e2e.harness.watching import Object, wait_until

CHART = ROOT / "charts/penstock"
RELEASE = "penstock"
STORES = "app.kubernetes.io/component=node-store"
OPERATORS = "app.kubernetes.io/component=operator"
READY_S = 120.0
EMPTY_S = 30.0
_RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")
}  # fmt: skip
SMALL_VALUES: Mapping[str, str] = {
    "operator.resources.requests.cpu": "50m",
    "store.cpu": "50m",
    "store.memory": "512Mi",
    "store.size": "1Gi",
    "store.servers": "1",
    "store.auth.formerPasswordSeconds": "120",
    "agent.cpu": "50m",
    "images.pullPolicy": "Never",
    # Tests write Schedules where they ask what comes of it, as the kubeconfig's user.
    "schedules.alsoWrittenBy": "{kubernetes-admin}",
    # A test leaves nothing behind.
    "uninstall.deleteTopologies": "true",
    "store.keepVolumes": "false",
    "crds.keep": "false",
}
PROCESS_VALUES: Mapping[str, str] = {"store.durability": "Process"}
KEEPING_VALUES: Mapping[str, str] = {
    "uninstall.deleteTopologies": "false",
    "store.keepVolumes": "true",
    "crds.keep": "true",
}
"""The chart's own, which keep all that is somebody's at an uninstall."""
# Reads the store as its agent: the operator may not list keys.
_KEYS_OF = """
import os, sys, redis
password = open(os.environ["PENSTOCK_STORE_PASSWORD_FILE"]).read().strip()
store = redis.Redis(username="agent", password=password, socket_timeout=10)
found = sorted(key.decode(errors="replace") for key in store.scan_iter(match=f"*{sys.argv[1]}*", count=1000))
print("\\n".join(found))
"""


@dataclass(frozen=True)
class Installation:
    cluster: Cluster

    # --- helm ---------------------------------------------------------------------------------------

    def make_namespace(self) -> None:
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": self.cluster.namespace, "labels": _RESTRICTED},
            }
        )

    def install(
        self,
        chart: Path = CHART,
        values: Mapping[str, str] = {},
        *,
        small: Mapping[str, str] = SMALL_VALUES,
    ) -> None:
        """Install the chart, or upgrade to it, `small` and with `values`; wait until everything is ready."""
        settings = [f"--set={name}={value}" for name, value in {**small, **values}.items()]
        self.cluster.helm("upgrade", "--install", RELEASE, str(chart), *settings)
        self.wait_ready()

    def wait_ready(self, seconds: float = READY_S) -> None:
        self.cluster.kubectl(
            "rollout",
            "status",
            f"deployment/{RELEASE}-operator",
            f"--timeout={seconds:g}s",
            seconds=seconds + 10,
        )
        self.wait_stores(seconds)

    def wait_stores(self, seconds: float = READY_S, servers: int = 1) -> list[Object]:
        """Wait until each node has so many stores at the least, and all are ready; answers their pods."""
        nodes = self.cluster.worker_nodes
        return self.cluster.wait_all(
            "pods",
            STORES,
            f"the stores of {', '.join(nodes)} are ready",
            lambda pods: (
                all(sum(node_of(pod) == node for pod in pods) >= servers for node in nodes)
                and all(map(ready, pods))
            ),
            seconds,
        )

    def uninstall(self, seconds: float = 120) -> None:
        self.cluster.helm("uninstall", RELEASE, "--ignore-not-found", "--wait", seconds=seconds)

    def is_installed(self) -> bool:
        releases = json.loads(self.cluster.helm("list", "--output=json"))
        return any(each["name"] == RELEASE for each in releases)

    # --- who is who ---------------------------------------------------------------------------------

    def leader(self) -> str:
        """The start of an operator that leads: its pod's name, and what tells starts apart."""
        return str(self._lease()["spec"].get("holderIdentity", ""))

    def leading_pod(self) -> str:
        return self.leader().rpartition("_")[0]

    def term(self) -> int:
        return int(self._lease()["spec"]["leaseTransitions"])

    def _lease(self) -> Object:
        return self.cluster.get("lease", f"{RELEASE}-operator")

    def wait_other_leader(self, than: str, seconds: float = 60) -> None:
        """Wait until another start leads."""
        self.cluster.wait(
            "lease",
            f"{RELEASE}-operator",
            f"another leader than {than}",
            lambda lease: lease["spec"].get("holderIdentity", "") not in ("", than),
            seconds,
        )

    def store_pod(self, node: str) -> str:
        (pod,) = [each for each in self.cluster.all("pods", STORES) if node_of(each) == node]
        return str(pod["metadata"]["name"])

    def stores(self) -> list[str]:
        return sorted(self.cluster.names("pods", STORES))

    def store_keys(self, part: str) -> dict[str, list[str]]:
        """Store pod -> the keys with `part` in their names."""
        return {
            pod: self.cluster.execute(pod, "agent", "python", "-c", _KEYS_OF, part).split()
            for pod in self.stores()
        }

    def wait_without(self, topology_uid: str) -> None:
        """Wait until the stores hold nothing of the topology with this state."""
        wait_until(
            f"no store holds keys of {topology_uid}",
            lambda: not any(self.store_keys(topology_uid).values()),
            EMPTY_S,
            every_s=1,
        )

    # --- metrics ------------------------------------------------------------------------------------

    def metrics(self, pod: str, port: int) -> str:
        """What a pod says on /metrics, read through the API server."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods/{pod}:{port}/proxy/metrics"
        return self.cluster.kubectl("get", f"--raw={path}")

    def values(self) -> Object:
        loaded: Object = json.loads(self.cluster.helm("get", "values", RELEASE, "--output=json"))
        return loaded


def node_of(pod: Object) -> str:
    """The node that a pod is on, or pinned to."""
    return str(pod["metadata"]["labels"].get("penstock.dev/node") or pod["spec"].get("nodeName", ""))
