"""The zipf calculator (Elasticutor section 5), with its code from a ConfigMap and a plain count of its keys.

Neighbours: `topologies` has the sizes and what is common to topologies, `plain_counts` compares totals.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from e2e.harness.cluster import ROOT, Cluster
from e2e.harness.plain_counts import faults_in_totals
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import Running, Sizes, example, share, sized
from e2e.harness.watching import Object
from penstock.api.compile import compile_topology
from penstock.api.topology import Topology
from penstock.connectors.zipf import ZipfSource
from penstock_worker.sources.zipf import ZipfReader

CODE = ROOT / "examples/zipf-calculator/zipf_calculator.py"
SIZES = Sizes()


def apply_code(cluster: Cluster, name: str, more: str = "") -> None:
    """Put the example's code into a ConfigMap, with `more` at its end."""
    data = {CODE.name: CODE.read_text(encoding="utf-8") + more}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


@dataclass(frozen=True)
class ZipfCalculator(Running):
    """The example, which ends after so many records."""

    @classmethod
    def made(
        cls,
        cluster: Cluster,
        shared: SharedFolder,
        name: str,
        code: str,
        source: Object,
        sizes: Sizes = SIZES,
    ) -> ZipfCalculator:
        """Write the manifest, with these settings of the source; nothing is applied yet."""
        topology = share(sized(example("zipf-calculator"), name, sizes), ("out", "/out"))
        spec = topology["spec"]
        spec["code"] = {"configMap": code}
        spec["operators"][0]["source"]["zipf"] |= source
        spec["operators"][1]["shards"] = 32
        spec["operators"][2]["sink"]["files"]["path"] = "/out"
        return cls(cluster, topology, shared.fresh(name))

    def expected(self) -> Counter[int]:
        """How often each key comes: the records of all partitions, read in one pass."""
        source = compile_topology(Topology.model_validate(self.manifest), "cluster").stages[0].head
        assert isinstance(source, ZipfSource)
        reader = ZipfReader("generator", source)
        counts: Counter[int] = Counter()
        for partition in range(source.partitions):
            shard, position, finished = f"generator/{partition}", b"", False
            reader.open(shard, position, 0)
            while not finished:
                batch = reader.read(shard, position, 4096, 1 << 24, 1 << 62)
                counts.update(row[0] for row in batch.rows)
                position, finished = batch.position, batch.finished
        return counts

    def faults(self) -> list[str]:
        return faults_in_totals(self.rows(), self.expected(), "key")
