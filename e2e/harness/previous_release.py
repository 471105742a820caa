"""The release before this one, to upgrade from and to go back to.

There is none yet. Quick tests take this checkout's chart packaged under a lower version, with this checkout's
images under another tag: going from there to here has other images of operator, agents and stores, another
chart version, and passwords that are kept. The slow lane takes the version before as it is in the history,
with images built of it. When there are releases, `packaged` gets the last one's chart and images instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from e2e.harness.cluster import ROOT, Cluster
from e2e.harness.images import version
from e2e.harness.installation import CHART, SMALL_VALUES
from processes.history import BEFORE, unpack

VERSION = "0.0.1"
TAG = "before"
TAG_OF_HISTORY = "history"
BUILD_S = 900.0


@dataclass(frozen=True)
class PreviousRelease:
    chart: Path
    """A packaged chart."""
    values: Mapping[str, str]
    small: Mapping[str, str] = field(default_factory=lambda: SMALL_VALUES)
    """Those of `SMALL_VALUES` that its chart knows."""

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
        return cls(folder / f"penstock-{VERSION}.tgz", _tagged(TAG))

    @classmethod
    def built(cls, cluster: Cluster, folder: Path) -> PreviousRelease:
        """Build the images of the version before, give them to the nodes, and package its chart."""
        checkout = folder / "checkout"
        unpack(BEFORE, checkout)
        (checkout / ".venv").symlink_to(ROOT / ".venv")
        texts = "examples/word-count/texts"  # gathered, so in no history
        shutil.copytree(ROOT / texts, checkout / texts)
        names = ("penstock-operator", "penstock-worker", "penstock-word-count")
        images = [f"{name}:{TAG_OF_HISTORY}" for name in names]
        run = cluster.environment.run
        run(str(checkout / "images/build.sh"), TAG_OF_HISTORY, seconds=BUILD_S)
        run(str(ROOT / "e2e/cluster/load_images.sh"), *images, seconds=BUILD_S)
        chart = checkout / "charts/penstock"
        cluster.helm("package", str(chart), f"--version={VERSION}", f"--destination={folder}")
        known = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
        shutil.rmtree(checkout)
        small = {name: value for name, value in SMALL_VALUES.items() if _is_known(known, name)}
        return cls(folder / f"penstock-{VERSION}.tgz", _tagged(TAG_OF_HISTORY), small)

    @property
    def word_count_image(self) -> str:
        """Of the version before, as users have built it from its worker image."""
        return f"penstock-word-count:{self.values['images.worker.tag']}"


def _tagged(tag: str) -> dict[str, str]:
    return {"images.operator.tag": tag, "images.worker.tag": tag}


def _is_known(values: object, name: str) -> bool:
    for part in name.split("."):
        if not isinstance(values, dict):
            return False
        if not values:
            return True  # a map that is empty by default, such as resource requests
        if part not in values:
            return False
        values = values[part]
    return True
