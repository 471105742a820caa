"""What `penstock new` makes, as a newcomer has it: checked, tested by its own test, run with real Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from backends.kafka_broker import KafkaBroker
from clocks.eventually import eventually
from processes.run_harness import Run, read_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NOON = "2026-01-01T12:0"
OUT: Mapping[str, tuple[str, list[dict[str, object]]]] = {
    "count": (
        "out",
        [
            {"user": "ada", "payments": 2, "cents": 350},
            {"user": "bob", "payments": 1, "cents": 1250},
            {"user": "eve", "payments": 1, "cents": 990},
        ],
    ),
    "windows": (
        "out/counts",
        [
            {"page": page, "windowStart": f"{NOON}{minute}:00.000Z",
             "windowEnd": f"{NOON}{minute + 1}:00.000Z", "clicks": clicks, "users": users}
            for page, minute, clicks, users in (("home", 0, 2, 2), ("home", 1, 1, 1), ("shop", 0, 1, 1))
        ],
    ),
    "join": (
        "out",
        [
            {"user": "ada", "ad": "shoes", "at": f"{NOON}0:00.000Z", "clicked": f"{NOON}0:04.000Z"},
            {"user": "bob", "ad": "boats", "at": f"{NOON}0:03.000Z"},
            {"user": "eve", "ad": "shoes", "at": f"{NOON}0:30.000Z"},
        ],
    ),
}  # fmt: skip


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def made(folder: Path, template: str) -> Path:
    """The project, made, found valid, and tested by its own test."""
    name = f"my-{template}"
    new = command(folder, "-m", "penstock_operator.cli", "new", name, "--template", template)
    assert new.returncode == 0, new.stderr
    valid = command(folder / name, "-m", "penstock_operator.cli", "validate", "topology.yaml")
    assert valid.returncode == 0, valid.stderr
    tested = command(folder / name, "-m", "pytest", "-q")
    assert tested.returncode == 0, tested.stdout
    return folder / name


def told(rows: object) -> list[str]:
    assert isinstance(rows, list)
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


LATER = pytest.mark.slow(held_by="test_a_new_project_is_valid_passes_its_own_test_and_runs")
"""Of the templates that need nothing beside them one stands for all."""


@pytest.mark.parametrize(
    "template", [pytest.param(each, marks=[LATER] if each != "count" else []) for each in OUT]
)
def test_a_new_project_is_valid_passes_its_own_test_and_runs(
    template: str, tmp_path: Path, runs: list[Run]
) -> None:
    project = made(tmp_path, template)
    run = Run(project / "topology.yaml", tmp_path / "state")
    runs.append(run)
    run.start()
    assert run.finish() == 0, run.output
    out, rows = OUT[template]
    assert told(list(read_rows(project / out))) == told(rows)


def test_a_new_project_of_kafka_adds_up_what_it_has_sent(
    tmp_path: Path, kafka: KafkaBroker, runs: list[Run]
) -> None:
    project = made(tmp_path, "kafka")
    sent = command(project, "send.py", kafka.bootstrap)
    assert sent.returncode == 0, sent.stderr
    address = f"kafka.bootstrapServers={kafka.bootstrap}"
    sets = ("--set", f"payments.source.{address}", "--set", f"totals.sink.{address}")
    run = Run(project / "topology.yaml", tmp_path / "state", sets)
    runs.append(run)
    run.start()
    expected: dict[str, list[int]] = {}
    for payment in (json.loads(record.value() or b"") for record in kafka.committed("my-kafka-payments")):
        payments, cents = expected.get(payment["user"], (0, 0))
        expected[payment["user"]] = [payments + 1, cents + payment["cents"]]

    def totals() -> dict[str, list[int]]:
        rows = [json.loads(record.value() or b"") for record in kafka.committed("my-kafka-totals")]
        return {row["user"]: [row["payments"], row["cents"]] for row in rows}

    eventually(lambda: totals() == expected, "all totals")
