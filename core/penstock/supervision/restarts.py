"""The starts of one worker: how long the next one waits after a death, and when there is none any more.

The longer deaths come one upon the other, the longer the next start waits; a worker that was ready for a
while starts again at once. One that never becomes ready is given up. In a cluster the kubelet does this for
the containers of a pod; `penstock run` has nobody else to do it. Pure. Neighbours: `judge` says how a worker
is, `numbers` makes those that may start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

DELAYS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 10.0)
"""Before the first, second, ... start after deaths that came one upon the other."""
STEADY_AFTER_S = 30.0
"""A worker that was ready for so long starts again without delay."""
EARLY_DEATHS_MAX = 5
"""Deaths in a row, none of them after having been ready: it will not become ready."""


@dataclass(frozen=True, slots=True)
class Starts:
    """`is_up` holds between ready and death, `again_at_s` is set between death and the next start. `again`
    counts the starts that followed a death."""

    is_up: bool = False
    up_since_s: float = 0.0
    again_at_s: float | None = None
    early_deaths: int = 0
    deaths_in_row: int = 0
    again: int = 0

    @property
    def is_hopeless(self) -> bool:
        return self.early_deaths >= EARLY_DEATHS_MAX

    def may_start(self, now_s: float) -> bool:
        return self.again_at_s is not None and now_s >= self.again_at_s

    def became_ready(self, now_s: float) -> Starts:
        return replace(self, is_up=True, up_since_s=now_s, early_deaths=0)

    def died(self, now_s: float) -> Starts:
        was_steady = self.is_up and now_s - self.up_since_s >= STEADY_AFTER_S
        deaths_in_row = 1 if was_steady else self.deaths_in_row + 1
        return replace(
            self,
            is_up=False,
            again_at_s=now_s + DELAYS_S[min(deaths_in_row, len(DELAYS_S)) - 1],
            early_deaths=0 if self.is_up else self.early_deaths + 1,
            deaths_in_row=deaths_in_row,
        )

    def started_again(self) -> Starts:
        return replace(self, again_at_s=None, again=self.again + 1)
