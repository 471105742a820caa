"""Files of JSON lines as a source: `penstock run`, killed while it reads, writes each row once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from clocks.eventually import eventually
from processes.live_processes import kill_tree
from processes.run_harness import Run, read_rows, rows_so_far

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPOLOGY = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: orders}
spec:
  operators:
  - name: orders
    source:
      files:
        glob: orders/*.jsonl
        format: jsonl
        schema: >-
          number long, user string, at timestamp, items array<struct<name: string, price: decimal(8,2)>>
        ratePerSecond: 200
  - name: kept
    inputs: [orders]
    sink: {files: {path: out/}}
"""


def order(number: int, generator: random.Random) -> dict[str, object]:
    items = [{"name": f"item {n}", "price": generator.randrange(10**6) / 100} for n in range(number % 3)]
    found: dict[str, object] = {"number": number, "items": items, "at": "2026-01-31T12:30:00.000Z"}
    return found if number % 5 else {**found, "user": f"Größe {number}"}


@pytest.fixture
def orders(tmp_path: Path) -> list[dict[str, object]]:
    """1600 orders in two files, some with blank lines between them, and the topology that reads them."""
    generator = random.Random(17)
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    (tmp_path / "orders").mkdir()
    written = [order(number, generator) for number in range(1600)]
    for file in range(2):
        lines = [json.dumps(row, ensure_ascii=False) for row in written[file::2]]
        text = "".join(line + generator.choice(["\n", "\n\n", "\r\n"]) for line in lines)
        (tmp_path / f"orders/{file}.jsonl").write_text(text, encoding="utf-8")
    return written


def started(folder: Path, runs: list[Run]) -> Run:
    run = Run(folder / "topology.yaml", folder / "state", ("--workers", "1"))
    runs.append(run)
    run.start()
    return run


@pytest.mark.slow(held_by="test_windows_and_windows_of_windows_are_whole_whatever_is_killed")
def test_a_killed_worker_reads_on_and_writes_no_row_twice(
    tmp_path: Path, orders: list[dict[str, object]], runs: list[Run]
) -> None:
    run = started(tmp_path, runs)
    eventually(lambda: rows_so_far(tmp_path / "out") > 100, "some rows")
    kill_tree(run.ready_worker("w0").pid)
    assert run.finish() == 0, run.output
    assert run.summary["restarts"] == {"w0": 1}
    found = sorted(read_rows(tmp_path / "out"), key=lambda found: int(str(found["number"])))
    assert found == orders


@pytest.mark.slow(held_by="test_a_record_that_means_nothing_stops_the_run_with_its_place")
def test_a_line_that_is_no_row_stops_the_run_with_its_place(
    tmp_path: Path, orders: list[dict[str, object]], runs: list[Run]
) -> None:
    file = tmp_path / "orders/0.jsonl"
    file.write_text('{"number":1}\n{"number":2,"items":[{"price":"dear"}]}\n')
    run = started(tmp_path, runs)
    assert run.finish() == 1
    told = 'line 2, column items[0].price: expects decimal(8,2), found "dear"; correct that line'
    assert f"{file}, {told}" in " ".join(run.output.split())
