"""A task of the simulation: the worker's task loop, one round trip a step.

It follows `penstock.store.ownership` as the worker does: one pipeline sends what is to be told, the
commits of the last batch and the next fetch; after any doubt ownership is dropped and claimed
again. Between two steps anything may happen to it: it may be stopped for long (and go on as a late
owner), or die. What it works on comes from `workload`; who gives it shards is `worker`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import (
    Acknowledge,
    Answer,
    Claim,
    Claimed,
    Commit,
    Fetch,
    Fetched,
    FetchedShard,
    Load,
    Measure,
    Owner,
    ReadOutbox,
    ReportFailure,
    StateWrite,
    StoreUnreachable,
    Tasks,
)
from penstock.store.stranding import StrandingWatch
from penstock_simulation.protocol.node import BOUNDS, Link
from penstock_simulation.protocol.workload import (
    COUNTED,
    SINK,
    OutOfOrder,
    State,
    fields_of,
    marking_timers,
    marks,
    rows_of,
    source_outputs,
    work,
)

REFRESH_TURNS = 40
"""The task map is read this often even when no control token came."""
PRESSED_TURNS = 5
"""A store that was at its memory limit is asked again after so long whether it still is."""
RECLAIM_TURNS = 5
"""After a refused claim the map is read again this soon."""


class Surroundings(Protocol):
    """What a task needs of the world: the partitions, the files, and somebody to tell what happened."""

    partitions: dict[str, list[bytes]]

    @property
    def turn(self) -> int: ...
    def now_us(self, skew_us: int) -> int: ...
    def write_sink(self, shard: str, position: int, payload: bytes) -> None: ...
    def claimed(self, task: SimulatedTask, shard: str, epoch: int) -> None: ...
    def committed(self, task: SimulatedTask, commit: Commit) -> None: ...
    def failure_counted(self, task: SimulatedTask, message: str) -> None: ...


@dataclass(slots=True)
class Held:
    """A shard in a task's hands: ownership, cached state, and what is being done."""

    owned: OwnedShard
    cache: State = field(default_factory=dict)
    fetched: FetchedShard | None = None
    commit: Commit | None = None


OwnedFactory = Callable[[str, Claimed], OwnedShard]


