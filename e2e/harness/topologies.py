"""Topologies of the tests: the examples as they are, with what a cluster's user adds (image, volumes, sizes).

Worker pods are small here, for three nodes share the machine's cores: about what a Spark start needs, and few
tasks. Sources are paced, so that a fault falls into the run.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml

from e2e.harness.cluster import ROOT, Cluster, ready, uids
from e2e.harness.images import word_count_image
from e2e.harness.plain_counts import count_words, faults_in_totals, written_rows
from e2e.harness.shared_folder import CLAIM, SharedFolder
from e2e.harness.watching import Object, wait_until

START_S = 300.0
"""The first workers of a fresh cluster read their image from its disk, beside all else that starts."""
FINISH_S = 150.0
ROLL_S = 300.0
GONE_S = 60.0
GROW_EVERY_S = 0.2
_TEXTS = ROOT / "examples/word-count/texts"


@dataclass(frozen=True)
class Sizes:
    """What a topology of the tests asks for; without a `durability` it is the default."""

    workers: int = 2
    isolation: str = "Topology"
    durability: str | None = None
    task_cpu: str = "100m"
    cores_min: str = "100m"
    cores_max: str = "1"
    memory: str = "1Gi"
    tasks: int = 2
    remote_tasks: str = "Never"


def example(name: str) -> Object:
    """An example's manifest, as it stands in the repository."""
    text = (ROOT / "examples" / name / "topology.yaml").read_text(encoding="utf-8")
    loaded: Object = yaml.safe_load(text)
    return loaded


def sized(manifest: Object, name: str, sizes: Sizes) -> Object:
    """A copy of a manifest under another name, with these sizes."""
    topology = copy.deepcopy(manifest)
    topology["metadata"]["name"] = name
    spec = topology["spec"]
    spec.pop("durability", None)
    if sizes.durability is not None:
        spec["durability"] = sizes.durability
    spec["taskCpu"] = sizes.task_cpu
    spec["remoteTasks"] = sizes.remote_tasks
    spec["workers"] = {
        "min": sizes.workers,
        "max": sizes.workers,
        "cores": {"min": sizes.cores_min, "max": sizes.cores_max},
        "memory": sizes.memory,
        "isolation": sizes.isolation,
    }
    for operator in spec["operators"]:
        if "processor" in operator:
            operator["tasks"] = {"min": 1, "max": 4, "initial": sizes.tasks}
        if "source" in operator:
            operator["tasks"] = {"min": 1, "max": 2, "initial": 2}
    return topology


