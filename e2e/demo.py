"""`make kind-demo`: Penstock in the kind cluster, counting the words of real text, for a person to watch.

Installs the chart into a namespace of its own, applies the word count, shows `kubectl get topologies --watch`
until it is finished, and compares with a plain count. All of it stays, to be looked into; `make kind-down`
takes it away.
"""

from __future__ import annotations

import sys
import time

from e2e.harness.cluster import Cluster
from e2e.harness.installation import PROCESS_VALUES, Installation
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import Sizes, WordCount

NAMESPACE = "penstock-demo"
NAME = "word-count"
LINES_PER_SECOND = 400
FINISHED_S = 300


def main() -> int:
    cluster = Cluster.found(NAMESPACE)
    installation = Installation(cluster)
    print(f"== helm upgrade --install penstock charts/penstock --namespace {NAMESPACE}", flush=True)
    installation.make_namespace()
    installation.install(values=PROCESS_VALUES)
    shared = SharedFolder.made(cluster)
    cluster.delete("topology", NAME)
    counting = WordCount.made(
        cluster,
        shared,
        NAME,
        files=8,
        lines=2500,
        lines_per_second=LINES_PER_SECOND,
        sizes=Sizes(task_cpu="250m"),
    )
    counting.wait_gone()
    print("== kubectl apply --filename topology.yaml; kubectl get topologies --watch", flush=True)
    cluster.apply(counting.manifest)
    show_until_finished(cluster, counting)
    print(f"== kubectl describe topology {NAME}", flush=True)
    print(cluster.kubectl("describe", "topology", NAME))
    faults = counting.faults()
    if faults:
        print("\n".join(["totals that differ from a plain count:", *faults]))
        return 1
    words, kinds = counting.expected.total(), len(counting.expected)
    print(f"All {kinds} totals equal a plain count of the same {words} words.")
    print("It all stays. To look around: source e2e/cluster/env.sh; "
          f"kubectl --namespace {NAMESPACE} get all. To end it: make kind-down")  # fmt: skip
    return 0


def show_until_finished(cluster: Cluster, counting: WordCount) -> None:
    """The lines of `kubectl get topologies`, one whenever they change."""
    deadline = time.monotonic() + FINISHED_S
    shown = ""
    while time.monotonic() < deadline:
        header, line = cluster.kubectl("get", "topologies", counting.name).splitlines()[:2]
        if not shown:
            print(header)
        if line != shown:
            print(line, flush=True)
            shown = line
        if counting.phase() in ("Finished", "Failed"):
            return
        time.sleep(1)
    print(f"it did not finish within {FINISHED_S} s")


if __name__ == "__main__":
    sys.exit(main())
