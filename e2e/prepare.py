"""What the end-to-end tests stand on: the chart, installed anew, and the folder that their pods share.

python -m e2e.prepare            makes it; what a run before has kept goes first
python -m e2e.prepare --remove   takes it away
"""

from __future__ import annotations

import sys

from e2e.harness.cluster import Cluster
from e2e.harness.installation import Installation
from e2e.harness.shared_folder import SharedFolder

NAMESPACE = "penstock-e2e"


def main(arguments: list[str]) -> None:
    cluster = Cluster.found(NAMESPACE)
    installation = Installation(cluster)
    if arguments == ["--remove"]:
        installation.uninstall()
        SharedFolder.of(cluster).forget(cluster)
        return
    installation.make_namespace()
    if installation.is_installed():
        installation.uninstall()
    installation.install()
    SharedFolder.made(cluster)


if __name__ == "__main__":
    main(sys.argv[1:])
