"""A folder that the tests and all worker pods see: a volume on `/penstock-shared` of the nodes.

Pods may not have hostPath volumes (Pod Security `restricted`), but a PersistentVolume may be one. Workers
run as uid 10001, so what they write to is made writable here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from e2e.harness.cluster import Cluster
from e2e.harness.watching import Object

CLAIM = "shared"
_NODES_FOLDER = "/penstock-shared"
_EVERYBODY_WRITES = 0o777


@dataclass(frozen=True)
class SharedFolder:
    """The namespace's part of the shared folder."""

    path: Path

    @classmethod
    def of(cls, cluster: Cluster) -> SharedFolder:
        return cls(Path(cluster.environment.variables["PENSTOCK_E2E_SHARED"]) / cluster.namespace)

    @classmethod
    def made(cls, cluster: Cluster) -> SharedFolder:
        """Make the folder, its volume and its claim."""
        folder = cls.of(cluster)
        folder.path.mkdir(parents=True, exist_ok=True)
        volume = f"{cluster.namespace}-{CLAIM}"
        size = {"storage": "1Gi"}
        cluster.apply(
            _object(
                "PersistentVolume",
                volume,
                {
                    "capacity": size,
                    "accessModes": ["ReadWriteMany"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "",
                    "claimRef": {"namespace": cluster.namespace, "name": CLAIM},
                    "hostPath": {"path": f"{_NODES_FOLDER}/{cluster.namespace}", "type": "Directory"},
                },
            ),
            _object(
                "PersistentVolumeClaim",
                CLAIM,
                {
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": "",
                    "volumeName": volume,
                    "resources": {"requests": size},
                },
            ),
        )
        return folder

    def forget(self, cluster: Cluster) -> None:
        """Take away what `made` made."""
        cluster.delete("persistentvolumeclaim", CLAIM)
        cluster.delete("persistentvolume", f"{cluster.namespace}-{CLAIM}")
        rmtree(self.path, ignore_errors=True)

    def fresh(self, name: str) -> Path:
        """An empty folder for a topology; its part `out` can be written by pods."""
        folder = self.path / name
        if folder.exists():
            rmtree(folder)
        (folder / "texts").mkdir(parents=True)
        (folder / "out").mkdir()
        (folder / "out").chmod(_EVERYBODY_WRITES)
        return folder


def _object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
