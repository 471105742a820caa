"""What the simulator may ask of a policy besides `decide`: to take in many looks that need no action at once.

Nearly every look leads to nothing, and in virtual time queues are worked out far ahead: looks need not be
shown one by one. Each module beside this one does it for one policy, whose state it leaves as single looks
would: it sees into that policy, and a property test compares the two. The live loop never looks ahead.
Neighbours: `looking_ahead` finds who does it for a policy, `replay` asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.control.streamswitch.slot_history import Flags, Floats
from penstock.simulation.queueing.ahead.snapshot_series import SnapshotSeries


@runtime_checkable
class ObservesMany(Protocol):
    """Who looks ahead for a policy; a policy may do so itself."""

    def observe_many(self, series: SnapshotSeries) -> int:
        """Take in snapshots from the front up to, not including, the first whose decision might have an
        action; answer how many that were, 0 to all. Afterwards the policy is as `decide` on each of them
        would have left it. Too few is slow, never wrong."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What looks that were taken in at once have shown of an operator: by look whether it was in good health,
    and (looks, executors) rates; of no executor while a treatment was under way. `tasks` are the executors',
    which serve at `service_per_s` together."""

    at_us: NDArray[np.int64]
    executors: tuple[str, ...]
    tasks: tuple[int, ...]
    arrival_per_s: Floats
    service_per_s: Floats
    is_good: Flags


@runtime_checkable
class TellsMany(Protocol):
    """A policy with `observe_many` that says what it saw, and heeds what is refused."""

    @property
    def told(self) -> Mapping[str, Sequence[Told]]:
        """By operator, in the order of time, of the looks that were taken in last."""
        ...

    def observe_many_refused(self, series: SnapshotSeries, scale_in_from_us: Mapping[str, float]) -> int:
        """`observe_many` where a scale-in of an operator is refused at every look before a moment: such a
        look has no action either."""
        ...
