"""Joins of a manifest end to end: `penstock run`, killed while rows wait for partners, gives what Python's
loops over the same rows give."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clocks.eventually import eventually
from processes.run_harness import Run, read_rows, tasks_held

SHARDS = 8
MANIFEST = f"""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: matched}}
spec:
  operators:
  - name: shown
    source:
      files:
        glob: "shown/*"
        format: jsonl
        schema: "ad bigint, user string, at timestamp"
        ratePerSecond: 300
    eventTime: {{column: at, allowedDelay: 2s}}
  - name: clicked
    source:
      files:
        glob: "clicked/*"
        format: jsonl
        schema: "time timestamp, what bigint, who string"
        ratePerSecond: 300
    eventTime: {{column: time, allowedDelay: 2s}}
  - name: matched
    inputs: [shown, clicked]
    join:
      left: {{key: [user, ad]}}
      right: {{key: [who, what], columns: [{{column: time, as: clicked}}]}}
      before: 1s
      after: 9s
      kind: LeftOuter
    lateTo: {{files: {{path: out/late}}}}
    shards: {SHARDS}
  - name: results
    inputs: [matched]
    sink: {{files: {{path: out/results}}}}
"""
START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 1_500
STEP_MS, DELAY_MS = 100, 2_000
BEFORE_MS, AFTER_MS = 1_000, 9_000

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Event = tuple[str, int, int]
"""User, ad, when in milliseconds from START."""


def text_of(ms: int) -> str:
    return (START + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def events(seed: int) -> list[Event]:
    """At most DELAY_MS out of order."""
    random_ = random.Random(seed)
    return [
        (
            f"u{random_.randrange(8)}",
            random_.randrange(6),
            n * STEP_MS + DELAY_MS - random_.randrange(DELAY_MS),
        )
        for n in range(ROWS)
    ]


def matches(shown: list[Event], clicked: list[Event]) -> Counter[tuple[str, int, int, int | None]]:
    """(user, ad, shown, clicked), also of what nobody clicked on, as far as the watermark says so."""
    over_ms = min(max(at for _, _, at in side) for side in (shown, clicked)) - DELAY_MS
    found: Counter[tuple[str, int, int, int | None]] = Counter()
    for user, ad, at in shown:
        met = [time for who, what, time in clicked if (who, what) == (user, ad)]
        met = [time for time in met if at - BEFORE_MS <= time <= at + AFTER_MS]
        found.update((user, ad, at, time) for time in met)
        # A bucket of what waits is an eighth of the interval, or a second.
        if not met and at + AFTER_MS + (BEFORE_MS + AFTER_MS) // 8 < over_ms:
            found[user, ad, at, None] += 1
    return found


def write(folder: Path, rows: list[dict[str, object]]) -> None:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_pairs_come_out_once_whatever_is_killed(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    shown, clicked = events(seed=1), events(seed=2)
    # Each side's last row comes far behind the watermark, and would meet the other.
    late = ("u0", 0, 0)
    shown_rows, clicked_rows = [*shown, late], [*clicked, late]
    write(tmp_path / "shown", [{"ad": ad, "user": user, "at": text_of(at)} for user, ad, at in shown_rows])
    write(
        tmp_path / "clicked",
        [{"what": ad, "who": user, "time": text_of(at)} for user, ad, at in clicked_rows],
    )
    run = Run(tmp_path / "topology.yaml", tmp_path / "state", ("--workers", "1"))
    runs.append(run)
    run.start()
    for victim in ("task", "store", "task"):
        before = run.completed("matched", SHARDS)
        eventually(lambda seen=before: run.completed("matched", SHARDS) > seen + 400, "rows of a second")
        eventually(lambda: bool(run.tasks("matched")), "a task")
        if victim == "task":
            os.kill(run.tasks("matched")[0].pid, signal.SIGKILL)
        else:
            with tasks_held(run, "matched"):
                eventually(lambda: run.waiting("matched", SHARDS) > 0, "rows in the inboxes")
                os.kill(run.store_pid(), signal.SIGKILL)
    assert run.finish() == 0, run.output

    def ms(text: object) -> int | None:
        return (
            None if text is None else (datetime.fromisoformat(str(text)) - START) // timedelta(milliseconds=1)
        )

    rows = list(read_rows(tmp_path / "out" / "results"))
    found = Counter((row["user"], row["ad"], ms(row["at"]), ms(row.get("clicked"))) for row in rows)
    wanted = matches(shown, clicked)
    assert {pair: count for pair, count in found.items() if pair[3] is not None} == {
        pair: count for pair, count in wanted.items() if pair[3] is not None
    }
    alone = {pair: count for pair, count in found.items() if pair[3] is None}
    surely = {pair: count for pair, count in wanted.items() if pair[3] is None}
    assert len(surely) > 100
    assert {pair: alone.get(pair) for pair in surely} == surely
    matched = {pair[:3] for pair in found if pair[3] is not None}
    assert not [pair for pair in alone if pair[:3] in matched]
    found_late = list(read_rows(tmp_path / "out" / "late"))
    assert [(row["user"], row["ad"]) for row in found_late] == [("u0", 0)] * 2
    assert sorted("left" in row for row in found_late) == [False, True]
