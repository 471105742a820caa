"""The command `penstock` as a user of a namespace runs it: with the role `edit` there, and no other right.

Neighbours: `cluster` is the administrator's, `topologies` what is asked about.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.harness.cluster import ROOT, Cluster
from e2e.harness.watching import Object

_SOURCES = ("core", "operator", "worker")
SECONDS = 240.0


@dataclass(frozen=True)
class User:
    """An account of the cluster's namespace, and the kubeconfig that it has."""

    cluster: Cluster
    name: str
    kubeconfig: Path

    @classmethod
    def made(cls, cluster: Cluster, name: str, folder: Path) -> User:
        """`folder` is where the kubeconfig is put."""
        account = {"kind": "ServiceAccount", "name": name, "namespace": cluster.namespace}
        head: Object = {"metadata": {"name": name, "namespace": cluster.namespace}}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        cluster.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", **head},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "roleRef": role,
                "subjects": [account],
                **head,
            },
        )
        token = cluster.kubectl("create", "token", name, "--duration=1h").strip()
        config = yaml.safe_load(Path(cluster.environment.variables["KUBECONFIG"]).read_text(encoding="utf-8"))
        (only,) = config["clusters"]
        config["users"] = [{"name": name, "user": {"token": token}}]
        config["contexts"] = [{"name": name, "context": {"cluster": only["name"], "user": name}}]
        config["current-context"] = name
        kubeconfig = folder / "kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
        return cls(cluster, name, kubeconfig)

    def remove(self) -> None:
        self.cluster.delete("rolebinding", self.name)
        self.cluster.delete("serviceaccount", self.name)

    def penstock(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command with --cluster to its end."""
        where = ("--cluster", f"--namespace={self.cluster.namespace}", f"--kubeconfig={self.kubeconfig}")
        path = os.pathsep.join(str(ROOT / name) for name in _SOURCES)
        return subprocess.run(
            [sys.executable, "-m", "penstock_operator.cli", *arguments, *where],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**self.cluster.environment.variables, "PYTHONPATH": path},
            check=False,
        )

    def told(self, *arguments: str) -> str:
        """What a command prints, which must end well."""
        done = self.penstock(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stderr}{done.stdout}"
        return done.stdout

    def objects(self, *arguments: str) -> list[Object]:
        """The same of what prints an object a line."""
        return [json.loads(line) for line in self.told(*arguments).splitlines()]
