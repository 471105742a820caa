"""What came out of the counting processor and when: written beside a running bench, read after it.

A log is a folder with one file per writing process, of blocks (microseconds of arrival, rows, keys,
totals). Totals tell which records a row stands for: a row that raises a key's total from 7 to 9 holds the
key's records 7 and 8. So a log gives the arrival of *every* record, and proves on the way that none was
lost or counted twice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class WrongTotalsError(Exception):
    """The totals in a log are not those of a count from one up, without gap or repetition."""


def append(folder: Path, at_us: int, keys: Ints, totals: Ints) -> None:
    """Add the rows that were there at `at_us`; one write, so that a killed process leaves whole blocks."""
    block = np.concatenate([np.array([at_us, len(keys)], dtype=np.int64), keys, totals])
    with (folder / f"{os.getpid()}.log").open("ab") as file:
        file.write(block.tobytes())


@dataclass(frozen=True, slots=True)
class Rows:
    """Output rows as parallel arrays: key, new total, arrival."""

    keys: Ints
    totals: Ints
    at_us: Ints


def read(folder: Path) -> Rows:
    """All whole blocks of a log, which may still grow."""
    return Follower(folder).rows()


class Follower:
    """Reads a log as it grows, each block once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_words: dict[Path, int] = {}
        self._blocks: list[tuple[int, Ints, Ints]] = []
        self._last = np.zeros(0, dtype=np.int64)
        self._counted = 0

    def rows(self) -> Rows:
        """All whole blocks, file by file as they were seen."""
        self._look()
        none = np.empty(0, np.int64)
        return Rows(
            np.concatenate([none, *(keys for _, keys, _ in self._blocks)]),
            np.concatenate([none, *(totals for _, _, totals in self._blocks)]),
            np.concatenate([none, *(np.full(len(keys), at_us) for at_us, keys, _ in self._blocks)]),
        )

    def records(self) -> int:
        """How many records they stand for: the sum of the highest total of each key, which is small."""
        self._look()
        for _, keys, totals in self._blocks[self._counted :]:
            more = int(keys.max(initial=-1)) + 1 - len(self._last)
            if more > 0:
                self._last = np.concatenate([self._last, np.zeros(more, dtype=np.int64)])
            np.maximum.at(self._last, keys, totals)
        self._counted = len(self._blocks)
        return int(self._last.sum())

    def _look(self) -> None:
        for path in sorted(self._folder.glob("*.log")):
            done = self._read_words.get(path, 0)
            words = np.fromfile(path, dtype=np.int64, offset=done * 8)
            position = 0
            while position + 2 <= len(words):
                rows = int(words[position + 1])
                middle = position + 2 + rows
                if middle + rows > len(words):
                    break
                self._blocks.append(
                    (int(words[position]), words[position + 2 : middle], words[middle : middle + rows])
                )
                position = middle + rows
            self._read_words[path] = done + position


def records(rows: Rows) -> int:
    """How many records the rows stand for: the sum of the last total of each key."""
    order = np.lexsort((rows.totals, rows.keys))
    keys = rows.keys[order]
    last = np.ones(len(keys), dtype=bool)
    last[:-1] = keys[1:] != keys[:-1]
    return int(rows.totals[order][last].sum())


@dataclass(frozen=True, slots=True)
class Arrivals:
    """`number` came out at `at_us`, for every record; `oldest` marks the first record of each output row."""

    number: Ints
    at_us: Ints
    oldest: NDArray[np.bool_]


def arrivals(rows: Rows, keys: Ints) -> Arrivals:
    """Arrival of each record, `keys` being the keys of records 0, 1, ... in order.

    Raises WrongTotalsError unless every key's totals rise by whole records from 0, within its records.
    """
    order = np.lexsort((rows.totals, rows.keys))
    row_keys, row_totals, row_at = rows.keys[order], rows.totals[order], rows.at_us[order]
    new_key = np.ones(len(row_keys), dtype=bool)
    new_key[1:] = row_keys[1:] != row_keys[:-1]
    before = np.where(new_key, 0, np.concatenate([[0], row_totals[:-1]]))
    held = row_totals - before
    if (held <= 0).any():
        raise WrongTotalsError("a total was given twice")
    by_key = np.argsort(keys, kind="stable")
    first_of_key = np.searchsorted(keys[by_key], row_keys, side="left")
    ends = np.searchsorted(keys[by_key], row_keys, side="right")
    if (first_of_key + row_totals > ends).any():
        raise WrongTotalsError("a total is above the number of records of its key")
    starts = np.repeat(first_of_key + before, held)
    within = np.arange(len(starts)) - np.repeat(np.cumsum(held) - held, held)
    return Arrivals(by_key[starts + within].astype(np.int64), np.repeat(row_at, held), within == 0)
