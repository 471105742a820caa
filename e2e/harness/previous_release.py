"""The release before this one, to upgrade from.

There is none yet: until the first one is tagged, it is this checkout's chart packaged under a lower version,
with this checkout's images under another tag. Going from there to here has all that an upgrade has: other
images of operator, agents and stores, another chart version, a Secret that is kept. When there are releases,
`packaged` gets the last one's chart and images instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.harness.cluster import Cluster
from e2e.harness.images import version
from e2e.harness.installation import CHART

VERSION = "0.0.1"
TAG = "before"


@dataclass(frozen=True)
class PreviousRelease:
    chart: Path
    """A packaged chart."""
    values: dict[str, str]

    @classmethod
    def packaged(cls, cluster: Cluster, folder: Path) -> PreviousRelease:
        """Package the chart into a folder, and give the nodes its images."""
        cluster.helm("package", str(CHART), f"--version={VERSION}", f"--destination={folder}")
        for node in cluster.worker_nodes:
            images = ("exec", node, "ctr", "--namespace=k8s.io", "images")
            for image in ("penstock-operator", "penstock-worker"):
                # containerd names it with a registry in front
                ending = f"/{image}:{version()}"
                (name,) = [
                    each for each in cluster.docker(*images, "ls", "-q").split() if each.endswith(ending)
                ]
                cluster.docker(*images, "tag", "--force", name, f"{name.rpartition(':')[0]}:{TAG}")
        return cls(
            folder / f"penstock-{VERSION}.tgz",
            {"images.operator.tag": TAG, "images.worker.tag": TAG},
        )
