"""Calls that end their process, or do not return: `penstock run` with real Spark comes past them, and their
rows are dead letters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from processes.run_harness import Run, read_rows

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: poison}
spec:
  code: {module: poison}
  operators:
  - name: lines
    source: {files: {glob: "texts/*.txt", format: text}}
  - name: count
    inputs: [lines]
    keyBy: [value]
    processor: poison:Count
    processorTimeout: 1s
    outputSchema: "value string, total long"
    shards: 4
    tasks: {max: 1}
    onError: {policy: DeadLetter}
  - name: counted
    inputs: [count]
    sink: {files: {path: out/, format: jsonl}}
"""
CODE = """
import os
import time

from pyspark.sql.streaming import StatefulProcessor


class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key, rows, timerValues):
        if key[0] == "ends":
            os._exit(3)
        if key[0] == "hangs":
            time.sleep(3600)
        total = (self.total.get() or (0,))[0] + len(list(rows))
        self.total.update((total,))
        yield (key[0], total)

    def close(self):
        pass
"""
WORDS = ("ash", "elm", "oak", "sea", "fir", "bay")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        pytest.param(
            "ends",
            "ended itself with exit code 3",
            marks=pytest.mark.slow(
                held_by="test_a_key_that_tasks_crash_at_again_and_again_becomes_letters_and_all_others_count"
            ),
        ),
        ("hangs", "did not return within 1 s"),
    ],
)
def test_a_key_that_tasks_crash_at_again_and_again_becomes_letters_and_all_others_count(
    tmp_path: Path, runs: list[Run], word: str, told: str
):
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "poison.py").write_text(CODE)
    (tmp_path / "texts").mkdir()
    lines = [*WORDS, word, *WORDS]
    (tmp_path / "texts" / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    run = Run(tmp_path / "topology.yaml", tmp_path / "state", ("--workers", "1"))
    runs.append(run)
    run.start()
    assert run.finish(200) == 0, run.output
    totals: dict[str, int] = {}
    for row in read_rows(tmp_path / "out"):
        totals[str(row["value"])] = max(totals.get(str(row["value"]), 0), int(str(row["total"])))
    assert totals == dict.fromkeys(WORDS, 2)
    command = [sys.executable, "-m", "penstock_operator.cli", "dead-letters", "list", "poison", "--json"]
    listed = subprocess.run(
        [*command, "--state-dir", str(tmp_path / "state")], capture_output=True, text=True, check=True
    )
    (letter,) = [json.loads(line) for line in listed.stdout.splitlines()]
    assert letter["rows"] == [[word]]
    assert "operator count: tasks crashed 5 times in a row here" in letter["error"]
    assert told in letter["error"]
    assert f"'{word}'" in letter["error"]
