"""What a task does while its store is at its memory limit: nothing new comes in, what waits is worked off.

A store tells it by the answer to a fetch, at no cost. From then on sources are not read, commits fill queues
under `Bounds.pressed`, and fetches are made under these too; now and then one is made as usual, and when that
goes well it is over. `docs/decisions/0021-memory-under-pressure.md` has the reasons. Neighbour: `task.loop`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from penstock.store.port import Commit, Fetch, Fetched

_LOG = logging.getLogger(__name__)

PRESSED_US = 100_000
"""A store that was at its memory limit is asked again after so long whether it still is."""
REST_US = 20_000
"""So long a source's task rests at a time: its list has shards on it, so that no bell rings."""
_TOLD_US = 60_000_000


class StorePressure:
    """One per task. Times are the clock's `monotonic_us`."""

    def __init__(self, task: str, *, source: bool) -> None:
        self._task = task
        self._source = source
        self._until_us = 0
        self._told_us = 0
        self.is_on = False
        """As far as the last usual fetch told."""

    @property
    def holds_source(self) -> bool:
        """Nothing is to be read now."""
        return self.is_on and self._source

    def fetch(self, fetch: Fetch, now_us: int) -> Fetch:
        """The next fetch, which would be this one; a source's takes no shard while the store is full."""
        if self.is_on and now_us < self._until_us:
            return replace(fetch, shards_max=0 if self._source else fetch.shards_max, pressed=True)
        return fetch

    def commits(self, commits: Sequence[Commit]) -> Sequence[Commit]:
        """Commits as they are to be sent now."""
        return [structs.replace(commit, pressed=True) for commit in commits] if self.is_on else commits

    def note(self, fetch: Fetch | None, fetched: Fetched, now_us: int) -> None:
        """What a fetch told; a pressed one tells nothing."""
        if fetched.full:
            self.is_on = True
            self._until_us = now_us + PRESSED_US
            if now_us >= self._told_us:
                self._told_us = now_us + _TOLD_US
                doing = "nothing is read" if self._source else "what waits is worked off"
                _LOG.warning("%s: the store is at its memory limit: %s", self._task, doing)
        elif fetch is not None and not fetch.pressed:
            self.is_on = False
