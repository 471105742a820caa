"""The example of Elasticutor's micro-benchmark: its manifest compiles, and its processor works and counts."""

from __future__ import annotations

import importlib.util
import time
from types import ModuleType

import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import Row

from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import Processor
from penstock_worker.sources.zipf import ZipfReader

EXAMPLE = ROOT / "examples" / "zipf-calculator"


@pytest.fixture(scope="module")
def calculator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("zipf_calculator", EXAMPLE / "zipf_calculator.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_manifest_compiles_to_the_papers_workload() -> None:
    plan = compile_topology(load_topology(EXAMPLE / "topology.yaml"))
    source, processor = plan.stages[0].head, plan.stages[1].head
    assert source == ZipfSource(10_000, 0.5, 128, 1000, 500.0, None, 2.0, 2, 1)
    assert isinstance(processor, Processor)
    assert processor.input.names == ("key", "payload", "service_time_us", "number")
    assert plan.stages[1].out.schema.names == ("key", "total")


@pytest.mark.parametrize(
    "line",
    [line for line in (EXAMPLE / "topology.yaml").read_text().splitlines() if line.startswith("#   --set")],
)
def test_what_the_comments_suggest_is_taken(line: str) -> None:
    override = line.split()[2]
    head = compile_topology(load_topology(EXAMPLE / "topology.yaml", [override])).stages[0].head
    assert isinstance(head, ZipfSource)
    assert float(override.partition("=")[2]) in (head.rate_per_s, head.exponent, head.shuffles_per_minute)


def test_the_calculator_counts_the_generators_records_by_key(calculator: ModuleType) -> None:
    source = ZipfSource(5, 0.5, 16, 0, None, 60, 0.0, 1, 1)
    reader = ZipfReader("generator", source)
    reader.open("generator/0", b"", 0)
    rows = reader.read("generator/0", b"", 60, 1 << 20, 0).rows
    columns = ("key", "payload", "service_time_us", "number")
    tester = TwsTester(calculator.Calculator())
    totals: dict[int, int] = {}
    for key, *rest in rows:
        row = Row(**dict(zip(columns, (key, *rest), strict=True)))
        (out,) = tester.test(key, [row])
        totals[key] = totals.get(key, 0) + 1
        assert out == Row(key=key, total=totals[key])
    assert sum(totals.values()) == 60


def test_work_takes_as_much_cpu_time_as_it_is_told(calculator: ModuleType) -> None:
    began_ns = time.thread_time_ns()
    for _ in range(10):
        calculator.work(2_000, b"x" * 128)
    assert 20_000 <= (time.thread_time_ns() - began_ns) / 1000 < 40_000
    assert calculator.work(0, b"") == b""
