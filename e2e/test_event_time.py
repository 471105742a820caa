"""Windows by event time, on pods of two nodes: watermarks go from store to store."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2e.harness.cluster import Cluster
from e2e.harness.plain_counts import written_rows
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import FINISH_S, Running, Sizes, share, sized

NAME = "windows"
FILES, LINES, PER_SECOND = 4, 1_500, 400
DELAY_MS, MINUTE_MS, LONGER_MS = 5_000, 60_000, 300_000
MANIFEST: dict[str, Any] = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": NAME},
    "spec": {
        "operators": [
            {
                "name": "rows",
                "source": {
                    "files": {
                        "glob": "/in/*.jsonl",
                        "format": "jsonl",
                        "schema": "key string, at timestamp, amount bigint",
                        "ratePerSecond": PER_SECOND,
                    }
                },
                "eventTime": {"column": "at", "allowedDelay": f"{DELAY_MS // 1000}s"},
            },
            {
                "name": "per-key",
                "inputs": ["rows"],
                "keyBy": ["key"],
                "window": {"tumbling": "1m"},
                "aggregate": [{"as": "total", "function": "sum", "column": "amount"}],
                "lateTo": {"files": {"path": "/out/late"}},
                "shards": 16,
                "tasks": {"initial": 2, "max": 4},
            },
            {
                "name": "longer",
                "inputs": ["per-key"],
                "keyBy": ["key"],
                "window": {"tumbling": "5m"},
                "aggregate": [{"as": "total", "function": "sum", "column": "total"}],
                "lateTo": {"files": {"path": "/out/longer-late"}},
                "shards": 16,
                "tasks": {"initial": 2, "max": 4},
            },
            {"name": "minutes", "inputs": ["per-key"], "sink": {"files": {"path": "/out/minutes"}}},
            {"name": "five-minutes", "inputs": ["longer"], "sink": {"files": {"path": "/out/longer"}}},
        ]
    },
}


def test_windows_on_two_nodes_are_those_of_a_plain_count(
    cluster: Cluster, shared: SharedFolder, run: Callable[[Running], None]
) -> None:
    folder = shared.fresh(NAME)
    generator = random.Random(3)
    totals: Counter[tuple[str, int]] = Counter()
    latest = []
    for number in range(FILES):
        at_ms, times, lines = 1_700_000_000_000.0, [], []
        for _ in range(LINES):
            at_ms += generator.random() * 1_000
            when = int(at_ms - generator.random() * (DELAY_MS - 1))
            key = f"k{generator.randrange(30)}"
            at = datetime.fromtimestamp(when / 1000, UTC).isoformat(timespec="milliseconds")
            lines.append(json.dumps({"key": key, "at": at, "amount": 1}) + "\n")
            totals[key, when // MINUTE_MS * MINUTE_MS] += 1
            times.append(when)
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")
        latest.append(max(times))
    running = Running(cluster, share(sized(MANIFEST, NAME, Sizes()), ("in", "/in"), ("out", "/out")), folder)
    run(running)
    running.wait_phase("Finished", FINISH_S)

    watermark_ms = max(latest) - DELAY_MS
    minutes = {key: total for key, total in totals.items() if key[1] + MINUTE_MS < watermark_ms}
    assert_told(folder / "out" / "minutes", minutes)
    longer: Counter[tuple[str, int]] = Counter()
    for (key, start_ms), total in minutes.items():
        # A window's rows happened when it ended.
        longer[key, (start_ms + MINUTE_MS) // LONGER_MS * LONGER_MS] += total
    assert_told(
        folder / "out" / "longer",
        {key: total for key, total in longer.items() if key[1] + LONGER_MS < watermark_ms},
    )
    late = [row for name in ("late", "longer-late") for row in written_rows(folder / "out" / name)]
    assert late == []
    homes = {part["home"] for schedule in running.schedules() for part in schedule["spec"]["shards"]}
    assert len(homes) == 2


def assert_told(sink: Path, expected: Mapping[tuple[str, int], int]) -> None:
    """Each window is there once, with its total."""
    rows = [
        ((row["key"], int(datetime.fromisoformat(row["windowStart"]).timestamp() * 1000)), row["total"])
        for row in written_rows(sink)
    ]
    assert len(rows) == len(expected)
    assert dict(rows) == expected
