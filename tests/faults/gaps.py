"""How long streams paused after a fault, and how long they may. Pure.

Input is always due (`topology`), so a stream of which no row comes waits for something. What is counted is
the longest time between two looks at which rows of it came, from the last before the fault on. Neighbours:
`sink_watch` sees rows come, `plan` names kinds of faults, `report` shows these figures.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from faults.sink_watch import Stream

FLOWING_S = 1.0
"""A stream of which rows came within this time before a fault was flowing."""
OTHERS_S_MAX = 0.5
"""What a fault in one worker's tree may cost the sinks of another worker."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest pause that a fault brought. `others_s`: that of streams which workers that were not hit
    have for themselves; `bound_s` is None where only an end of the pause is asked for."""

    kind: str
    workers: int
    seed: int
    seconds: float
    bound_s: float | None
    stream: str = ""
    others_s: float | None = None
    others_stream: str = ""
    looked_late_s: float = 0.0
    """So long the looking itself was held up: the machine was too busy to measure better."""

    def faults(self, slack: float = 1.0) -> list[str]:
        """What is above its bound, in words; bounds are multiplied by `slack`."""
        found = []
        if self.bound_s is not None and self.seconds > self.bound_s * slack:
            found.append(f"{self.stream} paused for {self.seconds:.2f} s, bound {self.bound_s:g} s")
        if self.others_s is not None and self.others_s > OTHERS_S_MAX * slack:
            found.append(
                f"{self.others_stream} of another worker, paused for {self.others_s:.2f} s, "
                f"bound {OTHERS_S_MAX:g} s"
            )
        late = f" (looks were up to {self.looked_late_s:.2f} s apart)" if self.looked_late_s else ""
        return [f"{self.kind}: {fault}{late}" for fault in found]


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
    then counts as far as it goes. 0 for a stream that did not flow before."""
    first = bisect_right(moments, begin_s) - 1
    if first < 0 or begin_s - moments[first] > FLOWING_S:
        return 0.0
    within = [moments[first], *(at for at in moments[first + 1 :] if at < end_s), end_s]
    return max(after - before for before, after in pairwise(within))


def longest(
    grew_s: Mapping[Stream, Sequence[float]], streams: Collection[Stream], begin_s: float, end_s: float
) -> tuple[float, str]:
    """The longest pause of any of `streams`, and which one that was."""
    pauses = [(pause_s(grew_s.get(stream, ()), begin_s, end_s), stream.words()) for stream in streams]
    return max(pauses, default=(0.0, ""))


def flow(grew_s: Iterable[float], since_s: float, now_s: float) -> bool:
    """Whether rows of all of some streams came after `since_s` and within the last moment; `grew_s` says
    when last."""
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
