"""How long sink files paused after a fault, and how long they may. Pure.

Input is always due (`topology`), so a file that does not grow waits for something. What is counted is the
longest time between two growths of one file, from the last growth before the fault on. Neighbours:
`sink_watch` sees growths, `plan` names kinds of faults, `report` shows these figures.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

FLOWING_S = 1.0
"""A file that grew within this time before a fault was flowing."""
OTHERS_S_MAX = 0.5
"""What a fault in one worker's tree may cost the sinks of another worker."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest pause that a fault brought. `others_s`: that of files of workers that were not hit, where
    there are such with input of their own; `bound_s` is None where only an end of the pause is asked for."""

    kind: str
    workers: int
    seed: int
    seconds: float
    bound_s: float | None
    file: str = ""
    others_s: float | None = None
    others_file: str = ""
    looked_late_s: float = 0.0
    """So long the looking itself was held up: the machine was too busy to measure better."""

    def faults(self, slack: float = 1.0) -> list[str]:
        """What is above its bound, in words; bounds are multiplied by `slack`."""
        found = []
        if self.bound_s is not None and self.seconds > self.bound_s * slack:
            found.append(
                f"{self.kind}: {self.file} paused for {self.seconds:.2f} s, bound {self.bound_s:g} s"
            )
        if self.others_s is not None and self.others_s > OTHERS_S_MAX * slack:
            found.append(
                f"{self.kind}: {self.others_file} of another worker paused for {self.others_s:.2f} s, "
                f"bound {OTHERS_S_MAX:g} s"
            )
        return found


@dataclass(frozen=True, slots=True)
class KindOfGap:
    """All gaps of one kind with one number of workers."""

    kind: str
    workers: int
    count: int
    median_s: float
    max_s: float
    bound_s: float | None
    others_s: float | None
    above: int
    """How many are above a bound."""


def pause_s(moments: Sequence[float], begin_s: float, end_s: float) -> float:
    """The longest time between two growths from the last one before `begin_s` to `end_s`; what is not over
    then counts as far as it goes. 0 for a file that did not grow in the `FLOWING_S` before."""
    first = bisect_right(moments, begin_s) - 1
    if first < 0 or begin_s - moments[first] > FLOWING_S:
        return 0.0
    within = [moments[first], *(at for at in moments[first + 1 :] if at < end_s), end_s]
    return max(after - before for before, after in pairwise(within))


def longest(
    grew_s: Mapping[Path, Sequence[float]], files: Collection[Path], begin_s: float, end_s: float
) -> tuple[float, str]:
    """The longest pause of any of `files`, and which file that was."""
    pauses = [
        (pause_s(grew_s.get(path, ()), begin_s, end_s), f"{path.parent.name}/{path.name}") for path in files
    ]
    return max(pauses, default=(0.0, ""))


def flow(grew_s: Iterable[float], since_s: float, now_s: float) -> bool:
    """Whether all of some files grew after `since_s` and within the last moment; `grew_s` says when last."""
    return all(last_s > max(since_s, now_s - FLOWING_S) for last_s in grew_s)


def by_kind(gaps: Sequence[Gap]) -> list[KindOfGap]:
    """A line for each kind and number of workers."""
    grouped: dict[tuple[str, int], list[Gap]] = {}
    for gap in gaps:
        grouped.setdefault((gap.kind, gap.workers), []).append(gap)
    lines = []
    for (kind, workers), group in sorted(grouped.items()):
        others = [gap.others_s for gap in group if gap.others_s is not None]
        lines.append(
            KindOfGap(
                kind,
                workers,
                len(group),
                median(gap.seconds for gap in group),
                max(gap.seconds for gap in group),
                max((gap.bound_s for gap in group if gap.bound_s is not None), default=None),
                max(others, default=None),
                sum(bool(gap.faults()) for gap in group),
            )
        )
    return lines
