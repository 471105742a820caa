"""What each topology holds in this node's store, found out some shards at a time, and left as a metric row.

The store keeps no sum: a counter of state bytes would cost each commit time. So shards are weighed in turn,
by samples, at a pace that is bounded whatever their number; a figure is as old as a pass over all shards
takes. The operator reads the rows and acts by them (`cluster/quota.py`): only it can stop the sources of a
topology that are on other nodes. Neighbour: `node_agent` calls after each turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.metrics.rows import HELD_ROW_NAME, HeldRow, pack
from penstock.store.port import NodeStore, PutMetrics, UnreadableState, Weigh

STEP_S = 1.0
SHARDS_PER_STEP = 192
_SHARDS_PER_CALL = 16
"""At 10 to 30 microseconds each; no call may hold the store for long."""


@dataclass(slots=True)
class _Scale:
    """What is known of one topology. `is_complete` once every shard was weighed."""

    weights: dict[str, int] = field(default_factory=dict)
    is_complete: bool = False


class Weighing:
    """Belongs to one thread. `open_store` is topology uid -> the store with this id; `wall_us` stamps rows;
    `full_of_bytes` answers the store's memory limit while it is at it, else 0."""

    def __init__(
        self,
        store_id: str,
        open_store: Callable[[str], NodeStore],
        wall_us: Callable[[], int],
        full_of_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store_id = store_id
        self._full_of_bytes = full_of_bytes
        self._open_store = open_store
        self._wall_us = wall_us
        self._scales: dict[str, _Scale] = {}
        self._to_do: deque[tuple[str, str]] = deque()
        self._stepped_s = float("-inf")

    @property
    def held_bytes(self) -> dict[str, int]:
        """Topology uid -> bytes, of those that were weighed."""
        return {uid: sum(one.weights.values()) for uid, one in self._scales.items() if one.is_complete}

    def step(self, here: Callable[[], Mapping[str, Sequence[str]]], generation: int, now_s: float) -> None:
        """Weigh some shards, if it is time, and write the rows of topologies that are known as a whole.

        `here` is topology uid -> shards in this store. Raises StoreUnreachable.
        """
        if now_s - self._stepped_s < STEP_S:
            return
        self._stepped_s = now_s
        shards = {uid: frozenset(names) for uid, names in here().items()}
        for uid in self._scales.keys() - shards.keys():
            del self._scales[uid]
        for uid, names in shards.items():
            if names or uid in self._scales:
                scale = self._scales.setdefault(uid, _Scale())
                scale.weights = {shard: held for shard, held in scale.weights.items() if shard in names}
        self._weigh_some(shards)
        now_us = self._wall_us()
        for uid, scale in self._scales.items():
            if scale.is_complete:
                row = HeldRow(
                    self._store_id,
                    generation,
                    now_us,
                    sum(scale.weights.values()),
                    len(scale.weights),
                    self._full_of_bytes(),
                )
                with suppress(UnreadableState):  # its own trouble, which the turns tell
                    self._open_store(uid).call(PutMetrics(((HELD_ROW_NAME, pack(row)),)))

    def _weigh_some(self, shards: Mapping[str, frozenset[str]]) -> None:
        left = SHARDS_PER_STEP
        while left > 0:
            if not self._to_do:
                if left < SHARDS_PER_STEP:
                    return  # everything once is enough for one step
                self._to_do.extend((uid, shard) for uid in sorted(shards) for shard in sorted(shards[uid]))
                for uid, held_here in shards.items():
                    if not held_here and uid in self._scales:
                        self._scales[uid].is_complete = True
                if not self._to_do:
                    return
            uid = self._to_do[0][0]
            names: list[str] = []
            while self._to_do and self._to_do[0][0] == uid and len(names) < _SHARDS_PER_CALL:
                names.append(self._to_do.popleft()[1])
            left -= len(names)
            if uid in self._scales:
                self._take(uid, [name for name in names if name in shards[uid]])
                # the next one in line is another's: this one's pass has ended
                self._scales[uid].is_complete |= not self._to_do or self._to_do[0][0] != uid

    def _take(self, uid: str, names: Sequence[str]) -> None:
        if names:
            try:
                weights = self._open_store(uid).call(Weigh(tuple(names)))
            except UnreadableState:
                return
            self._scales[uid].weights.update(
                {name: held or 0 for name, held in zip(names, weights, strict=True)}
            )
