"""Drives moves out of this store (and takes back, or tidies up, what is left of dead ones), four at a time.

What has to move is found out by `store_side` in each of its turns, and forgotten here without harm: a move's
step stands in the stores. Each thread takes one shard as far as it goes, then the next; one that cannot go on
comes again later. When that lasts the shard is let go until it can: its owner works, and what it changes is
not noted for ever. Neighbours: `core/penstock/store/moving/mover.py` makes the steps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.store.moving.mover import MoveKind, StoreOf, go_back_once, let_go_once, move_once, tidy_once
from penstock.store.moving.progress import MoveObstacle, MoveProgress, MoveStep
from penstock.store.port import NodeStore, StoreUnreachable
from penstock_operator.agent.copy_pace import CopyPace
from penstock_operator.agent.kept_thread import KeptThread, ThreadFaults
from penstock_operator.agent.store_side import DueMove, OpenStore

_LOG = logging.getLogger(__name__)

MOVES_AT_ONCE = 4
PRECOPY_SHARE = 0.25
"""So much of its time each of them spends on copying ahead of a freeze: nobody waits for that, while all that
works on this node and the other one would wait for the cores that it takes."""
PRECOPY_BURST_S = 0.1
"""So long it copies without a rest when it has not copied for a while: a shard of some thousand fields is
there in that time."""
_CHUNKS_AHEAD_AT_ONCE = 16
"""So many chunks are copied ahead before both stores are asked again how far the move is."""
_CHUNKS_AHEAD_BETWEEN_RESTS = 2
"""So many once it rests, or is about to, so that no rest is long. A shard that stands still is copied without
any."""
_AGAIN_S = 0.2
_AGAIN_WHEN_FULL_S = 15.0
"""A store that had no room for a shard is not asked at once again: each try copies, and notes changes."""
_AGAIN_AFTER_BUG_S = 5.0
"""What ends one thread is not to end them all, one after the other."""
LET_GO_S = 3.0
"""A move that has not gone on for so long is let go; what a full store has of it goes too."""
_DISCARDS_MAX = 256

Arrived = Callable[[str, str, str], None]
"""Told of (topology uid, shard, store id); perhaps several times of one move."""

_Key = tuple[str, str]


@dataclass(slots=True)
class MoveCount:
    """Totals since the agent's start."""

    finished: int = 0
    copied_bytes: int = 0
    paused_bytes: int = 0
    obstacles: int = 0


