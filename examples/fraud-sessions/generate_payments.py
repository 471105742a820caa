"""Draws card payments from a seed: people shop in sessions, and now and then a thief has the card.

    payments/payments-1.jsonl, ...
        {"card": "c17", "at": "2026-03-01T08:00:04.250+00:00", "country": "DE", "cents": 1250}

A payment is up to 9.9 s behind those of its file that were made later.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
START = datetime(2026, 3, 1, 8, tzinfo=UTC)
COUNTRIES = ("AT", "CH", "DE", "DK", "FR", "IT", "NL", "PL")
BETWEEN_S, WITHIN_S = (90.0, 900.0), (5.0, 50.0)
THIEF_CHANCE, ABROAD_CHANCE = 0.04, 0.03
UNDERWAY_S_MAX = 9.9


def session(generator: random.Random, home: str) -> Iterator[tuple[str, int]]:
    """Country and cents of each payment of one session."""
    kind = generator.random()
    if kind < THIEF_CHANCE:
        for _ in range(generator.randint(2, 5)):  # two are not enough to tell
            yield home, generator.randint(1, 200)
        yield generator.choice(COUNTRIES), generator.randint(40_000, 90_000)
    elif kind < THIEF_CHANCE + ABROAD_CHANCE:
        for country in generator.sample(COUNTRIES, generator.randint(2, 4)):
            yield country, generator.randint(500, 30_000)
    else:
        for _ in range(generator.randint(1, 6)):
            yield home, generator.randint(100, 20_000)


def draw(seed: int, cards: int, minutes: int, files: int) -> list[list[str]]:
    """The lines of each file, in the order in which they come."""
    generator = random.Random(seed)
    lines: list[list[tuple[float, str]]] = [[] for _ in range(files)]
    for card in range(cards):
        at_s, home = generator.uniform(*BETWEEN_S), generator.choice(COUNTRIES)
        while at_s < minutes * 60:
            for country, cents in session(generator, home):
                at = START + timedelta(milliseconds=round(at_s * 1000))
                payment = {
                    "card": f"c{card}",
                    "at": at.isoformat(timespec="milliseconds"),
                    "country": country,
                    "cents": cents,
                }
                comes_s = at_s + generator.uniform(0, UNDERWAY_S_MAX)
                lines[card % files].append((comes_s, json.dumps(payment) + "\n"))
                at_s += generator.uniform(*WITHIN_S)
            at_s += generator.uniform(*BETWEEN_S)
    return [[line for _, line in sorted(file)] for file in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw card payments from a seed.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cards", type=int, default=500)
    parser.add_argument("--minutes", type=int, default=120, help="length of what is drawn")
    parser.add_argument("--files", type=int, default=2, help="shards of the source")
    parser.add_argument("--folder", type=Path, default=HERE, help="where payments/ is written")
    arguments = parser.parse_args()
    for name in ("cards", "minutes", "files"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}; give 1 or more")
    folder = arguments.folder / "payments"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("payments-*.jsonl"):
        path.unlink()
    drawn = draw(arguments.seed, arguments.cards, arguments.minutes, arguments.files)
    for number, lines in enumerate(drawn, 1):
        (folder / f"payments-{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    print(f"{sum(map(len, drawn))} payments of {arguments.cards} cards are in {folder}")


if __name__ == "__main__":
    main()
