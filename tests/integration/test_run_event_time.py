"""Event time end to end: `penstock run` with real Spark, killed in parts; no row is late, no window wrong."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clocks.eventually import eventually
from processes.run_harness import Run, kill_with_records_waiting, read_rows, tasks_held

SHARDS = 8
DELAY_MS = 5_000
WINDOW_MS = 10_000
MANIFEST = f"""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: sums}}
spec:
  code: {{module: windowed}}
  operators:
  - name: rows
    source: {{files: {{glob: "in/*.jsonl", format: jsonl, schema: "key string, at timestamp, n bigint"}}}}
    eventTime: {{column: at, allowedDelay: {DELAY_MS // 1000}s}}
  - name: sums
    inputs: [rows]
    keyBy: [key]
    processor: windowed:Sums
    timeMode: EventTime
    eventTime: {{column: end}}
    lateTo: {{files: {{path: out/late}}}}
    outputSchema: "key string, end timestamp, total bigint"
    shards: {SHARDS}
  - name: all
    inputs: [sums]
    keyBy: [end]
    processor: windowed:All
    timeMode: EventTime
    lateTo: {{files: {{path: out/all-late}}}}
    outputSchema: "end timestamp, total bigint"
    shards: {SHARDS}
  - name: by-key
    inputs: [sums]
    sink: {{files: {{path: out/by-key}}}}
  - name: by-window
    inputs: [all]
    sink: {{files: {{path: out/by-window}}}}
"""
CODE = f"""
from datetime import datetime, timedelta

from pyspark.sql.streaming import StatefulProcessor

WINDOW_MS = {WINDOW_MS}
EPOCH = datetime(1970, 1, 1)


def ms_of(at):
    return (at.replace(tzinfo=None) - EPOCH) // timedelta(milliseconds=1)


class Sums(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.totals = handle.getMapState("totals", "end bigint", "total bigint")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            end = ms_of(row.at) // WINDOW_MS * WINDOW_MS + WINDOW_MS
            before = self.totals.getValue((end,)) if self.totals.containsKey((end,)) else (0,)
            self.totals.updateValue((end,), (before[0] + row.n,))
            self.handle.registerTimer(end)
        return []

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        end = expiredTimerInfo.getExpiryTimeInMs()
        assert timerValues.getCurrentWatermarkInMs() > end
        yield (key[0], EPOCH + timedelta(milliseconds=end), self.totals.getValue((end,))[0])
        self.totals.removeKey((end,))

    def close(self):
        pass


class All(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", "total bigint")

    def handleInputRows(self, key, rows, timerValues):
        had = self.total.get()[0] if self.total.exists() else 0
        self.total.update((had + sum(row.total for row in rows),))
        self.handle.registerTimer(ms_of(key[0]))
        return []

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield (key[0], self.total.get()[0])
        self.total.clear()

    def close(self):
        pass
"""
FILES, LINES = 3, 6_000

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def write_rows(folder: Path) -> tuple[Counter[tuple[str, int]], int]:
    """Files whose rows are out of order by less than the allowed delay, each at a pace of its own in event
    time. Answers the totals by key and window's end, and the watermark in the end."""
    generator = random.Random(5)
    totals: Counter[tuple[str, int]] = Counter()
    folder.mkdir()
    latest = []
    for number in range(FILES):
        at_ms, seen = 1_700_000_000_000.0, []
        with (folder / f"{number}.jsonl").open("w") as out:
            for _ in range(LINES):
                at_ms += generator.random() * (20 + 15 * number)
                when = int(at_ms - generator.random() * (DELAY_MS - 1))
                key = f"k{generator.randrange(40)}"
                text = datetime.fromtimestamp(when / 1000, UTC).isoformat(timespec="milliseconds")
                out.write(json.dumps({"key": key, "at": text, "n": 1}) + "\n")
                totals[key, when // WINDOW_MS * WINDOW_MS + WINDOW_MS] += 1
                seen.append(when)
        latest.append(max(seen))
    return totals, max(latest) - DELAY_MS


def end_ms(row: dict[str, object]) -> int:
    return int(datetime.fromisoformat(str(row["end"])).timestamp() * 1000)


def test_windows_and_windows_of_windows_are_whole_whatever_is_killed(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "windowed.py").write_text(CODE)
    totals, watermark_ms = write_rows(tmp_path / "in")
    arguments = ("--workers", "2", "--set", "rows.source.files.ratePerSecond=1500")
    run = Run(tmp_path / "topology.yaml", tmp_path / "state", arguments)
    runs.append(run)
    run.start()
    for victim in ("task of sums", "store", "task of all", "source"):
        before = run.completed("sums", SHARDS)
        eventually(lambda seen=before: run.completed("sums", SHARDS) > seen + 1_000, "rows of a second")
        eventually(lambda: bool(run.tasks("sums") and run.tasks("all")), "tasks")
        if victim == "task of sums":
            pids = [run.tasks("sums")[0].pid]
            kill_with_records_waiting(run, pids, lambda: run.waiting("sums", SHARDS))
        elif victim == "store":
            with tasks_held(run, "sums"):
                eventually(lambda: run.waiting("sums", SHARDS) > 0, "rows in the inboxes")
                os.kill(run.store_pid(), signal.SIGKILL)
        else:
            for task in run.tasks("rows" if victim == "source" else "all"):
                os.kill(task.pid, signal.SIGKILL)
    assert run.finish() == 0, run.output

    assert list(read_rows(tmp_path / "out" / "late")) == []
    assert list(read_rows(tmp_path / "out" / "all-late")) == []
    closed = {key: total for key, total in totals.items() if key[1] < watermark_ms}
    by_key = [
        ((str(row["key"]), end_ms(row)), row["total"]) for row in read_rows(tmp_path / "out" / "by-key")
    ]
    assert len(by_key) == len(closed)
    assert dict(by_key) == closed
    whole: Counter[int] = Counter()
    for (_, end), total in closed.items():
        whole[end] += total
    by_window = [(end_ms(row), row["total"]) for row in read_rows(tmp_path / "out" / "by-window")]
    assert len(by_window) == len(whole)
    assert dict(by_window) == dict(whole)
