"""The word count's truth: one pass over the same texts with nothing of Penstock, and what the sink holds.

The rule of what a word is stands here apart from the example's, so that a fault in either shows.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WORD = re.compile(r"\w+")
SHOWN_MAX = 8


def count_words(texts: Path) -> Counter[str]:
    """Word -> how often it stands in the texts of a folder."""
    counts: Counter[str] = Counter()
    for path in texts.rglob("*.txt"):
        counts.update(WORD.findall(path.read_text(encoding="utf-8").lower()))
    return counts


def written_rows(out: Path) -> Iterator[dict[str, Any]]:
    """The rows of a sink's files. A last line without its end is being written, and left out."""
    for path in sorted(out.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def faults_in_totals(
    rows: Iterable[dict[str, Any]], expected: Counter[Any], key: str, *, complete: bool = True
) -> list[str]:
    """What is wrong with running totals; empty when all is exact.

    Each key's totals grow from row to row (one that comes twice or goes back is a record counted twice, or
    forgotten), and end at what is expected; before the end (not `complete`) they are not above it.
    """
    last: defaultdict[Any, int] = defaultdict(int)
    faults = []
    for row in rows:
        name, total = row[key], row["total"]
        if total <= last[name]:
            faults.append(f"{name!r}: total {total} comes after {last[name]}")
        last[name] = total
    for name in sorted(last.keys() | (expected.keys() if complete else set()), key=str):
        found, wanted = last.get(name, 0), expected[name]
        if found > wanted or (complete and found != wanted):
            faults.append(f"{name!r}: {found}, and a plain count has {wanted}")
    if len(faults) > SHOWN_MAX:
        return [*faults[:SHOWN_MAX], f"and {len(faults) - SHOWN_MAX} more"]
    return faults
