"""The stock exchange end to end: orders come at the rates of a trace, a worker is killed meanwhile, and every
trade, and what is told of it, is there exactly once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clocks.eventually import eventually
from house import ROOT
from processes.live_processes import process_tree
from processes.run_harness import Run, kill_with_records_waiting, tasks_held

EXAMPLE = ROOT / "examples" / "stock-exchange"
SHARDS = 64

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example with 12 000 orders for 10 s: they are not worked off at once where all are due at once."""
    for name in ("stock_exchange.py", "topology.yaml"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    size = ("--orders", "12000", "--seconds", "10", "--stocks", "200")
    assert script("generate_orders.py", *size, "--folder", str(tmp_path)).returncode == 0
    return tmp_path


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def compare(folder: Path) -> subprocess.CompletedProcess[str]:
    folders = ("--orders", "orders", "--alarms", "user-alarms", "--out", "out")
    return script("compare.py", *(one if one.startswith("--") else str(folder / one) for one in folders))


@pytest.mark.slow(held_by="test_the_stock_exchange_gives_the_same_rows_in_spark_and_in_penstock")
def test_every_trade_is_made_and_told_of_exactly_once_while_a_worker_is_killed(
    folder: Path, runs: list[Run]
) -> None:
    run = Run(folder / "topology.yaml", folder / "state", ("--workers", "2"))
    runs.append(run)
    run.start()
    with tasks_held(run, "lines"):
        eventually(lambda: run.worker("w1") is not None, "a second worker")
    eventually(lambda: run.completed("auction", SHARDS, "w1") > 0, "orders that it has worked on")
    row = run.worker("w1")
    assert row is not None
    pids = [process.pid for process in process_tree(row.pid)]
    assert kill_with_records_waiting(run, pids, lambda: run.waiting("auction", SHARDS, "w1")) > 0
    assert run.finish() == 0, run.output
    assert run.summary["restarts"] == {"w1": 1}
    compared = compare(folder)
    assert compared.returncode == 0, compared.stdout
    assert "trades of 200 stocks" in compared.stdout

    path = next(path for path in (folder / "out" / "trades").rglob("*.jsonl") if path.stat().st_size)
    with path.open("a", encoding="utf-8") as file:
        file.write(path.read_text(encoding="utf-8").splitlines()[0] + "\n")
    compared = compare(folder)
    assert compared.returncode == 1
    assert "trades: should not be there" in compared.stdout
    assert "\n1 rows differ" in compared.stdout


def test_a_faulty_trace_is_told_before_anything_starts(folder: Path, runs: list[Run]) -> None:
    (folder / "rates.csv").write_text("0,500\n3,many\n2,500\n")
    run = Run(folder / "topology.yaml", folder / "state")
    runs.append(run)
    run.start()
    assert run.finish() == 2, run.output
    assert "source.files.rateTrace.file: rates.csv: line 2: rate_per_s 'many' is no number" in run.output
    assert not (folder / "state").exists()
