"""Draws the readings of sensors from a seed: each speaks every few seconds, and some fall silent for a while.

    readings/readings-1.jsonl, ...    {"sensor": 7, "at": "2026-03-01T08:00:04.250+00:00", "celsius": 21.5}

A reading is up to 4.9 s behind those of its file that happened later.
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
START = datetime(2026, 3, 1, 8, tzinfo=UTC)
EVERY_S = (2.0, 12.0)
SILENT_CHANCE, SILENT_S = 0.01, (20.0, 120.0)
"""How often a sensor pauses behind a reading, and for how long; not all pauses are long enough to matter."""
UNDERWAY_S_MAX = 4.9


def draw(seed: int, sensors: int, minutes: int, files: int) -> list[list[str]]:
    """The lines of each file, in the order in which they come."""
    generator = random.Random(seed)
    lines: list[list[tuple[float, str]]] = [[] for _ in range(files)]
    for sensor in range(sensors):
        at_s, celsius = generator.uniform(*EVERY_S), generator.uniform(15, 25)
        while at_s < minutes * 60:
            celsius += generator.gauss(0, 0.2)
            at = START + timedelta(milliseconds=round(at_s * 1000))
            reading = {
                "sensor": sensor,
                "at": at.isoformat(timespec="milliseconds"),
                "celsius": round(celsius, 2),
            }
            comes_s = at_s + generator.uniform(0, UNDERWAY_S_MAX)
            lines[sensor % files].append((comes_s, json.dumps(reading) + "\n"))
            pause_s = SILENT_S if generator.random() < SILENT_CHANCE else EVERY_S
            at_s += generator.uniform(*pause_s)
    return [[line for _, line in sorted(file)] for file in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the readings of sensors from a seed.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sensors", type=int, default=200)
    parser.add_argument("--minutes", type=int, default=20, help="length of what is drawn")
    parser.add_argument("--files", type=int, default=2, help="shards of the source")
    parser.add_argument("--folder", type=Path, default=HERE, help="where readings/ is written")
    arguments = parser.parse_args()
    for name in ("sensors", "minutes", "files"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}; give 1 or more")
    folder = arguments.folder / "readings"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("readings-*.jsonl"):
        path.unlink()
    drawn = draw(arguments.seed, arguments.sensors, arguments.minutes, arguments.files)
    for number, lines in enumerate(drawn, 1):
        (folder / f"readings-{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    print(f"{sum(map(len, drawn))} readings of {arguments.sensors} sensors are in {folder}")


if __name__ == "__main__":
    main()
