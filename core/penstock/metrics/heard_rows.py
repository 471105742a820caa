"""When metric rows were last heard: by the clock of who reads them, from seeing them change.

A row says when it was written by its writer's clock. Clocks of nodes differ and are set; how old a row is
decides whether a task is thought to live. Neighbours: `rows`; `penstock run` and the cluster's operator read.
"""

from __future__ import annotations

from collections.abc import Collection

SKEW_US_MAX = 5_000_000
"""So far ahead a writer's clock may be and be believed, of a row that was there at the first look."""


class HeardRows:
    """The rows of one store. Times in microseconds; `now_us` is the reader's, and never goes back."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[bytes, int]] = {}
        self._is_first = True

    def at_us(self, name: str, packed: bytes, said_us: int, now_us: int) -> int:
        """When row `name` was heard last; `said_us` is what it says itself.

        At the first look there is nothing to compare with: a row counts as it says, and one from the future
        as never heard, until it changes.
        """
        before = self._heard.get(name)
        if before is not None and before[0] == packed:
            return before[1]
        at_us = now_us
        if before is None and self._is_first:
            at_us = min(said_us, now_us) if said_us <= now_us + SKEW_US_MAX else 0
        self._heard[name] = (packed, at_us)
        return at_us

    def looked(self, names: Collection[str]) -> None:
        """A look is over; these rows were there."""
        self._is_first = False
        for name in self._heard.keys() - names:
            del self._heard[name]
