"""Where shards are, for whoever asks about them from outside: at home, or where a move has taken them since.

Neighbours: `dead_letters` and the worker's `state.stored_state` ask about shards through it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.errors import RetryError
from penstock.store.port import Measure, NodeStore, ShardCounters

PAUSE_S = 0.05
TRIES = 100
"""So often is asked about a shard that is just changing its owner, or its store."""
_MEASURED_AT_ONCE = 256


class ShardUnsettled(RetryError):
    """A shard goes from owner to owner, or from store to store, each time that one looks."""


@dataclass(frozen=True, slots=True)
class ShardFound:
    """A shard, the store that has it, and what that one counts of it."""

    shard: str
    store: NodeStore
    counters: ShardCounters


class ShardHomes:
    """Of one topology. `homes` is shard -> id of the store that is said to have it, of all shards; `stores`
    are all that may. Calls raise StoreUnreachable."""

    def __init__(
        self,
        homes: Mapping[str, str],
        stores: Mapping[str, NodeStore],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._homes = homes
        self._stores = stores
        self._sleep = sleep

    def of_operator(self, operator: str) -> list[str]:
        """The shards of an operator that heads a stage."""
        return [shard for shard in self._homes if shard.startswith(f"{operator}/")]

    def find(self, shard: str) -> ShardFound | None:
        """Where it is; None where no store knows it. Raises ShardUnsettled."""
        ids = dict.fromkeys((self._homes.get(shard, ""), *self._stores))
        stores = [self._stores[one] for one in ids if one in self._stores]
        for _ in range(TRIES):
            is_known = False
            for store in stores:
                (counters,) = store.call(Measure((shard,)))
                if counters is not None and counters.is_here:
                    return ShardFound(shard, store, counters)
                is_known = is_known or counters is not None
            if not is_known:
                return None
            self._sleep(PAUSE_S)
        raise ShardUnsettled(f"shard {shard} is on its way from one store to another; ask again")

    def all(self) -> Iterator[ShardFound]:
        """Every shard that a store knows, as `find`; asked for many at a time."""
        by_home: dict[str, list[str]] = {}
        for shard, home in self._homes.items():
            by_home.setdefault(home, []).append(shard)
        for home, shards in by_home.items():
            for first in range(0, len(shards), _MEASURED_AT_ONCE):
                yield from self._measured(home, shards[first : first + _MEASURED_AT_ONCE])

    def _measured(self, home: str, shards: list[str]) -> Iterator[ShardFound]:
        store = self._stores[home]
        for shard, counters in zip(shards, store.call(Measure(tuple(shards))), strict=True):
            if counters is not None and counters.is_here:
                yield ShardFound(shard, store, counters)
            elif (elsewhere := self.find(shard)) is not None:
                yield elsewhere
