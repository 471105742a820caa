"""A rate trace: at which rate a paced source gives its rows, over time. Read from a file, then only asked.

Lines are `seconds,rate_per_s`: from that second on that rate, until the next line's second. The first line
is second 0. The last line's rate goes on for as long as the source does; a last rate of 0 ends the trace,
after `total` rows. A first line of just these two words, empty lines, and lines that begin with `#`
are passed over. Numbers count to the millionth. Neighbours: `api.rate_traces` lists a file's faults before
anything starts, the worker's sources follow it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PermanentError

HEADER = "seconds,rate_per_s"
LINES_MAX = 100_000
SECONDS_MAX = 10**9
RATE_PER_S_MAX = 10**9
_BYTES_MAX = 64 * LINES_MAX
_PROBLEMS_MAX = 20
_MILLION = 10**6
ENDS_BEFORE_FILES = (
    "its last rate is 0, and what the files hold beyond would never be read; end it with a rate above 0"
)
"""Why a trace that ends is refused for text files: they have an end of their own."""


class InvalidRateTrace(PermanentError):
    """A file is no rate trace. `problems` say what is wrong, a sentence each, with the line."""

    def __init__(self, problems: list[str]) -> None:
        rest = len(problems) - _PROBLEMS_MAX
        self.problems = tuple(problems[:_PROBLEMS_MAX]) + ((f"and {rest} more",) if rest > 0 else ())
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True, eq=False)
class RateTrace:
    """Piecewise constant: from `starts_us[k]` on `rates_per_s[k]`, with `counts[k]` rows due before it.

    All three are as long as the trace has lines; times are microseconds since the source's beginning. Row
    numbers count over the whole source, from 0, and may be fractions: a partition's row lies between two.
    """

    starts_us: NDArray[np.int64]
    rates_per_s: NDArray[np.float64]
    counts: NDArray[np.float64]

    @property
    def total(self) -> float:
        """How many rows there are in all; inf where the last rate is above 0."""
        return math.inf if self.rates_per_s[-1] > 0 else float(self.counts[-1])

    def due_us(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """When each of `rows` is due: the last moment before which no more than it are.

        So a row that would fall into a time of rate 0 is due at the end of that. inf from `total` on.
        """
        at = np.searchsorted(self.counts, rows, side="right") - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            within_us = (rows - self.counts[at]) * 1e6 / self.rates_per_s[at]
        # Only the last line can have rate 0 here: of equal counts the search finds the last.
        within_us = np.where(self.rates_per_s[at] > 0, within_us, np.inf)
        ends_us = np.append(self.starts_us[1:], np.inf)
        due_us: NDArray[np.float64] = np.minimum(self.starts_us[at] + within_us, ends_us[at])
        return due_us

    def reached_us(self, row: float) -> float:
        """The first moment before which `row` rows are due; where a time of rate 0 follows, its beginning."""
        at = max(0, int(np.searchsorted(self.counts, row, side="left")) - 1)
        start_us = float(self.starts_us[at])
        if self.rates_per_s[at] == 0:
            return start_us
        reached_us = start_us + (row - float(self.counts[at])) * 1e6 / float(self.rates_per_s[at])
        last = at + 1 == len(self.starts_us)
        return reached_us if last else min(reached_us, float(self.starts_us[at + 1]))

    def rows_before(self, at_us: float) -> float:
        """How many rows are due before `at_us`."""
        at = max(0, int(np.searchsorted(self.starts_us, at_us, side="right")) - 1)
        passed_us = max(0.0, at_us - float(self.starts_us[at]))
        return float(self.counts[at] + passed_us * self.rates_per_s[at] / 1e6)

    def rate_per_s(self, at_us: float) -> float:
        """The rate at a moment from 0 on."""
        return float(self.rates_per_s[max(0, int(np.searchsorted(self.starts_us, at_us, side="right")) - 1)])


def read_rate_trace(path: Path) -> RateTrace:
    """The trace in the file at `path`. Raises InvalidRateTrace with all problems."""
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise InvalidRateTrace([f"is larger than {_BYTES_MAX} bytes; at most {LINES_MAX} lines are read"])
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidRateTrace([f"no such file; put one there with lines of {HEADER}"]) from error
    except UnicodeDecodeError as error:
        raise InvalidRateTrace([f"is not UTF-8 text: {error.reason}"]) from error
    except OSError as error:
        raise InvalidRateTrace([f"cannot be read: {error.strerror}"]) from error
    return parse_rate_trace(text)


def parse_rate_trace(text: str) -> RateTrace:
    """As `read_rate_trace`, from text."""
    problems: list[str] = []
    starts_us: list[int] = []
    rates_e6: list[int] = []
    for number, line in _lines(text):
        read = _read(line)
        if isinstance(read, str):
            problems.append(f"line {number}: {read}")
            continue
        start_us, rate_e6 = read
        if not starts_us and not problems and start_us != 0:
            problems.append(f"line {number}: is the first, at second {start_us / 1e6:g}; begin at second 0")
        elif starts_us and start_us <= starts_us[-1]:
            problems.append(
                f"line {number}: second {start_us / 1e6:g} does not come after {starts_us[-1] / 1e6:g}; "
                "sort the lines by seconds, each second once"
            )
        starts_us.append(start_us)
        rates_e6.append(rate_e6)
    if not starts_us and not problems:
        problems.append(f"has no lines; give some of {HEADER}, such as 0,500")
    if len(starts_us) > LINES_MAX:
        problems.append(f"has {len(starts_us)} lines; at most {LINES_MAX} are read")
    if not problems and not any(rates_e6):
        problems.append("every rate is 0; give one above 0, or no row is ever due")
    if problems:
        raise InvalidRateTrace(problems)
    return _trace(starts_us, rates_e6)


def _trace(starts_us: list[int], rates_e6: list[int]) -> RateTrace:
    # Summed in whole numbers: a rounding error here would be one row more or less in the end.
    counts_e12 = [0]
    for at in range(len(starts_us) - 1):
        counts_e12.append(counts_e12[-1] + (starts_us[at + 1] - starts_us[at]) * rates_e6[at])
    return RateTrace(
        np.array(starts_us, dtype=np.int64),
        np.array([rate / _MILLION for rate in rates_e6], dtype=np.float64),
        np.array([count / 10**12 for count in counts_e12], dtype=np.float64),
    )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and content of the lines that say something."""
    first = True
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if not (first and stripped.replace(" ", "") == HEADER):
            yield number, stripped
        first = False


def _read(line: str) -> tuple[int, int] | str:
    """(microseconds, millionths of a row a second), or what is wrong with the line."""
    fields = line.split(",")
    if len(fields) != 2:
        return f"{_shown(line)} has {len(fields)} values; give two, {HEADER}"
    values: list[int] = []
    for field, name, most in zip(fields, HEADER.split(","), (SECONDS_MAX, RATE_PER_S_MAX), strict=True):
        try:
            value = Decimal(field.strip())
        except InvalidOperation:
            return f"{name} {_shown(field.strip())} is no number; give one such as 0.5 or 1200"
        if not value.is_finite():
            return f"{name} {field.strip()} is no finite number; give one such as 0.5 or 1200"
        if value < 0:
            return f"{name} {field.strip()} is negative; give 0 or more"
        if value > most:
            return f"{name} {field.strip()} is above {most}; give at most that"
        values.append(round(value * _MILLION))
    return values[0], values[1]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
