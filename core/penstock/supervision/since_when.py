"""Since when something has been so, as supervision remembers it from one look to the next.

Pure, and it may be lost at any time: then waits begin anew. Neighbours: `judge`, `bringing_up` and `settled`
ask how long something lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class SinceWhen:
    """`before` is what was so at the last look, and since when; `after` is carried on: what is not asked for
    any more is forgotten."""

    before: Mapping[str, float]
    now_s: float
    after: dict[str, float] = field(default_factory=dict)

    def lasts_s(self, what: str) -> float:
        """For how long `what` has been so, with this look. Begins at 0."""
        since_s = self.before.get(what, self.now_s)
        self.after[what] = since_s
        return self.now_s - since_s

    def mark(self, what: str) -> None:
        """`what` happened now."""
        self.after[what] = self.now_s

    def recalls(self, what: str, for_s: float) -> bool:
        """Whether `what` was marked less than `for_s` ago."""
        at_s = self.before.get(what)
        if at_s is None or self.now_s - at_s >= for_s:
            return False
        self.after[what] = at_s
        return True
