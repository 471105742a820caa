"""Up at once, down slowly: which cores executors may keep that they do not need (decision record 0013).
Neighbour: `policy` gives back what is left."""

from __future__ import annotations

import numpy as np

from penstock.control.elasticutor.jackson import Integers
from penstock.control.elasticutor.load import Load


class Surplus:
    """Up at once, down slowly: an executor keeps the most that it needed within `after_us`, and gives cores
    back only after it has had too many for all of that time."""

    def __init__(self, after_us: int) -> None:
        self._after_us = after_us
        self._since: dict[str, tuple[int, int]] = {}
        """Executor -> (since when it has had too many, the most that it needed since)."""

    def is_due(self, load: Load, needed: Integers, now: Integers) -> bool:
        """Whether `keep` would let anyone keep less than it has."""
        short_of_us = load.snapshot.at_us - self._after_us
        return any(
            self._since.get(load.executors[j].name, (load.snapshot.at_us, 0))[0] <= short_of_us
            for j in np.flatnonzero(needed < now).tolist()
        )

    def keep(self, load: Load, needed: Integers, now: Integers) -> list[int]:
        """Cores that each executor may keep at this moment."""
        at_us = load.snapshot.at_us
        answer: list[int] = np.maximum(needed, now).tolist()
        since: dict[str, tuple[int, int]] = {}
        for j in np.flatnonzero(needed < now).tolist():
            name = load.executors[j].name
            since_us, most = self._since.get(name, (at_us, 0))
            most = max(most, int(needed[j]))
            if at_us - since_us >= self._after_us:
                answer[j] = most
            else:
                since[name] = since_us, most
        self._since = since
        return answer