def share(topology: Object, *mounts: tuple[str, str]) -> Object:
    """Mount (part of the shared folder, path in the pod)."""
    volume = {"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}}
    topology["spec"]["pod"] = {
        "volumes": [volume],
        "volumeMounts": [
            {"name": CLAIM, "mountPath": path, "subPath": f"{topology['metadata']['name']}/{part}"}
            for part, path in mounts
        ],
    }
    return topology


def _lines_of_real_text() -> Iterator[str]:
    for path in sorted(_TEXTS.glob("*.txt")):
        with path.open(encoding="utf-8") as text:
            yield from text


@dataclass(frozen=True)
class Running:
    """A Topology in the cluster."""

    cluster: Cluster
    manifest: Object
    folder: Path

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def selector(self) -> str:
        """Of all that belongs to it."""
        return f"penstock.dev/topology={self.name}"

    @property
    def worker_selector(self) -> str:
        return f"{self.selector},app.kubernetes.io/component=worker"

    # --- looking ------------------------------------------------------------------------------------

    def object(self) -> Object:
        return self.cluster.get("topology", self.name)

    def phase(self) -> str:
        """Its phase; empty before it has one."""
        return str(self.object().get("status", {}).get("phase", ""))

    def workers(self) -> list[Object]:
        return sorted(self.cluster.all("pods", self.worker_selector), key=lambda pod: pod["metadata"]["name"])

    def schedules(self) -> list[Object]:
        return self.cluster.all("schedules", self.selector)

    def state_uid(self) -> str:
        return str(self.object()["status"]["stateUid"])

    def rows(self) -> list[dict[str, Any]]:
        return list(written_rows(self.folder / "out"))

    # --- doing --------------------------------------------------------------------------------------

    def edit(self, spec: Object) -> None:
        self.cluster.patch("topology", self.name, {"spec": spec})

    def edit_operator(self, name: str, change: Object) -> None:
        """Change fields of one operator: lists are replaced as a whole by a merge patch."""
        operators = self.object()["spec"]["operators"]
        for operator in operators:
            if operator["name"] == name:
                operator.update(change)
        self.edit({"operators": operators})

    def delete(self) -> None:
        self.cluster.delete("topology", self.name)

    # --- waiting ------------------------------------------------------------------------------------

    def wait_phase(self, phase: str, seconds: float) -> Object:
        return self.cluster.wait(
            "topology",
            self.name,
            f"topology {self.name} is {phase}",
            lambda found: found.get("status", {}).get("phase") == phase,
            seconds,
        )

    def wait_condition(self, kind: str, status: str, seconds: float, reason: str = "") -> Object:
        """Wait for a condition, with a certain reason if one is given; answers it."""

        def conditions(found: Object) -> list[Object]:
            return [
                each for each in found.get("status", {}).get("conditions", [])
                if each["type"] == kind and each["status"] == status and reason in ("", each["reason"])
            ]  # fmt: skip

        what = f"topology {self.name} has {kind} {status} {reason}".rstrip()
        found = self.cluster.wait("topology", self.name, what, lambda seen: bool(conditions(seen)), seconds)
        return conditions(found)[0]

    def wait_workers(self, count: int, seconds: float = START_S) -> list[Object]:
        """Wait until exactly so many workers are there, all ready."""
        return self.cluster.wait_all(
            "pods",
            self.worker_selector,
            f"{count} workers of {self.name} are ready",
            lambda pods: len(pods) == count and all(map(ready, pods)),
            seconds,
        )

    def wait_rolled(self, old: Sequence[Object]) -> list[Object]:
        """Wait until as many other workers are there as these, and none of these; answers them."""
        before = uids(old)
        return self.cluster.wait_all(
            "pods",
            self.worker_selector,
            f"{len(old)} new workers of {self.name}, and no old one",
            lambda pods: len(pods) == len(old) and before.isdisjoint(uids(pods)),
            ROLL_S,
        )

    def wait_rows(self, more_than: int = 0, seconds: float = START_S) -> int:
        """Wait until the sink holds more rows than that; answers how many."""
        counted = 0

        def enough() -> bool:
            nonlocal counted
            counted = len(self.rows())
            return counted > more_than

        wait_until(f"the sink of {self.name} has more than {more_than} rows", enough, seconds, every_s=0.5)
        return counted

    def wait_gone(self, seconds: float = GONE_S) -> None:
        """Wait until Kubernetes holds nothing that belongs to it."""
        others = ("schedules", "configmaps", "poddisruptionbudgets", "networkpolicies")
        for kind in ("pods", *others):
            what = f"no {kind} of {self.name} are left"
            self.cluster.wait_all(kind, self.selector, what, lambda found: not found, seconds)
            # Pods are the last to go, as a rule: one look at all others, where each watch is a program.
            if not self.cluster.all(",".join(("pods", *others)), self.selector):
                return


@dataclass(frozen=True)
class WordCount(Running):
    """The example word-count over some real text."""

    @classmethod
    def made(
        cls,
        cluster: Cluster,
        shared: SharedFolder,
        name: str,
        *,
        files: int = 4,
        lines: int = 500,
        lines_per_second: int = 100,
        sizes: Sizes = Sizes(),
        image: str | None = None,
    ) -> WordCount:
        """Write the texts (so many files of so many lines) and the manifest; nothing is applied yet."""
        folder = shared.fresh(name)
        # Dealt out, for a paced source gives each file its part of the rate by its size.
        dealt = list(islice(_lines_of_real_text(), files * lines))
        for number in range(files):
            part = "".join(dealt[number::files])
            (folder / "texts" / f"text-{number}.txt").write_text(part, encoding="utf-8")
        topology = share(
            sized(example("word-count"), name, sizes), ("texts", "/app/texts"), ("out", "/app/out")
        )
        topology["spec"]["image"] = image or word_count_image()
        topology["spec"]["operators"][0]["source"]["files"]["ratePerSecond"] = lines_per_second
        topology["spec"]["operators"][2]["shards"] = 16
        return cls(cluster, topology, folder)

    @property
    def expected(self) -> Counter[str]:
        """What a plain count of the texts as they are now comes to."""
        return count_words(self.folder / "texts")

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Keep the input from ending: all texts grow, and a text that grew within a second has no end."""
        ended = Event()

        def grow() -> None:
            while not ended.wait(GROW_EVERY_S):
                for path in (self.folder / "texts").iterdir():
                    with path.open("a", encoding="utf-8") as text:
                        text.write("more\n")

        thread = Thread(target=grow, name="texts that grow")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def faults(self, *, complete: bool = True) -> list[str]:
        return faults_in_totals(self.rows(), self.expected, "word", complete=complete)

    def assert_exact(self, seconds: float = FINISH_S) -> None:
        """Wait for its end; totals are then exactly those of a plain count."""
        self.wait_phase("Finished", seconds)
        assert self.faults() == []
