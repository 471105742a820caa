"""Initial state end to end: `penstock run` with real Spark, killed in parts while it is read."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from clocks.eventually import eventually
from processes.run_harness import Run, kill_with_records_waiting, read_rows, tasks_held

SHARDS = 8
MANIFEST = f"""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: accounts}}
spec:
  code: {{module: accounts}}
  operators:
  - name: bookings
    source: {{files: {{glob: "bookings/*.jsonl", format: jsonl, schema: "account string, amount bigint"}}}}
  - name: balance
    inputs: [bookings]
    keyBy: [account]
    processor: accounts:Balance
    timeMode: ProcessingTime
    outputSchema: "account string, balance bigint, opened bigint, fired boolean"
    shards: {SHARDS}
    initialState:
      files:
        glob: "opening/*.jsonl"
        format: jsonl
        schema: "amount bigint, account string"
        ratePerSecond: 400
  - name: written
    inputs: [balance]
    sink: {{files: {{path: out/, format: jsonl}}}}
"""
CODE = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Balance(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.state = handle.getValueState("state", "balance bigint, opened bigint")

    def handleInitialState(self, key, initialState, timerValues):
        balance, opened = self.state.get() or (0, 0)
        self.state.update((balance + initialState.amount, opened + 1))
        # Due at once, and the same one for each row.
        self.handle.registerTimer(1)

    def handleInputRows(self, key, rows, timerValues):
        balance, opened = self.state.get() or (0, 0)
        balance += sum(row.amount for row in rows)
        self.state.update((balance, opened))
        yield Row(account=key[0], balance=balance, opened=opened, fired=False)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        balance, opened = self.state.get()
        yield Row(account=key[0], balance=balance, opened=opened, fired=True)

    def close(self):
        pass
"""
ACCOUNTS = 60
OPENING_FILES, OPENED_EACH = 3, 10
BOOKED_EACH = 5

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def write(path: Path, each: int, amount: int, prefix: str = "a") -> None:
    """So many rows of every account, one account after the other."""
    path.parent.mkdir(exist_ok=True)
    rows = ({"account": f"{prefix}{n}", "amount": amount} for _ in range(each) for n in range(ACCOUNTS))
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def start(runs: list[Run], folder: Path, *arguments: str) -> Run:
    run = Run(folder / "topology.yaml", folder / "state", ("--workers", "1", *arguments))
    runs.append(run)
    run.start()
    return run


def test_initial_state_is_read_once_and_first_whatever_is_killed(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "accounts.py").write_text(CODE)
    write(tmp_path / "bookings" / "a.jsonl", BOOKED_EACH, 1)
    for number in range(OPENING_FILES):
        write(tmp_path / "opening" / f"{number}.jsonl", OPENED_EACH, 100)
    run = start(runs, tmp_path)
    opened = OPENING_FILES * OPENED_EACH
    for victim in ("balance", "balance-initial", "store"):
        before = run.completed("balance", SHARDS)
        eventually(lambda seen=before: run.completed("balance", SHARDS) > seen + 150, "rows of half a second")
        assert run.completed("balance", SHARDS) < ACCOUNTS * opened, "it is still read"
        eventually(lambda: bool(run.tasks("balance") and run.tasks("balance-initial")), "both tasks")
        if victim == "store":
            with tasks_held(run, "balance"):
                eventually(lambda: run.waiting("balance", SHARDS) > 0, "rows in the inboxes")
                os.kill(run.store_pid(), signal.SIGKILL)
        elif victim == "balance":
            pids = [run.tasks("balance")[0].pid]
            kill_with_records_waiting(run, pids, lambda: run.waiting("balance", SHARDS))
        else:
            os.kill(run.tasks(victim)[0].pid, signal.SIGKILL)
    assert run.finish() == 0, run.output

    rows = list(read_rows(tmp_path / "out"))
    assert {row["opened"] for row in rows} == {opened}, "all rows and timers come behind all initial state"
    timers = Counter(row["account"] for row in rows if row["fired"])
    assert timers == {f"a{n}": 1 for n in range(ACCOUNTS)}
    last = {account: max(r["balance"] for r in rows if r["account"] == account) for account in timers}
    assert set(last.values()) == {opened * 100 + BOOKED_EACH}

    # A second run reads nothing of it again, nor what was put there since, and does not miss what is gone.
    for number in range(OPENING_FILES):
        (tmp_path / "opening" / f"{number}.jsonl").unlink()
    write(tmp_path / "opening" / "late.jsonl", 1, 7, prefix="b")
    write(tmp_path / "bookings" / "b.jsonl", 1, 1, prefix="b")
    again = start(runs, tmp_path)
    assert again.finish() == 0, again.output
    found = {(row["balance"], row["opened"]) for row in read_rows(tmp_path / "out") if row["account"] == "b1"}
    assert found == {(1, 0)}


def test_initial_state_without_files_is_refused(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "accounts.py").write_text(CODE)
    write(tmp_path / "bookings" / "a.jsonl", BOOKED_EACH, 1)
    run = start(runs, tmp_path)
    assert run.finish() != 0
    assert "no file matches 'opening/*.jsonl'" in run.output
