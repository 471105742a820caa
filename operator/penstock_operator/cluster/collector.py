"""Python's cycle collector, kept from holding up the whole process.

While it looks through all objects no thread runs, the Lease's as little as any other: for more than a
second with the objects of 1 000 Topologies, every few seconds. So it looks through old ones more seldom, and
what has survived such a look is set aside: it is freed as ever when nothing refers to it any more, and not
looked through again. Only a cycle that was alive then and is dropped later stays, some dozen small objects
each time; so after many times all is looked through once, right after a renewal of the Lease, when the next
one has time. Neighbours: `main` begins, `lease` tells of renewals.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

LONG_S = 0.005
YOUNG_LOOKS = 15
"""So many of objects that are young come before one of the old ones; Python's own number is 10. With 50 of
them one took 90 ms while some of 1 000 Topologies changed, with 15 it takes up to 60."""
TIMES_MAX = 1500
"""So often things are set aside before all is looked through."""
_OLDEST = 2


class ShortCollections:
    """From when it is made until `end`. `set_aside` is called at first, for all that was imported, and after
    a full collection that took longer than `long_s`: what is alive then, garbage just having been taken out,
    is not to be looked through again."""

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        long_s: float = LONG_S,
        set_aside: Callable[[], None] = gc.freeze,
        take_back: Callable[[], None] = gc.unfreeze,
    ) -> None:
        self._clock_s = clock_s
        self._long_s = long_s
        self._set_aside = set_aside
        self._take_back = take_back
        self._began_s = 0.0
        self._times = 0
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*self._thresholds[:2], YOUNG_LOOKS)
        set_aside()
        gc.callbacks.append(self._told)

    def renewed(self) -> None:
        """The Lease was just renewed: a pause of a second or two makes nothing late."""
        if self._times >= TIMES_MAX:
            self._times = 0
            self._take_back()
            gc.collect()
            self._set_aside()

    def end(self) -> None:
        """Collections are as ever."""
        gc.callbacks.remove(self._told)
        gc.set_threshold(*self._thresholds)
        self._take_back()

    def _told(self, phase: str, about: Mapping[str, Any]) -> None:
        if about["generation"] != _OLDEST:
            return
        if phase == "start":
            self._began_s = self._clock_s()
        elif self._clock_s() - self._began_s > self._long_s:
            self._times += 1
            self._set_aside()