class MoveDriver:
    """`open_store` gives connections to any store; `arrived` is told of each shard that is active at its
    target, `finished` when a move has come to its end."""

    def __init__(
        self,
        store_id: str,
        open_store: OpenStore,
        arrived: Arrived,
        finished: Callable[[], None],
        clock_s: Callable[[], float] = time.monotonic,
        rest_s: Callable[[float], object] | None = None,
        faults: ThreadFaults | None = None,
    ) -> None:
        self._store_id = store_id
        self._open_store = open_store
        self._arrived = arrived
        self._finished = finished
        self._clock_s = clock_s
        self._stopping = threading.Event()
        self._rest_s = rest_s or self._stopping.wait
        self._condition = threading.Condition()
        self._wanted: dict[_Key, DueMove] = {}
        self._under_way: set[_Key] = set()
        self._not_before_s: dict[_Key, float] = {}
        self._stuck_since_s: dict[_Key, float] = {}
        self._progress: dict[_Key, MoveProgress] = {}
        self._threads = [
            KeptThread("mover", self._run, faults or ThreadFaults(), self._stopping, name=f"mover-{number}")
            for number in range(MOVES_AT_ONCE)
        ]
        self.count = MoveCount()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def want(self, moves: Sequence[DueMove]) -> None:
        """All that has to be done now, in order; takes the place of what was wanted before."""
        with self._condition:
            topologies = {uid for uid, _ in self._wanted}
            self._wanted = {(move.topology_uid, move.shard): move for move in moves}
            remembered: tuple[dict[_Key, Any], ...] = (
                self._not_before_s, self._stuck_since_s, self._progress,
            )  # fmt: skip
            for about in remembered:
                for key in about.keys() - self._wanted.keys():
                    del about[key]
            if topologies <= {uid for uid, _ in self._wanted}:
                self._condition.notify(len(moves))
            else:
                # everybody has connections to close
                self._condition.notify_all()

    def progress(self) -> dict[tuple[str, str], MoveProgress]:
        """How far each move was seen last, by (topology uid, shard), of those that are still wanted."""
        with self._condition:
            return dict(self._progress)

    def stop(self) -> None:
        """A step that is under way is finished; does not wait."""
        with self._condition:
            self._stopping.set()
            self._condition.notify_all()

    def join(self, deadline_s: float) -> None:
        for thread in self._threads:
            thread.join(deadline_s - time.monotonic())

    def _run(self) -> None:
        stores: dict[_Key, NodeStore] = {}
        pace = CopyPace(PRECOPY_SHARE, PRECOPY_BURST_S, self._clock_s())
        try:
            while (move := self._next(stores)) is not None:
                self._go_on(move, stores, pace)
        finally:
            for store in stores.values():
                store.close()

    def _go_on(self, move: DueMove, stores: dict[_Key, NodeStore], pace: CopyPace) -> None:
        """Take a move as far as it goes now, and say when it comes again."""
        key = (move.topology_uid, move.shard)
        again_s: float | None = _AGAIN_AFTER_BUG_S
        try:
            again_s = self._drive(move, stores, pace)
        except PenstockError as error:
            again_s = _AGAIN_S
            _LOG.warning("the move of %s has to wait: %s", move.shard, error)
        finally:
            with self._condition:
                self._under_way.discard(key)
                if again_s is None:
                    self._wanted.pop(key, None)
                else:
                    self._not_before_s[key] = self._clock_s() + again_s
        if again_s is None:
            self._finished()

    def _next(self, stores: dict[_Key, NodeStore]) -> DueMove | None:
        """The next shard that nobody is at; waits for one. None when it is time to end. Connections in
        `stores` of topologies that nothing is wanted of are closed."""
        with self._condition:
            while not self._stopping.is_set():
                now_s = self._clock_s()
                ready = [key for key in self._wanted if key not in self._under_way]
                for key in ready:
                    if self._not_before_s.get(key, 0.0) <= now_s:
                        self._under_way.add(key)
                        return self._wanted[key]
                topologies = {uid for uid, _ in self._wanted}
                for line in [line for line in stores if line[1] not in topologies]:
                    stores.pop(line).close()
                wait_s = min((self._not_before_s[key] - now_s for key in ready), default=None)
                self._condition.wait(wait_s)
            return None

    def _drive(self, move: DueMove, stores: dict[_Key, NodeStore], pace: CopyPace) -> float | None:
        """Steps until the move has come to an end (None) or cannot go on now: then when to try again."""

        def store_of(store_id: str) -> NodeStore | None:
            key = (store_id, move.topology_uid)
            if key not in stores:
                try:
                    stores[key] = self._open_store(*key)
                except StoreUnreachable:
                    return None
            return stores[key]

        here = store_of(self._store_id)
        if here is None:
            return _AGAIN_S
        while not self._stopping.is_set():
            began_s = self._clock_s()
            is_fresh = pace.held_s(began_s) > PRECOPY_BURST_S / 2
            chunks = _CHUNKS_AHEAD_AT_ONCE if is_fresh else _CHUNKS_AHEAD_BETWEEN_RESTS
            progress = self._step(move, here, store_of, chunks)
            ended_s = self._clock_s()
            again_s = self._note(move, here, store_of, progress)
            if move.kind is MoveKind.MOVE and progress.step is MoveStep.DROP:
                self._arrived(move.topology_uid, move.shard, progress.target)
            if progress.obstacle is not None:
                return again_s
            if progress.is_over:
                self.count.finished += 1
                return None
            if progress.step is MoveStep.PRECOPY and (rest_s := pace.rest_after(began_s, ended_s)) > 0:
                self._rest_s(rest_s)
        return _AGAIN_S

    def _note(self, move: DueMove, here: NodeStore, store_of: StoreOf, progress: MoveProgress) -> float:
        """Count a step; let go of a shard whose move has been stuck for long. Answers when to try again."""
        key = (move.topology_uid, move.shard)
        with self._condition:
            self.count.copied_bytes += progress.copied_bytes
            self.count.paused_bytes += progress.paused_bytes
            if key in self._wanted:
                self._progress[key] = progress
            if progress.obstacle is None or progress.copied_bytes:
                self._stuck_since_s.pop(key, None)
            if progress.obstacle is None:
                return _AGAIN_S
            self.count.obstacles += 1
            now_s = self._clock_s()
            if now_s - self._stuck_since_s.setdefault(key, now_s) < LET_GO_S:
                return _AGAIN_S
            del self._stuck_since_s[key]
        if move.kind is not MoveKind.MOVE:
            return _AGAIN_S
        _LOG.warning("the move of %s to %s is let go: %s", move.shard, move.home, progress.obstacle)
        if progress.obstacle is not MoveObstacle.FULL:
            let_go_once(here, move.shard)
            return _AGAIN_S
        # A part of a copy in a store that is full keeps its own rest out.
        go_back_once(here, store_of, move.shard, chunks_max=_DISCARDS_MAX)
        return _AGAIN_WHEN_FULL_S

    def _step(
        self,
        move: DueMove,
        here: NodeStore,
        store_of: StoreOf,
        chunks_ahead_max: int,
    ) -> MoveProgress:
        match move.kind:
            case MoveKind.MOVE:
                return move_once(
                    here,
                    store_of,
                    move.shard,
                    target_id=move.home,
                    version=move.version,
                    chunks_ahead_max=chunks_ahead_max,
                )
            case MoveKind.BACK:
                return go_back_once(here, store_of, move.shard)
            case MoveKind.TIDY:
                return tidy_once(here, store_of, move.shard)
