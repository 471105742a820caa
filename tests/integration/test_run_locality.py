"""`penstock run` of two processors with `locality: Auto`: pairs are counted, decided on and explained, beside
rows that count once though a worker is killed. Turned off, the run goes on as ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from clocks.eventually import eventually
from processes.run_harness import Run, read_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: meeting}
spec:
  code: {module: meeting_code}
  operators:
  - name: posts
    source:
      files: {glob: "in/*.jsonl", format: jsonl, schema: "tag string, land string", ratePerSecond: 400}
  - name: tags
    inputs: [posts]
    keyBy: [tag]
    processor: meeting_code:Passing
    outputSchema: "tag string, land string"
    shards: 8
    locality: Auto
  - name: lands
    inputs: [tags]
    keyBy: [land]
    processor: meeting_code:Counting
    outputSchema: "land string, total bigint"
    shards: 8
    locality: Auto
  - name: out
    inputs: [lands]
    sink: {files: {path: out/}}
"""
CODE = """
from pyspark.sql.streaming import StatefulProcessor

class Passing(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            yield (row.tag, row.land)

    def close(self):
        pass

class Counting(Passing):
    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get() or (0,))[0]
        for row in rows:
            total += 1
            yield (key[0], total)
        self.total.update((total,))
"""
LINES = 10_000
EDGE = "tags to lands"


def explained(folder: Path) -> str:
    told = subprocess.run(
        [sys.executable, "-m", "penstock_operator.cli", "explain", "meeting", "--state-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return told.stdout


def is_exact(folder: Path, expected: Counter[str]) -> bool:
    totals: dict[str, list[int]] = {}
    for row in read_rows(folder / "out"):
        totals.setdefault(str(row["land"]), []).append(int(str(row["total"])))
    found = {land: sorted(told) for land, told in totals.items()}
    return found == {land: list(range(1, count + 1)) for land, count in expected.items()}


def test_a_run_counts_decides_and_explains_and_can_be_told_not_to(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "meeting_code.py").write_text(CODE)
    (tmp_path / "in").mkdir()
    rows = [{"tag": f"t{n % 30}", "land": f"l{n % 6}"} for n in range(LINES)]
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Run(tmp_path / "topology.yaml", tmp_path / "state", ("--workers", "2"))
    run.start()
    try:
        killed = run.ready_worker("w0").pid
        eventually(lambda: run.completed("lands", 8) > LINES // 10, "rows have come through", 60)
        os.kill(killed, signal.SIGKILL)
        assert run.finish(200) == 0
    finally:
        run.abandon()
    assert is_exact(tmp_path, Counter(str(row["land"]) for row in rows))
    edge = run.summary["edges"][EDGE]
    assert edge["local_share"] == 1.0
    assert edge["tables"] == [0, 0]
    told = explained(tmp_path / "state")
    assert "tags and lands: " in told
    assert "(locality, rule " in told
    off = ("--workers", "1", "--set", "tags.locality=Off", "--set", "lands.locality=Off")
    again = Run(tmp_path / "topology.yaml", tmp_path / "state", off)
    again.start()
    try:
        assert again.finish(100) == 0
    finally:
        again.abandon()
    assert again.summary["edges"] == {}
