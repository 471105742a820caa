"""Compares what Penstock counted with one pass over the same texts, made apart from Penstock.

It imports nothing of Penstock and nothing of `word_count`: the rule of what a word is stands here a
second time on purpose, so that a fault in either shows. A word is a longest run of letters, digits
and underscores, in small letters.

`count` writes a row with the new total at each word that it sees, so a word's total is the largest
one of its rows, whichever file and line that stands in.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
WORD = re.compile(r"\w+")
SHOWN_MAX = 20


def count_apart(texts: Path) -> Counter[str]:
    """Word -> how often it stands in the texts."""
    counts: Counter[str] = Counter()
    for path in texts.rglob("*.txt"):
        counts.update(WORD.findall(path.read_text(encoding="utf-8").lower()))
    return counts


def read_totals(out: Path) -> Counter[str]:
    """Word -> its largest total in the sink's files. ValueError names a line that is no row."""
    totals: Counter[str] = Counter()
    for path in sorted(out.rglob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    row = json.loads(line)
                    totals[row["word"]] = max(totals[row["word"]], row["total"])
                except (ValueError, KeyError, TypeError) as error:
                    raise ValueError(f"{path}, line {number}, is no row of word and total") from error
    return totals


def differences(expected: Counter[str], found: Counter[str]) -> list[str]:
    """One line for each word whose totals differ, by word."""
    return [
        f"{word}: counted {expected[word]} times apart, Penstock's total is {found[word]}"
        for word in sorted(expected.keys() | found.keys())
        if expected[word] != found[word]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the word count's totals with a plain count.")
    parser.add_argument("--texts", type=Path, default=HERE / "texts", help="the folder that was read")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="the folder that the sink wrote")
    parser.add_argument("--top", type=int, default=10, help="how many words to show")
    arguments = parser.parse_args()

    expected = count_apart(arguments.texts)
    if not expected:
        print(f"There are no words in {arguments.texts}: run make texts first.")
        return 1
    try:
        found = read_totals(arguments.out)
    except ValueError as error:
        print(error)
        return 1
    print("The most frequent words:")
    for word, total in found.most_common(arguments.top):
        print(f"  {total:>8}  {word}")
    faults = differences(expected, found)
    if faults:
        print(f"{len(faults)} of {len(expected)} words differ from a plain count:")
        for fault in faults[:SHOWN_MAX]:
            print(f"  {fault}")
        if len(faults) > SHOWN_MAX:
            print(f"  and {len(faults) - SHOWN_MAX} more")
        return 1
    print(f"All {len(expected)} totals equal a plain count of the same {expected.total()} words.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
