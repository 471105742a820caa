"""Drives moves out of this store (and takes back, or tidies up, what is left of dead ones), four at a time.

What has to move is found out by `store_side` in each of its turns, and forgotten here without harm: a move's
step stands in the stores. Each mover takes one shard as far as it goes, then the next; one that cannot go on
comes again later. When that lasts the shard is let go until it can: its owner works, and what it changes is
not noted for ever. A mover goes a step at a time; its thread waits, and rests, between them. Neighbours:
`core/penstock/store/moving/mover.py` makes the steps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.store.moving.mover import MoveKind, StoreOf, go_back_once, let_go_once, move_once, tidy_once
from penstock.store.moving.progress import MoveObstacle, MoveProgress, MoveStep
from penstock.store.port import NodeStore, StoreUnreachable, UnreadableState
from penstock_operator.agent.copy_pace import CopyPace
from penstock_operator.agent.kept_stores import KeptStores, OpenStore
from penstock_operator.agent.kept_thread import KeptThread, MakeThread, ThreadFaults
from penstock_operator.agent.store_side import DueMove

_LOG = logging.getLogger(__name__)

MOVES_AT_ONCE = 4
PRECOPY_SHARE = 0.25
"""So much of its time each of them spends on copying ahead of a freeze: nobody waits for that, while all that
works on this node and the other one would wait for the cores that it takes."""
PRECOPY_BURST_S = 0.1
"""So long it copies without a rest when it has not copied for a while: a shard of some thousand fields is
there in that time."""
_CHUNKS_AT_ONCE = 16
"""So many chunks are copied, or dropped, before both stores are asked again how far the move is."""
_CHUNKS_AHEAD_BETWEEN_RESTS = 2
"""So many once it rests, or is about to, so that no rest is long. A shard that stands still is copied without
any."""
_AT_ONE_S = 10.0
"""After so long a mover leaves a shard for later while another topology has one that nobody is at: what a
topology's workers write decides how long its shards take."""
_AGAIN_S = 0.2
_AGAIN_WHEN_FULL_S = 15.0
"""A store that had no room for a shard is not asked at once again: each try copies, and notes changes."""
_AGAIN_WHEN_UNREADABLE_S = 15.0
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
        thread: MakeThread = KeptThread,
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
        self._of_one = False
        """Whether all that is wanted is of one topology."""
        self._under_way: set[_Key] = set()
        self._not_before_s: dict[_Key, float] = {}
        self._stuck_since_s: dict[_Key, float] = {}
        self._progress: dict[_Key, MoveProgress] = {}
        self._threads = [
            thread("mover", self._run, faults or ThreadFaults(), self._stopping, name=f"mover-{number}")
            for number in range(MOVES_AT_ONCE)
        ]
        self.count = MoveCount()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def want(self, moves: Sequence[DueMove]) -> None:
        """All that has to be done now, in order; takes the place of what was wanted before."""
        with self._condition:
            self._wanted = {(move.topology_uid, move.shard): move for move in moves}
            self._of_one = len({uid for uid, _ in self._wanted}) == 1
            remembered: tuple[dict[_Key, Any], ...] = (
                self._not_before_s, self._stuck_since_s, self._progress,
            )  # fmt: skip
            for about in remembered:
                for key in about.keys() - self._wanted.keys():
                    del about[key]
            self._condition.notify(len(moves))

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
        mover = self.mover()
        try:
            while self._await_move(mover):
                while not self._stopping.is_set() and (rest_s := mover.go_on()) is not None:
                    if rest_s > 0:
                        self._rest_s(rest_s)
        finally:
            mover.close()

    def _await_move(self, mover: Mover) -> bool:
        """Wait for a shard that nobody is at, and let the mover take it; False when it is time to end."""
        with self._condition:
            while not self._stopping.is_set():
                now_s = self._clock_s()
                if mover.take(now_s):
                    return True
                waits_s = (self.wait_s(now_s), mover.closes_in_s(now_s))
                self._condition.wait(min((each for each in waits_s if each is not None), default=None))
            return False

    def wait_s(self, now_s: float) -> float | None:
        """How long until there is a shard to take; None while nobody waits for one."""
        with self._condition:
            ready = self._wanted.keys() - self._under_way
            return min((self._not_before_s.get(key, now_s) - now_s for key in ready), default=None)

    def mover(self) -> Mover:
        """What one thread goes on with."""
        return Mover(self, self._open_store, self._clock_s)

    # --- for movers

    @property
    def store_id(self) -> str:
        return self._store_id

    def take(self, now_s: float) -> DueMove | None:
        """A shard that nobody is at, and whose time has come: it is the caller's until `end`. However many a
        topology has, another one's is taken before a second mover is at one of them."""
        with self._condition:
            movers_at = Counter(uid for uid, _ in self._under_way)
            found, fewest = None, 0
            for key, move in self._wanted.items():
                if key in self._under_way or self._not_before_s.get(key, 0.0) > now_s:
                    continue
                if found is None or movers_at[key[0]] < fewest:
                    found, fewest = move, movers_at[key[0]]
                    if not fewest or self._of_one:
                        break
            if found is not None:
                self._under_way.add((found.topology_uid, found.shard))
            return found

    def others_wait(self, move: DueMove, now_s: float) -> bool:
        """Whether there is a shard of another topology that nobody is at, and whose time has come."""
        with self._condition:
            return any(
                key[0] != move.topology_uid
                and key not in self._under_way
                and self._not_before_s.get(key, 0.0) <= now_s
                for key in self._wanted
            )

    def end(self, move: DueMove, again_s: float | None) -> None:
        """The mover is done with it for now; None: for ever."""
        key = (move.topology_uid, move.shard)
        with self._condition:
            self._under_way.discard(key)
            if again_s is None:
                self._wanted.pop(key, None)
            else:
                self._not_before_s[key] = self._clock_s() + again_s
        if again_s is None:
            self._finished()

    def arrived(self, move: DueMove, store_id: str) -> None:
        """The shard is active there."""
        self._arrived(move.topology_uid, move.shard, store_id)

    def note(self, move: DueMove, here: NodeStore, store_of: StoreOf, progress: MoveProgress) -> float:
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


