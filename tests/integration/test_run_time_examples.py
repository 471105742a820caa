"""The examples with timers by event time, end to end: rows come out of order, and what is told is what a
plain loop over the sorted rows finds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from house import ROOT
from processes.run_harness import Run, read_rows

EXAMPLES = ROOT / "examples"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def played(folder: Path, runs: list[Run], example: str, source: str, *size: str) -> list[dict[str, Any]]:
    """Run the example in `folder` with input of a size; answers its input's rows, in the order they came."""
    shutil.copytree(
        EXAMPLES / example, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(source, "out")
    )
    command = [sys.executable, str(folder / f"generate_{source}.py"), *size, "--folder", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    pace = ("--set", f"{source}.source.files.ratePerSecond=8000")
    run = Run(folder / "topology.yaml", folder / "state", ("--workers", "1", *pace))
    runs.append(run)
    run.start()
    assert run.finish() == 0, run.output
    assert told(folder / "out" / "late") == []
    return [json.loads(line) for path in sorted((folder / source).iterdir()) for line in path.open()]


def told(sink: Path) -> list[dict[str, Any]]:
    return list(read_rows(sink))


def ms_of(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def by_key(rows: list[dict[str, Any]], key: str) -> dict[Any, list[dict[str, Any]]]:
    """Key -> its rows by their own time."""
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: ms_of(row["at"])):
        found[row[key]].append(row)
    return found


def test_a_silent_sensor_is_told_of_once_and_so_is_its_return(tmp_path: Path, runs: list[Run]) -> None:
    rows = played(tmp_path, runs, "silent-sensor", "readings", "--sensors", "60", "--minutes", "15")
    passed_ms = max(ms_of(row["at"]) for row in rows) - 5_000
    expected = []
    for sensor, readings in by_key(rows, "sensor").items():
        times = [(ms_of(row["at"]), row["celsius"]) for row in readings]
        for (before_ms, celsius), (after_ms, other) in pairwise([*times, (sys.maxsize, 0.0)]):
            if after_ms - before_ms > 30_000 and before_ms + 30_000 < passed_ms:
                expected.append((sensor, "silent", before_ms, celsius))
                if after_ms < passed_ms:
                    expected.append((sensor, "back", after_ms, other))
    silence = told(tmp_path / "out" / "silence")
    found = [(row["sensor"], row["what"], ms_of(row["at"]), row["celsius"]) for row in silence]
    assert sorted(found) == sorted(expected)
    assert len([what for _, what, _, _ in expected if what == "back"]) > 20


@pytest.mark.slow(held_by="test_a_silent_sensor_is_told_of_once_and_so_is_its_return")
def test_a_stolen_card_is_told_of_when_its_session_is_over(tmp_path: Path, runs: list[Run]) -> None:
    rows = played(tmp_path, runs, "fraud-sessions", "payments", "--cards", "150", "--minutes", "90")
    passed_ms = max(ms_of(row["at"]) for row in rows) - 10_000
    expected = []
    for card, payments in by_key(rows, "card").items():
        sessions = [[payments[0]]]
        for before, after in pairwise(payments):
            if ms_of(after["at"]) - ms_of(before["at"]) > 60_000:
                sessions.append([])
            sessions[-1].append(after)
        for session in sessions:
            reasons = why(session)
            if reasons and ms_of(session[-1]["at"]) + 60_000 < passed_ms:
                cents = sum(payment["cents"] for payment in session)
                start, end = (ms_of(session[place]["at"]) for place in (0, -1))
                expected.append((card, start, end, len(session), cents, reasons))
    found = [
        (
            row["card"],
            ms_of(row["started"]),
            ms_of(row["ended"]),
            row["payments"],
            row["cents"],
            row["reasons"],
        )
        for row in read_rows(tmp_path / "out" / "frauds")
    ]
    assert sorted(found) == sorted(expected)
    assert {reason for *_, reasons in expected for reason in reasons} == {"tried out", "many countries"}


def why(session: list[dict[str, Any]]) -> list[str]:
    """As the example's page has it, said another way: by a text of one letter a payment."""
    sizes = "".join(
        "s" if payment["cents"] <= 200 else "l" if payment["cents"] >= 50_000 else "-" for payment in session
    )
    found = ["tried out"] if "sssl" in sizes else []
    return found + ["many countries"] * (len({payment["country"] for payment in session}) >= 3)
