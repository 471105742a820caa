"""Which windows of one length a time is in: pure arithmetic, in whole milliseconds since 1970.

Time is cut wherever a window begins or ends, and rows are gathered by these slices; a window is some slices
in a row. Windows that overlap share them, so a row counts once however many windows it is in: paired
windows, of "On-the-Fly Sharing for Streamed Aggregation" (Krishnamurthy et al., SIGMOD 2006), section 4.
Of a tumbling window the slice is the window. Neighbours: `sessions` (windows that rows make themselves),
`aligned_windows` (who gathers).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from penstock.dataflow.window import Sliding, Tumbling


class ClosedWindow(NamedTuple):
    """[start, end), and where in the sorted slices its own are: from `first` to before `behind`."""

    start_ms: int
    end_ms: int
    first: int
    behind: int


class Slicing:
    """The slices of windows [offset + n * every, offset + n * every + size); their starts name them."""

    def __init__(self, window: Tumbling | Sliding) -> None:
        self.size_ms = window.size_ms
        self.every_ms = window.every_ms
        self.offset_ms = window.offset_ms
        self._cut_ms = window.size_ms % window.every_ms
        """How far behind a window's start an earlier one ends; 0 where both are one."""
        self.slices_each = window.size_ms // window.every_ms * (2 if self._cut_ms else 1)
        """So many slices has a window, or one more."""

    def slice_of(self, time_ms: int) -> int:
        """The start of the slice that a time is in."""
        return self.span_of(time_ms)[0]

    def span_of(self, time_ms: int) -> tuple[int, int]:
        """Start and end of the slice that a time is in."""
        into = (time_ms - self.offset_ms) % self.every_ms
        begin = time_ms - into
        if into < self._cut_ms:
            return begin, begin + self._cut_ms
        return begin + self._cut_ms, begin + self.every_ms

    def windows_of(self, time_ms: int) -> list[tuple[int, int]]:
        """Start and end of every window that a time is in, in order."""
        first, last = self.first_end(time_ms), self.last_end(time_ms)
        return [(end - self.size_ms, end) for end in range(first, last + 1, self.every_ms)]

    def first_end(self, time_ms: int) -> int:
        """The end of the first window that a time, or the slice that begins there, is in."""
        return time_ms + self.every_ms - (time_ms - self.offset_ms - self.size_ms) % self.every_ms

    def last_end(self, time_ms: int) -> int:
        """The end of the last window that a time, or the slice that begins there, is in."""
        return time_ms - (time_ms - self.offset_ms) % self.every_ms + self.size_ms

    def closed(
        self, starts: Sequence[int], next_end_ms: int, watermark_ms: int
    ) -> tuple[list[ClosedWindow], int, int | None]:
        """Which windows the watermark has passed, in order, from the one that ends at `next_end_ms` on.

        `starts` are the slices that hold rows, sorted; each window has some of them. Also: how many of the
        slices are in no later window, and when the next one ends that has any (None: there is none).
        """
        if len(starts) == 1 and self.last_end(starts[0]) == next_end_ms <= watermark_ms:
            return [ClosedWindow(next_end_ms - self.size_ms, next_end_ms, 0, 1)], 1, None
        found = []
        done = 0
        end = next_end_ms
        while done < len(starts) and end <= watermark_ms:
            start = end - self.size_ms
            first = bisect_left(starts, start, done)
            behind = bisect_left(starts, end, first)
            if first < behind:
                found.append(ClosedWindow(start, end, first, behind))
            while done < len(starts) and self.last_end(starts[done]) <= end:
                done += 1
            if done < len(starts):
                end = max(end + self.every_ms, self.first_end(starts[done]))
        return found, done, end if done < len(starts) else None
