"""`penstock run --sla` with real Spark and Redis: more load than one task can serve makes more tasks, and
nothing is lost or counted twice on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clocks.eventually import eventually
from house import ROOT
from processes.run_harness import Run, read_rows

BENCH = ROOT / "bench"
RECORDS = 3_600
RATE_PER_S = 300
"""One task serves 200 a second: each record waits 5 ms."""
SLA = """
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {name: quick}
spec:
  topology: waiting
  operator: wait
  latency: 250ms
  window: 1s
  policy: StreamSwitch
"""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = (BENCH / "topologies" / "waiting.yaml").read_text(encoding="utf-8")
    rate = "rateTrace: {file: rates.csv}"
    assert rate in text
    text = text.replace(rate, f"ratePerSecond: {RATE_PER_S}\n        records: {RECORDS}")
    (tmp_path / "topology.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "sla.yaml").write_text(SLA, encoding="utf-8")
    shutil.copy(BENCH / "waiting.py", tmp_path / "waiting.py")
    return tmp_path


def counted(folder: Path) -> int:
    """Records counted, and every row of the sink there once: a key's rows lead up to its total."""
    totals: dict[int, list[int]] = {}
    for row in read_rows(folder / "out"):
        totals.setdefault(int(str(row["key"])), []).append(int(str(row["total"])))
    for key, found in totals.items():
        assert found == sorted(set(found)), f"key {key}: rows out of order or twice"
    return sum(max(found) for found in totals.values())


def test_a_load_above_one_tasks_rate_scales_out_without_a_loss(folder: Path, runs: list[Run]) -> None:
    run = Run(folder / "topology.yaml", folder / "state", ("--sla", str(folder / "sla.yaml")))
    runs.append(run)
    run.start()
    assert run.finish(150) == 0, run.output
    assert counted(folder) == RECORDS
    sla = json.loads((folder / "summary.json").read_text())["slas"]["quick"]
    assert sla["decisions"].get("scale-out", 0) >= 1, run.output
    assert max(point["tasks"] for point in sla["timeline"]) >= 2
    # Once there are enough tasks the bound holds: judged over the last seconds before the input ended.
    latest = [point for point in sla["timeline"] if (point["arrived_per_s"] or 0) > RATE_PER_S / 2][-3:]
    assert all(point["worst_ms"] is not None and point["worst_ms"] < 1_000 for point in latest), latest
    explained = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock_operator.cli",
            "explain",
            "waiting",
            "--state-dir",
            str(run.state),
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    records = [r for r in json.loads(explained.stdout) if r["treatment"] == "scale-out"]
    assert records[0]["operator"] == "wait"
    assert records[0]["brought"]["stuck"] == ""


@pytest.mark.slow(held_by="test_killed_workers_lose_and_repeat_no_row")
def test_a_worker_killed_while_load_is_followed_costs_no_record(folder: Path, runs: list[Run]) -> None:
    arguments = ("--sla", str(folder / "sla.yaml"), "--workers", "2", "--set", "wait.tasks.initial=2")
    run = Run(folder / "topology.yaml", folder / "state", arguments)
    runs.append(run)
    run.start()
    eventually(lambda: run.worker("w0") is not None and run.worker("w1") is not None, "both workers")
    eventually(lambda: run.waiting("wait", 64) > 0, "records at w1")
    victim = run.worker("w1")
    assert victim is not None
    os.kill(victim.pid, signal.SIGKILL)
    assert run.finish(150) == 0, run.output
    assert run.summary["restarts"] == {"w1": 1}
    assert counted(folder) == RECORDS
