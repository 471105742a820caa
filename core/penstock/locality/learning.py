"""Whether counts tell enough: what tables would bring, looked at again as more is counted.

The first rows of a topology often come in a few large batches, and of these few are counted: many pairs have
no name yet. A table of such counts leaves half of the keys where they are, and the next one has to rest. So
none is begun while half as many records more would still make a better one. No I/O, no clock. Neighbour:
`loop` tells of each decision.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.locality.locality_decision import LocalityDecision

_MORE_RECORDS = 1.5
"""Of those counted when it was last looked: fewer show nothing new."""
_LEARNED_TIMES = 20
"""Of the records that a decision asks for at the least: with more, a table is as good as it is, and what
changes is the world."""


@dataclass(frozen=True, slots=True)
class _Looked:
    records: int = 0
    local_share: float = 0.0
    grew: bool = True


class Learning:
    """Of one topology. `growth`: counts are learned from as long as half as many records more bring more than
    this of the local share that tables are expected to reach; 1 and above: never. `records_min`: of a
    decision."""

    def __init__(self, growth: float, records_min: int) -> None:
        self._growth = growth
        self._records_max = _LEARNED_TIMES * records_min
        self._looked: dict[tuple[str, ...], _Looked] = {}

    def forget(self) -> None:
        """Counts begin anew."""
        self._looked.clear()

    def is_done(self, decision: LocalityDecision) -> bool:
        """Whether `decision` may be carried out, as far as counts go. It is to be told all decisions, also
        those of which nothing comes for other reasons."""
        if decision.expected is None or self._growth >= 1:
            return True
        records = sum(edge.records for edge in decision.seen)
        looked = self._looked.get(decision.operators, _Looked())
        if records < looked.records:
            # A task, or all of them, began to count anew.
            looked = _Looked()
        if records >= _MORE_RECORDS * looked.records:
            share = decision.expected.local_share
            looked = _Looked(records, share, grew=share > looked.local_share + self._growth)
            self._looked[decision.operators] = looked
        return not looked.grew or records >= self._records_max
