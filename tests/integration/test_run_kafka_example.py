"""The example between two topics end to end: payments come while a task is killed, and each is decided once,
in its account's order."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends.kafka_broker import KafkaBroker
from clocks.eventually import eventually
from house import ROOT
from processes.run_harness import Run

EXAMPLE = ROOT / "examples" / "kafka"
SHARDS = 16
PAYMENTS = 6_000

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def command(name: str, kafka: KafkaBroker, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLE / name), "--broker", kafka.bootstrap, *arguments]


def compare(kafka: KafkaBroker) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("compare.py", kafka), capture_output=True, text=True, timeout=60, check=False
    )


def test_every_payment_is_decided_once_while_a_task_is_killed(
    tmp_path: Path, kafka: KafkaBroker, runs: list[Run]
) -> None:
    for name in ("topology.yaml", "accounts.py"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    fill = subprocess.Popen(
        command("fill.py", kafka, "--payments", str(PAYMENTS), "--per-second", "600"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: "payments" in kafka.admin().list_topics(timeout=10).topics, "the topics")
        eventually(lambda: "decisions" in kafka.admin().list_topics(timeout=10).topics, "both of them")
        address = f"kafka.bootstrapServers={kafka.bootstrap}"
        sets = ("--set", f"payments.source.{address}", "--set", f"decided.sink.{address}")
        run = Run(tmp_path / "topology.yaml", tmp_path / "state", sets)
        runs.append(run)
        run.start()
        eventually(lambda: run.completed("accounts", SHARDS) > 500, "decisions")
        os.kill(run.tasks("accounts")[0].pid, signal.SIGKILL)
        eventually(lambda: run.completed("accounts", SHARDS) == PAYMENTS, "all decisions")
        assert fill.wait(60) == 0
    finally:
        fill.kill()
        fill.communicate()
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.output
    compared = compare(kafka)
    assert compared.returncode == 0, compared.stdout
    assert f"All {PAYMENTS} payments of " in compared.stdout

    first = kafka.committed("decisions")[0]
    kafka.produce("decisions", [first.value()], partition=first.partition() or 0, key=first.key())
    compared = compare(kafka)
    assert compared.returncode == 1
    assert "\n1 of " in compared.stdout, compared.stdout