class Mover:
    """One at work: its connections, its pace, and the move that it is at. Belongs to one thread."""

    def __init__(self, driver: MoveDriver, open_store: OpenStore, clock_s: Callable[[], float]) -> None:
        self._driver = driver
        self._clock_s = clock_s
        self._pace = CopyPace(PRECOPY_SHARE, PRECOPY_BURST_S, clock_s())
        self._stores = KeptStores(open_store)
        self._move: DueMove | None = None
        self._taken_at_s = self._now_s = 0.0
        self.chunks_max = _CHUNKS_AT_ONCE
        """So many chunks are copied, or dropped, in one step at the most."""

    def take(self, now_s: float) -> bool:
        """Begin with the next shard, if there is one; else close connections that have not been used for
        long."""
        self._move, self._taken_at_s, self._now_s = self._driver.take(now_s), now_s, now_s
        if self._move is None:
            self._stores.close_unused(now_s)
        return self._move is not None

    def closes_in_s(self, now_s: float) -> float | None:
        """How long until a connection is to be closed if nobody uses it; None without any."""
        return self._stores.closes_in_s(now_s)

    def go_on(self) -> float | None:
        """One step of the move that was taken. Answers for how long to rest before the next one; None when
        the move has come to an end, or cannot go on now."""
        move = self._move
        if move is None:
            return None
        again_s: float | None = _AGAIN_AFTER_BUG_S
        try:
            rest_s, again_s = self._go_on(move)
        except PenstockError as error:
            is_its_own = isinstance(error, UnreadableState)
            rest_s, again_s = None, _AGAIN_WHEN_UNREADABLE_S if is_its_own else _AGAIN_S
            _LOG.warning("the move of %s has to wait: %s", move.shard, error)
        except BaseException:
            self._end(move, again_s)
            raise
        if rest_s is None:
            self._end(move, again_s)
        return rest_s

    def close(self) -> None:
        self._stores.close()

    def _end(self, move: DueMove, again_s: float | None) -> None:
        self._move = None
        self._driver.end(move, again_s)

    def _go_on(self, move: DueMove) -> tuple[float | None, float | None]:
        """For how long to rest, None when the move does not go on now; then when to try again, None: never
        again."""
        here = self._store_of(move, self._driver.store_id)
        if here is None:
            return None, _AGAIN_S

        def store_of(store_id: str) -> NodeStore | None:
            return self._store_of(move, store_id)

        began_s = self._clock_s()
        is_fresh = self._pace.held_s(began_s) > PRECOPY_BURST_S / 2
        chunks = self.chunks_max if is_fresh else min(_CHUNKS_AHEAD_BETWEEN_RESTS, self.chunks_max)
        progress = self._step(move, here, store_of, chunks)
        ended_s = self._now_s = self._clock_s()
        again_s = self._driver.note(move, here, store_of, progress)
        if move.kind is MoveKind.MOVE and progress.step is MoveStep.DROP:
            self._driver.arrived(move, progress.target)
        if progress.obstacle is not None:
            return None, again_s
        if progress.is_over:
            self._driver.count.finished += 1
            return None, None
        if ended_s - self._taken_at_s > _AT_ONE_S and self._driver.others_wait(move, ended_s):
            return None, 0.0
        if move.kind is MoveKind.BACK and progress.step is MoveStep.ACTIVATE:
            # It departed meanwhile: whoever says what is to be done has to look again.
            return None, None
        is_copying = progress.step is MoveStep.PRECOPY
        return (self._pace.rest_after(began_s, ended_s) if is_copying else 0.0), again_s

    def _store_of(self, move: DueMove, store_id: str) -> NodeStore | None:
        try:
            return self._stores.store(store_id, move.topology_uid, self._now_s)
        except StoreUnreachable:
            return None

    def _step(self, move: DueMove, here: NodeStore, store_of: StoreOf, chunks_ahead_max: int) -> MoveProgress:
        match move.kind:
            case MoveKind.MOVE:
                return move_once(
                    here,
                    store_of,
                    move.shard,
                    target_id=move.home,
                    version=move.version,
                    chunks_max=self.chunks_max,
                    chunks_ahead_max=chunks_ahead_max,
                )
            case MoveKind.BACK:
                return go_back_once(here, store_of, move.shard, chunks_max=self.chunks_max)
            case MoveKind.TIDY:
                return tidy_once(here, store_of, move.shard, chunks_max=self.chunks_max)
