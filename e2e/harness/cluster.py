"""The cluster of the tests: kubectl, helm and docker, with what `e2e/cluster/env.sh` says.

Neighbours: `watching` waits, `installation` knows the chart's release, `topologies` what is applied.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from e2e.harness.commands import CommandFailed, Environment
from e2e.harness.watching import Object, recording, watch_until

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Cluster:
    """One namespace of the cluster. Methods that name no namespace work in it."""

    environment: Environment
    namespace: str

    @classmethod
    def found(cls, namespace: str) -> Cluster:
        """The cluster that `make kind-up` brought up."""
        printed = subprocess.run(
            [ROOT / "e2e/cluster/env.sh"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
        variables = dict(line.split("=", 1) for line in printed.splitlines())
        return cls(Environment({**os.environ, **variables}), namespace)

    # --- programs -----------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, feed: str | None = None, seconds: float = 60) -> str:
        command = ("kubectl", f"--namespace={self.namespace}", *arguments)
        return self.environment.run(*command, feed=feed, seconds=seconds)

    def helm(self, *arguments: str, seconds: float = 180) -> str:
        return self.environment.run("helm", f"--namespace={self.namespace}", *arguments, seconds=seconds)

    def docker(self, *arguments: str, seconds: float = 120) -> str:
        return self.environment.run("docker", *arguments, seconds=seconds)

    def execute(self, pod: str, container: str, *command: str, seconds: float = 30) -> str:
        """Run a command in a pod's container."""
        return self.kubectl("exec", pod, f"--container={container}", "--", *command, seconds=seconds)

    # --- objects ------------------------------------------------------------------------------------

    def apply(self, *manifests: Object) -> None:
        self.kubectl("apply", "--filename=-", feed=yaml.safe_dump_all(manifests, sort_keys=False))

    def refusal(self, manifest: Object) -> str:
        """What the API server says against a manifest. AssertionError where it takes it."""
        try:
            self.apply(manifest)
        except CommandFailed as refused:
            return refused.errors
        raise AssertionError(f"the API server took {manifest['kind']} {manifest['metadata']['name']}")

    def patch(self, kind: str, name: str, change: Object) -> None:
        self.kubectl("patch", kind, name, "--type=merge", f"--patch={json.dumps(change)}")

    def delete(self, kind: str, *names: str, wait: bool = False, seconds: float = 90) -> None:
        self.kubectl("delete", kind, *names, "--ignore-not-found", f"--wait={wait}".lower(), seconds=seconds)

    def get(self, kind: str, name: str) -> Object:
        """One object. AssertionError where there is none."""
        text = self.kubectl("get", kind, name, "--ignore-not-found", "--output=json")
        assert text.strip(), f"there is no {kind} {name} in namespace {self.namespace}"
        found: Object = json.loads(text)
        return found

    def all(self, kind: str, selector: str = "") -> list[Object]:
        found: list[Object] = json.loads(
            self.kubectl("get", kind, f"--selector={selector}", "--output=json")
        )["items"]
        return found

    def names(self, kind: str, selector: str = "") -> set[str]:
        return {each["metadata"]["name"] for each in self.all(kind, selector)}

    # --- waiting ------------------------------------------------------------------------------------

    def wait(
        self, kind: str, name: str, what: str, found: Callable[[Object], bool], seconds: float
    ) -> Object:
        """Wait until an object is so."""
        arguments = (f"--namespace={self.namespace}", kind, f"--field-selector=metadata.name={name}")
        objects = watch_until(
            self.environment, arguments, what, lambda seen: bool(seen) and found(seen[0]), seconds
        )
        return objects[0]

    def wait_all(
        self, kind: str, selector: str, what: str, found: Callable[[list[Object]], bool], seconds: float
    ) -> list[Object]:
        """Wait until the objects with these labels are so."""
        arguments = (f"--namespace={self.namespace}", kind, f"--selector={selector}")
        return watch_until(self.environment, arguments, what, found, seconds)

    def recording(self, kind: str, selector: str) -> AbstractContextManager[list[Object]]:
        """All states that the objects with these labels go through while the block lasts, as they come."""
        return recording(self.environment, (f"--namespace={self.namespace}", kind, f"--selector={selector}"))

    # --- nodes --------------------------------------------------------------------------------------

    @cached_property
    def worker_nodes(self) -> tuple[str, ...]:
        """The nodes that are no control plane, by name."""
        nodes = self.all("nodes", "!node-role.kubernetes.io/control-plane")
        return tuple(sorted(each["metadata"]["name"] for each in nodes))

    def wait_node(self, node: str, ready: bool, seconds: float) -> None:
        wanted = "True" if ready else "not True"

        def is_so(found: Object) -> bool:
            conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
            return (conditions.get("Ready") == "True") == ready

        self.wait("nodes", node, f"node {node} has Ready {wanted}", is_so, seconds)


def ready(pod: Object) -> bool:
    """Whether a pod is ready and not about to go."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def uids(pods: Iterable[Object]) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in pods}


def restarts(pod: Object) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
