"""Where to send entries for a shard of another store: the newest schedule's word, and what stores answered.

A shard that moves is at its old home until the move is made, whatever the schedule says. So a store that
knows nothing of it sends us to the next candidate: the home before, then every other store; and one that
says MOVED sends us there. All of that is a guess about the past: a store that does not answer, or that no
schedule names any more, sends us back to the schedule's own home, which knows whether it has the shard.
Neighbours: `delivery` asks for every pair, and tells what was refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from penstock.store.port import Answer, Moved


class Routes:
    """One topology's. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._homes: dict[str, str] = {}
        self._before: dict[str, str] = {}
        self._learned: dict[str, str] = {}
        self._stores: tuple[str, ...] = ()

    def learn(self, homes: Mapping[str, str], stores: Iterable[str]) -> bool:
        """The newest schedules: shard -> home, and all stores that there are. True when that is news."""
        with self._lock:
            known = tuple(sorted(set(stores)))
            if known == self._stores and homes == self._homes:
                return False
            self._stores = known
            for shard, home in homes.items():
                old = self._homes.get(shard)
                if old is not None and old != home:
                    # it is there still, as far as anybody knows
                    self._before[shard] = old
                    self._learned.setdefault(shard, old)
            self._homes = dict(homes)
            for about in (self._before, self._learned):
                for shard in [one for one, store in about.items() if self._is_past(one, store)]:
                    del about[shard]
            return True

    def is_known(self, store: str) -> bool:
        """Whether any schedule names the store."""
        with self._lock:
            return store in self._stores

    def home_of(self, shard: str) -> str | None:
        """The store to try now, None when nobody ever heard of the shard."""
        with self._lock:
            return self._learned.get(shard) or self._homes.get(shard)

    def refused(self, shard: str, asked: str, answer: Answer | Moved) -> None:
        """Store `asked` did not take an entry for `shard`."""
        with self._lock:
            home = self._homes.get(shard)
            if isinstance(answer, Moved):
                self._set(shard, answer.store_id, home)
            elif answer is Answer.UNKNOWN and home is not None:
                self._set(shard, self._next(shard, asked, home), home)

    def unreachable(self, shard: str, asked: str) -> None:
        """Store `asked` did not answer, or nobody knows its address: is the shard at the other of the two
        stores where it may be? Entries go by their numbers, so asking does no harm."""
        with self._lock:
            home = self._homes.get(shard)
            if home is not None:
                self._set(shard, home if asked != home else self._before.get(shard, home), home)

    def moved(self, shard: str, store_id: str) -> None:
        """The shard was seen to arrive at a store."""
        with self._lock:
            self._set(shard, store_id, self._homes.get(shard))

    def _is_past(self, shard: str, store: str) -> bool:
        """No schedule names the one or the other any more."""
        return store not in self._stores or shard not in self._homes

    def _set(self, shard: str, store: str, home: str | None) -> None:
        if store == home:
            self._learned.pop(shard, None)
        else:
            self._learned[shard] = store

    def _next(self, shard: str, asked: str, home: str) -> str:
        """The candidate after `asked`: the home before, the home, all others, and so on from the start."""
        before = self._before.get(shard)
        candidates = [*([before] if before and before != home else []), home]
        candidates += [store for store in self._stores if store not in candidates]
        at = candidates.index(asked) + 1 if asked in candidates else 0
        return candidates[at % len(candidates)]
