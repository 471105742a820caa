"""Which rows are one session: pure logic over spans of time, in microseconds since 1970.

Rows are of one session where each comes at most a gap behind the one before, as in Spark: where it
comes a whole gap behind, it still belongs. What comes between two sessions makes them one. Neighbours:
`slices` (windows that the clock makes), `session_windows` (who gathers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """From its first to its last row. `accumulators` of rows that were worked on; `rows` that are to be."""

    first_us: int
    last_us: int
    accumulators: tuple[Any, ...] | None = None
    rows: tuple[Any, ...] = ()


def merged(spans: Iterable[Span], gap_us: int) -> list[list[Span]]:
    """The spans that are one session each, in order of time, as are the sessions."""
    sessions: list[list[Span]] = []
    last_us = 0
    for span in sorted(spans, key=lambda span: span.first_us):
        if sessions and span.first_us <= last_us + gap_us:
            sessions[-1].append(span)
            last_us = max(last_us, span.last_us)
        else:
            sessions.append([span])
            last_us = span.last_us
    return sessions


def spans_of(timed: Sequence[tuple[int, Any]], gap_us: int) -> list[Span]:
    """Rows with their times, put together by sessions; rows of one time stay in their order."""
    ordered = sorted(timed, key=lambda pair: pair[0])
    spans = []
    begin = 0
    for at in range(1, len(ordered) + 1):
        if at == len(ordered) or ordered[at][0] > ordered[at - 1][0] + gap_us:
            rows = tuple(row for _, row in ordered[begin:at])
            spans.append(Span(ordered[begin][0], ordered[at - 1][0], rows=rows))
            begin = at
    return spans
