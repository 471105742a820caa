"""Elasticutor's micro-benchmark, with code that comes from a ConfigMap: no image of its own is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from e2e.harness.cluster import ROOT, Cluster
from e2e.harness.installation import Installation
from e2e.harness.plain_counts import faults_in_totals
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import FINISH_S, Running, Sizes, example, share, sized
from penstock.dataflow.plan import ZipfSource
from penstock_worker.sources.zipf import ZipfReader

RECORDS = 6000
PER_SECOND = 400
ROLL_S = 150
CODE = ROOT / "examples/zipf-calculator/zipf_calculator.py"


def keys_counted_apart(source: ZipfSource) -> Counter[int]:
    """How often each key comes: the records of all partitions, read in one pass."""
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


@pytest.fixture
def code(cluster: Cluster, installation: Installation) -> Iterator[str]:
    """A ConfigMap of the example's code; its name."""
    name = "zipf-code"
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {CODE.name: CODE.read_text(encoding="utf-8")},
        }
    )
    yield name
    cluster.delete("configmap", name)


def calculating(cluster: Cluster, shared: SharedFolder, name: str, code: str, records: int) -> Running:
    """The example with its code from the ConfigMap; nothing is applied yet."""
    topology = share(sized(example("zipf-calculator"), name, Sizes()), ("out", "/out"))
    spec = topology["spec"]
    spec["code"] = {"configMap": code}
    spec["operators"][0]["source"]["zipf"] |= {
        "records": records,
        "ratePerSecond": PER_SECOND,
        "serviceTime": "500us",
    }
    spec["operators"][1]["shards"] = 32
    spec["operators"][2]["sink"]["files"]["path"] = "/out"
    return Running(cluster, topology, shared.fresh(name))


def expected_totals(running: Running) -> Counter[int]:
    zipf = running.manifest["spec"]["operators"][0]["source"]["zipf"]
    return keys_counted_apart(
        ZipfSource(
            keys=zipf["keys"],
            exponent=zipf["exponent"],
            record_bytes=zipf["recordBytes"],
            service_time_us=500,
            rate_per_s=PER_SECOND,
            records=zipf["records"],
            shuffles_per_minute=zipf["shufflesPerMinute"],
            partitions=zipf["partitions"],
            seed=zipf["seed"],
        )
    )


def test_the_zipf_calculator_counts_every_record_once_with_code_from_a_config_map(
    cluster: Cluster, shared: SharedFolder, run: Callable[[Running], None], code: str
) -> None:
    running = calculating(cluster, shared, "zipf", code, RECORDS)
    run(running)
    running.wait_phase("Finished", FINISH_S)
    expected = expected_totals(running)
    assert expected.total() == RECORDS
    assert faults_in_totals(running.rows(), expected, "key") == []


def test_a_change_of_the_code_in_a_config_map_rolls_the_workers(
    cluster: Cluster, shared: SharedFolder, run: Callable[[Running], None], code: str
) -> None:
    running = calculating(cluster, shared, "zipf-rolled", code, 4 * RECORDS)
    run(running)
    before = {str(pod["metadata"]["uid"]) for pod in running.wait_workers(2)}
    running.wait_rows()

    newer = CODE.read_text(encoding="utf-8") + "\n# a newer version\n"
    cluster.patch("configmap", code, {"data": {CODE.name: newer}})
    cluster.wait_all(
        "pods",
        running.worker_selector,
        "two new workers, and no old one",
        lambda pods: len(pods) == 2 and not {str(pod["metadata"]["uid"]) for pod in pods} & before,
        ROLL_S,
    )
    running.wait_phase("Finished", FINISH_S)
    assert faults_in_totals(running.rows(), expected_totals(running), "key") == []
