"""What the API server refused of one topology's pods, and when it is tried again: pauses grow to a minute.

A quota, or whoever else admits pods, seldom changes its mind within a second; an edit of the Topology is
another question, and is asked at once. No I/O, no clock; it may be lost at any time. Neighbours: `decide`
leaves out what waits and says which are wanted still, `topology_turn` carries out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from penstock_operator.cluster.observing.observed import Refused

PAUSE_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class _Try:
    message: str
    count: int
    again_s: float
    generation: int
    """Of the Topology that was tried."""


@dataclass(slots=True)
class PodTries:
    """Belongs to one loop."""

    _tries: dict[str, _Try] = field(default_factory=dict)

    def seen(self, generation: int, now_s: float) -> tuple[Refused, ...]:
        """What stands refused, and what of it is not to be tried now."""
        return tuple(
            Refused(name, one.message, waits=one.generation == generation and now_s < one.again_s)
            for name, one in self._tries.items()
        )

    def tried(
        self,
        refused: Sequence[Refused],
        awaited: Collection[str],
        generation: int,
        now_s: float,
        *,
        is_complete: bool,
    ) -> bool:
        """After a turn: what was refused now, and what is `awaited`, that is wanted and was not tried; not
        `is_complete`: the turn did not come to all of it. Whether something new was refused. What was done,
        or is not wanted any more, is forgotten."""
        before = self._tries
        self._tries = {name: one for name, one in before.items() if not is_complete or name in awaited}
        for one in refused:
            known = before.get(one.name)
            count = known.count + 1 if known is not None and known.generation == generation else 1
            pause_s = min(2.0 ** (count - 1), PAUSE_S_MAX)
            self._tries[one.name] = _Try(one.message, count, now_s + pause_s, generation)
        return any(one.name not in before for one in refused)
