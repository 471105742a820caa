"""Windows of a manifest end to end: `penstock run`, killed while windows are open, gives what a plain count
over the same rows gives."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks.eventually import eventually
from processes.run_harness import Run, read_rows, tasks_held

SHARDS = 8
MANIFEST = f"""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: windows}}
spec:
  operators:
  - name: bids
    source:
      files:
        glob: "bids/*.jsonl"
        format: jsonl
        schema: "auction bigint, price bigint, at timestamp"
        ratePerSecond: 1600
    eventTime: {{column: at, allowedDelay: 10s}}
  - name: per-minute
    inputs: [bids]
    keyBy: [auction]
    window: {{tumbling: 1m}}
    aggregate:
    - {{as: bids, function: count}}
    - {{as: total, function: sum, column: price}}
    lateTo: {{files: {{path: out/late}}}}
    shards: {SHARDS}
  - name: minutes
    inputs: [per-minute]
    sink: {{files: {{path: out/minutes}}}}
  - name: per-two
    inputs: [per-minute]
    keyBy: [auction]
    window: {{sliding: {{size: 4m, every: 2m}}}}
    aggregate: [{{as: bids, function: sum, column: bids}}]
    shards: {SHARDS}
  - name: twos
    inputs: [per-two]
    sink: {{files: {{path: out/twos}}}}
"""
START = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = timedelta(seconds=10)
FILES, ROWS, AUCTIONS = 3, 1_600, 20
STEP = timedelta(milliseconds=500)
Counted = Counter[tuple[int, datetime]]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def bids(folder: Path) -> list[tuple[int, int, datetime]]:
    """Writes three partitions, out of order by less than the allowed delay; answers their rows."""
    generator = random.Random(7)
    folder.mkdir()
    rows = []
    for number in range(FILES):
        lines = []
        for place in range(ROWS):
            early = timedelta(milliseconds=generator.randrange(9_000) if place < ROWS - 1 else 0)
            row = generator.randrange(AUCTIONS), generator.randrange(1000), START + place * STEP - early
            rows.append(row)
            lines.append(json.dumps({"auction": row[0], "price": row[1], "at": row[2].isoformat()}) + "\n")
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return rows


def floor(at: datetime, size: timedelta) -> datetime:
    return at - (at - START) % size


# What the windows are is held by `test_windows_are_sparks_in_batch`.
@pytest.mark.slow(held_by="test_windows_and_windows_of_windows_are_whole_whatever_is_killed")
def test_windows_are_those_of_a_plain_count_while_tasks_are_killed(tmp_path: Path, runs: list[Run]) -> None:
    rows = bids(tmp_path / "bids")
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    run = Run(tmp_path / "topology.yaml", tmp_path / "state", ("--workers", "1"))
    runs.append(run)
    run.start()
    eventually(lambda: written(tmp_path / "out" / "minutes") > 0, "the first windows")
    with tasks_held(run, "bids"):
        working = run.tasks("per-minute")
        assert working, "the input ended before the kill"
        for task in working:
            os.kill(task.pid, signal.SIGKILL)
    assert run.finish() == 0, run.output

    watermark = max(at for _, _, at in rows) - DELAY
    minute = timedelta(minutes=1)
    counts: Counted = Counter()
    totals: Counted = Counter()
    for auction, price, at in rows:
        end = floor(at, minute) + minute
        if end <= watermark:
            counts[auction, end] += 1
            totals[auction, end] += price
    found = told(tmp_path / "out" / "minutes")
    assert found == {key: (counts[key], totals[key]) for key in counts}
    twos: Counted = Counter()
    for (auction, at), count in counts.items():
        for start in (floor(at, 2 * minute), floor(at, 2 * minute) - 2 * minute):
            if start + 4 * minute <= watermark:
                twos[auction, start + 4 * minute] += count
    assert told(tmp_path / "out" / "twos") == {key: (count,) for key, count in twos.items()}
    assert len(counts) > 10 * AUCTIONS
    assert written(tmp_path / "out" / "late") == 0


def told(folder: Path) -> dict[tuple[int, datetime], tuple[int, ...]]:
    """(auction, end of the window) -> what was computed of it. Each is there once."""
    found: dict[tuple[int, datetime], tuple[int, ...]] = {}
    for row in read_rows(folder):
        values: dict[str, Any] = dict(row)
        key = values.pop("auction"), datetime.fromisoformat(values.pop("windowEnd"))
        assert key not in found
        assert datetime.fromisoformat(values.pop("windowStart")) < key[1]
        found[key] = tuple(values.values())
    return found


def written(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.jsonl"))