class SimulatedTask:
    """`owner.ready` is new for every start of a task."""

    def __init__(
        self,
        surroundings: Surroundings,
        owner: Owner,
        operator: str,
        link: Link,
        rng: random.Random,
        make_owned: OwnedFactory,
    ) -> None:
        self.owner = owner
        self.name = owner.ready
        self.operator = operator
        self.link = link
        self.held: dict[str, Held] = {}
        self.retired = False
        self._refresh_turn = 0
        self._surroundings = surroundings
        self._rng = rng
        self._make_owned = make_owned
        self._is_source = operator == "src"
        self._watch = StrandingWatch(BOUNDS, source=self._is_source)
        self._is_pressed = False
        self._press_until_turn = 0
        self._skew_us = int((rng.random() - 0.5) * 2_000_000)
        self._to_claim: list[str] = []
        self._version = 0
        self._named = False
        self._told: list[Acknowledge] = []

    def is_busy(self, turn: int) -> bool:
        """There is something to do besides waiting on the ready list."""
        if self._refresh_turn <= turn or self._to_claim or self._told:
            return True
        if self._is_pressed and self._press_until_turn <= turn:
            return True
        return any(held.fetched is not None or held.owned.unwritten() for held in self.held.values())

    def step(self) -> None:
        """One round trip, and the thinking until the next one."""
        try:
            self._step()
        except StoreUnreachable:
            self._drop_all()

    def _step(self) -> None:
        if self._refresh_turn <= self._surroundings.turn:
            self._refresh()
        elif self._to_claim:
            self._claim()
        elif (leftover := self._unwritten()) is not None:
            self._catch_up(leftover)
        elif lacking := [load for held in self.held.values() if (load := self._lacking(held)) is not None]:
            self._load(lacking)
        else:
            self._work()
            self._exchange()

    def unfinished(self) -> list[str]:
        """Shards that were handed out and not committed yet, or written for and not acknowledged."""
        handed_out = [shard for shard, held in self.held.items() if held.fetched is not None]
        return handed_out + [acknowledge.producer for acknowledge in self._told]

    # --- batches

    def _lacking(self, held: Held) -> Load | None:
        """The load that a fetched batch needs and the cache cannot answer."""
        fetched, owned = held.fetched, held.owned
        if fetched is None or self.operator == "src":
            return None
        rows = [row for entry in fetched.entries for row in rows_of(entry.payload)]
        missing = sorted(fields_of(owned.shard, rows) - held.cache.keys())
        return Load(owned.shard, owned.generation, owned.epoch, b"", tuple(missing)) if missing else None

    def _load(self, loads: list[Load]) -> None:
        answers = self.link.pipeline(loads)
        for load, answer in zip(loads, answers, strict=True):
            if isinstance(answer, Answer):
                self.lost(load.shard)
            else:
                self.held[load.shard].cache.update(zip(load.fields, answer, strict=True))

    def _work(self) -> None:
        for held in list(self.held.values()):
            if held.fetched is not None:
                try:
                    held.commit = self._commit_of(held, held.fetched)
                except OutOfOrder as error:
                    self._report(held, str(error))
                held.fetched = None

    def _commit_of(self, held: Held, fetched: FetchedShard) -> Commit:
        owned = held.owned
        now_us = self._surroundings.now_us(self._skew_us)
        if self.operator == "src":
            rows = self._surroundings.partitions[owned.shard]
            start = int(owned.position or b"0")
            end = min(start + 1 + int(self._rng.random() * 3), len(rows))
            return owned.commit(
                now_us,
                position=b"%d" % end,
                finished=end == len(rows),
                again=True,
                in_hand=True,
                counted={COUNTED: end - start},
                outputs=source_outputs(rows[start:end]),
            )
        rows = [row for entry in fetched.entries for row in rows_of(entry.payload)]
        changed, outputs = work(owned.shard, rows, held.cache)
        held.cache.update(changed)
        return owned.commit(
            now_us,
            entries=fetched.entries,
            rows=len(rows),
            counted={COUNTED: len(rows)},
            in_hand=bool(fetched.entries),
            state=state_writes(changed) + marks(changed),
            timers=marking_timers(changed),
            outputs=outputs,
        )

    def _exchange(self) -> None:
        told, self._told = self._told, []
        sent = [
            (held, replace(held.commit, pressed=self._is_pressed))
            for held in self.held.values()
            if held.commit is not None
        ]
        fetch = self._next_fetch()
        answers = self.link.pipeline([*told, *(commit for _, commit in sent), fetch])
        for (held, commit), answer in zip(sent, answers[len(told) :], strict=False):
            self.settle(held, commit, answer)
        self._note_pressure(fetch, answers[-1])
        self._take(answers[-1])

    def _next_fetch(self) -> Fetch:
        bytes_max = (6, 30, 200)[int(self._rng.random() * 3)]
        shards_max = 1 + int(self._rng.random() * 3)
        if self._is_pressed and self._surroundings.turn < self._press_until_turn:
            return Fetch(self.owner.ready, bytes_max, 0 if self._is_source else shards_max, pressed=True)
        return Fetch(self.owner.ready, bytes_max, shards_max)

    def _note_pressure(self, fetch: Fetch, fetched: Fetched) -> None:
        """A pressed fetch tells nothing of the store's memory."""
        if fetched.full:
            self._is_pressed = True
            self._press_until_turn = self._surroundings.turn + PRESSED_TURNS
        elif not fetch.pressed:
            self._is_pressed = False

    def settle(self, held: Held, commit: Commit, answer: object) -> None:
        """Digest the answer to a commit: write what it placed for the sink, or give the shard up."""
        held.commit = None
        try:
            placed = held.owned.settle(commit, answer)
        except OwnershipLost:
            self.lost(commit.shard)
            return
        self._surroundings.committed(self, commit)
        for target, number, payload in placed:
            self._write(held, target, number, payload)

    def _take(self, fetched: Fetched) -> None:
        """Take up what a fetch handed out. A name or an epoch that is not ours says that a claim of ours
        took effect without our knowing: claim again."""
        if fetched.control:
            self._refresh_turn = 0
        for one in fetched.shards:
            held = self.held.get(one.shard)
            if held is None or held.owned.epoch != one.epoch:
                self.lost(one.shard)
            else:
                held.fetched = one
                self._watch.handed_out(one.shard)

    # --- the sink

    def _unwritten(self) -> Held | None:
        """A shard whose earlier owners left entries for the sink."""
        if self.operator != "end":
            return None
        return next((held for held in self.held.values() if held.owned.unwritten()), None)

    def _write(self, held: Held, target: str, number: int, payload: bytes) -> None:
        start = int(held.owned.sink_position(target) or b"0")
        self._surroundings.write_sink(held.owned.shard, start, payload)
        self._told.append(held.owned.written(target, number, b"%d" % (start + len(payload))))

    def _catch_up(self, held: Held) -> None:
        """Write what earlier owners committed for the sink.

        They may acknowledge it meanwhile: then the cursor that we claimed with is old, and the
        outbox goes on behind it. Only a new claim tells the position there.
        """
        owned = held.owned
        waiting = self.link.call(ReadOutbox(owned.shard, SINK, 20))
        if not waiting or waiting[0][0] != owned.cursor(SINK).acknowledged + 1:
            self.lost(owned.shard)
            return
        for number, _, _, payload in waiting:
            self._write(held, SINK, number, payload)

    # --- ownership

    def _refresh(self) -> None:
        """Read the task map, and whether what is owned is still so and is not stranded."""
        shards = tuple(self.held)
        tasks, counters = self.link.pipeline([Tasks(self.owner.executor, self.operator), Measure(shards)])
        self._refresh_turn = self._surroundings.turn + REFRESH_TURNS
        if tasks.incarnation not in {"", self.owner.incarnation}:
            self.retired = True
            return
        mine = {shard for shard, ready in tasks.mapping.items() if ready == self.owner.ready}
        if self._named and not mine:
            self.retired = True
            return
        self._named = self._named or bool(mine)
        for shard, seen in zip(shards, counters, strict=True):
            held = self.held[shard]
            in_hand = held.fetched is not None or (self._is_pressed and self._is_source)
            if shard not in mine or self._watch.is_stranded(
                held.owned, seen, in_hand=in_hand, pressed=self._is_pressed
            ):
                del self.held[shard]
        self._version = tasks.version
        self._to_claim = sorted(mine - self.held.keys())

    def _claim(self) -> None:
        shards, self._to_claim = self._to_claim, []
        answers = self.link.pipeline([Claim(shard, self.owner, self._version) for shard in shards])
        for shard, answer in zip(shards, answers, strict=True):
            if isinstance(answer, Claimed):
                self.claimed(shard, answer)
            else:
                self._refresh_turn = min(self._refresh_turn, self._surroundings.turn + RECLAIM_TURNS)

    def claimed(self, shard: str, answer: Claimed) -> None:
        """Begin with an empty cache what a granted claim gave."""
        self.held[shard] = Held(self._make_owned(shard, answer))
        self._surroundings.claimed(self, shard, answer.epoch)

    def lost(self, shard: str) -> None:
        """Somebody else owns the shard, or the store started anew, or we do not know what happened."""
        self.held.pop(shard, None)
        self._refresh_turn = 0

    def _drop_all(self) -> None:
        self.held.clear()
        self._told.clear()
        self._to_claim.clear()
        self._refresh_turn = 0

    def _report(self, held: Held, message: str) -> None:
        """User code raised: that counts for an owner only."""
        owned = held.owned
        report = ReportFailure(owned.shard, owned.generation, owned.epoch, self.operator, message)
        answer = self.link.call(report)
        if answer is Answer.OK or answer is Answer.DONE:
            self._surroundings.failure_counted(self, message)
        self.lost(owned.shard)


def state_writes(changed: State) -> tuple[StateWrite, ...]:
    """A change of state as a commit carries it."""
    return tuple(StateWrite(b"", name, value) for name, value in changed.items())
