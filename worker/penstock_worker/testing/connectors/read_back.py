"""What an author says of a sink, and the comparison of what was written with what is there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]
_LOOK_S = 0.02


class ReadBack:
    """Rows have a key in their first column; those of one key stay in their order."""

    schema = "word string, number bigint"
    delivers = "ExactlyOnce"
    """Or "AtLeastOnce": a row may come again, whole, behind its first time; none is missing."""
    shows_within_s = 10.0
    """A reader of the system outside may see what was written so much later. Only a failing test waits for
    all of it."""

    def sink(self, folder: Path) -> Mapping[str, Any]:
        """The field `sink` of a manifest in `folder`, with the place that is written made there."""
        raise NotImplementedError("sink: say what the sink under test is")

    def read_back(self, folder: Path) -> Sequence[Any]:
        """All rows that the system outside has by now, read with its own means, not by Penstock's; as tuples
        of the schema's columns. Those of one key in the order that the system keeps, or that a reader of it
        goes by."""
        raise NotImplementedError("read_back: say which rows the sink under test has")

    def rows(self, count: int) -> list[Any]:
        """So many different rows of `schema`, with some rows of each key, also right behind each other. The
        same each time."""
        return [(f"wörd {number // 2 % 7}", number) for number in range(count)]

    def assert_written(self, folder: Path, rows: Sequence[Row], *, whole: bool = True) -> None:
        """The system outside has these rows, and no other one, as the sink promises. With `whole` False:
        of each key the first of them."""
        wanted = by_key(rows)
        deadline_s = time.monotonic() + self.shows_within_s
        while True:
            there = by_key(self.read_back(folder))
            if self.delivers == "AtLeastOnce":
                there = {key: list(dict.fromkeys(of)) for key, of in there.items()}
            assert there.keys() <= wanted.keys(), f"keys that nobody wrote: {there.keys() - wanted.keys()}"
            for key, of in wanted.items():
                found = there.get(key, [])
                assert found == of[: len(found)], f"key {key!r}: the sink has {found}, and was to have {of}"
            missing = {key: of for key, of in wanted.items() if len(there.get(key, [])) < len(of)}
            if not whole or not missing:
                return
            assert time.monotonic() < deadline_s, (
                f"missing {self.shows_within_s:g} s after they were written, of each key behind those that "
                f"are there: { {key: of[len(there.get(key, [])) :] for key, of in missing.items()} }"
            )
            time.sleep(_LOOK_S)


def by_key(rows: Sequence[Row]) -> Mapping[object, list[Row]]:
    """Rows of one key in their order; the key is the first column."""
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(tuple(row))
    return found
