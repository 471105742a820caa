"""One real task in the world: the worker's `TaskLoop` with its stage, in virtual time, over simulated links.

The loop runs a turn when its host lets it: when it is woken, or what it sleeps for is over. The host sees
what the loop asks and is told, and holds that against the promises. Neighbours: `stages` has what the loop
works with, `link` how its calls travel, `simulated_tasks` starts tasks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.dataflow.plan import Processor
from penstock.store.memory.node import Readiness
from penstock.store.node_clock import ClockAnchor
from penstock.store.port import (
    Advance,
    Answer,
    Claim,
    Claimed,
    Commit,
    Fetch,
    Fetched,
    FetchedShard,
    Load,
    Measure,
    NodeStore,
    ReadOutbox,
    ReportFailure,
    Request,
    Scan,
    ShardCounters,
    StoreUnreachable,
    Tasks,
    WaitReady,
)
from penstock_simulation.protocol.link import ActorGone
from penstock_simulation.protocol.promises import PromiseBroken
from penstock_simulation.protocol.stages import HostedStage, PartitionReader
from penstock_worker.stages.initial_gate import LOOK_US
from penstock_worker.stages.routed_stage import RoutedStage, routed
from penstock_worker.stages.source_stage import SourceStage
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import StageWork
from penstock_worker.task.held_shards import RECLAIM_US
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.metrics import TaskMetrics
from penstock_worker.task.note import TaskNote
from penstock_worker.task.noted_work import NotedStage
from penstock_worker.task.watermark_watch import WATERMARK_LOOK_US

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

SKEW_US_MAX = 250_000
WAIT_ROUNDED_US = 2_000
"""A wait is a whole number of milliseconds, and looking takes time too."""


class TaskClock:
    """Virtual time as one process sees it: `skew_us` beside the others. Keeps the port `Clock`."""

    anchor: ClockAnchor | None = None

    def __init__(self, now_us: Callable[[], int], skew_us: int, sleep_us: Callable[[int], None]) -> None:
        self._now_us = now_us
        self._skew_us = skew_us
        self.sleep_us = sleep_us

    def share(self, store: NodeStore) -> None:
        """The others' time is what promises hold against."""

    def now_us(self) -> int:
        return self._now_us() + self._skew_us

    def monotonic_us(self) -> int:
        return self._now_us()

    def wall_us(self) -> int:
        return self._now_us()


class HostedTask:
    """As its main process launched it."""

    def __init__(self, world: World, launch: TaskLaunch, node: str) -> None:
        rng = world.rng
        self.name = launch.owner.ready
        self.link = world.link(self.name, node, watcher=self)
        self.is_in_turn = False
        self.in_hand: dict[str, FetchedShard] = {}
        """What it was handed out and has no answer for yet."""
        self._world = world
        head = launch.stage.head
        self._is_source = not isinstance(head, Processor)
        self._producers = head.producers if isinstance(head, Processor) else ()
        self._has_initial = isinstance(head, Processor) and head.initial is not None
        self._starts = self.link.node.starts
        self.wakes_us = 0
        self._is_asleep = False
        self._token = False
        """Told that its map changed, and has not read it since."""
        self._granted: dict[str, int] = {}
        """Epochs that it was granted in this turn."""
        self._refusals: dict[str, int] = {}
        """Epochs under which it was told in this turn that it commits no more."""
        clock = TaskClock(world.now_us, int((rng.random() - 0.5) * 2 * SKEW_US_MAX), self._sleep)
        self.clock = clock
        made = self._made(launch, clock, rng)
        self._stage = HostedStage(made, rng, world.take_time, world.is_hot, world.limit_bytes)
        self.loop = world.parts.loop(
            launch,
            self.link,
            cast("NodeStore", self),
            NotedStage(self._stage, TaskNote(None)),
            world.parts.sinks(launch.stage, world.promises.write_sink),
            TaskMetrics(launch, 1),
            clock,
            None,
            made if isinstance(made, RoutedStage) else None,
        )

    def _made(self, launch: TaskLaunch, clock: TaskClock, rng: random.Random) -> StageWork:
        world, stage = self._world, launch.stage
        # Of this task alone: which table a shard goes by is a state of it.
        fanout = FanoutRunner(stage.out, Path())
        operator, head = stage.operator, stage.head
        if not isinstance(head, Processor):
            reader = PartitionReader(world.workload, rng, paced=world.paced)
            gate = world.parts.gate(stage.waits_for, self.link.call, clock) if stage.waits_for else None
            source = SourceStage(stage, reader, fanout, launch.bounds, clock, gate)
            return routed(stage, source, (), fanout, self.link, launch.bounds, clock, world.parts.routed)
        runner = world.runners.lend(operator)
        cache = world.parts.cache(runner.variables, runner.key_types, self.link.call)
        keyed = world.parts.keyed(
            operator, head, runner, cache, fanout, launch.bounds, clock,
            tells_watermark=stage.tells_watermark,
        )  # fmt: skip
        return routed(
            stage, keyed, runner.variables, fanout, self.link, launch.bounds, clock, world.parts.routed
        )

    # --- its host

    @property
    def retired(self) -> bool:
        return self.loop.retired

    def can_run(self, turn: int) -> bool:
        """It is not stopped, and has something to do or has waited long enough."""
        if self.is_in_turn or self.link.is_gone or self.link.stops_until > turn:
            return False
        if self._world.now_us() >= self.wakes_us:
            return True
        return not self._is_asleep and self.link.node.is_ready(self.name)

    def step(self) -> None:
        """One turn of the loop."""
        self.wakes_us = 0
        self._is_asleep = False
        self._granted.clear()
        self._refusals.clear()
        self.is_in_turn = True
        try:
            self.loop.turn()
        except ActorGone:
            return
        finally:
            self.is_in_turn = False
        if self.retired:
            return
        owned = self.loop.owned
        for shard, epoch in self._granted.items():
            if owned.get(shard) != epoch:
                raise PromiseBroken(5, f"{self.name} does not take {shard} up, granted under epoch {epoch}")
        for shard, epoch in self._refusals.items():
            if owned.get(shard) == epoch:
                raise PromiseBroken(1, f"{self.name} keeps {shard}, though fenced under epoch {epoch}")

    def die(self) -> None:
        """Nothing more of it happens, but what is on its way."""
        self.link.is_gone = True

    def unfinished(self) -> list[str]:
        """Shards that were handed out and have no answer yet."""
        return list(self.in_hand)

    # --- the loop's second connection, and sleep

    def call(self, call: WaitReady) -> bool:
        """Wait: the turn is over with this, and the host wakes the loop. Without a time it is only a look.
        Raises StoreUnreachable."""
        wakes_us = self._world.now_us() + call.timeout_ms * 1000
        if self._token and call.timeout_ms * 1000 > RECLAIM_US:
            raise PromiseBroken(5, f"{self.name} was told of another task map, and waits without reading it")
        for shard, until_us in self._stage.resting.items() if call.timeout_ms else ():
            if until_us + WAIT_ROUNDED_US < self.clock.now_us() + call.timeout_ms * 1000:
                raise PromiseBroken(5, f"{self.name} waits for longer than {shard} is to rest")
        node = self.link.node
        if self._starts != node.starts:
            self._starts = node.starts
            self.failed()
            raise StoreUnreachable("connection broken")
        has_rung, is_ready = node.hear(self.name), node.is_ready(self.name)
        if not call.look and is_ready and not has_rung:
            raise PromiseBroken(5, f"{self.name} waits for a bell that has rung")
        is_woken = is_ready if call.look else has_rung
        if is_woken or not call.timeout_ms:
            return is_woken
        if self._world.watermarks is None:
            self._check_timers(call.timeout_ms)
        elif call.timeout_ms * 1000 > WATERMARK_LOOK_US and not node.rings_at_news(
            self.name, self._producers
        ):
            raise PromiseBroken(5, f"{self.name} does not look for its watermark, and nobody rings")
        self.wakes_us = wakes_us
        return False

    def _check_timers(self, timeout_ms: int) -> None:
        """It wakes for the next timer of its shards, of those that could fire."""
        if self._has_initial and timeout_ms * 1000 <= LOOK_US:
            # Before all initial rows are in inboxes none could: it looks for that.
            return
        until_ms = (self.clock.now_us() - WAIT_ROUNDED_US) // 1000 + timeout_ms
        looks = self.link.node.looks(self.name)
        for shard, epoch in self.loop.owned.items():
            record = self.link.node.record(shard)
            is_idle = record.readiness is Readiness.IDLE and not record.is_away
            if record.epoch == epoch and is_idle and record.timers and looks.get(shard, -1) < until_ms:
                raise PromiseBroken(5, f"{self.name} does not wake for a timer of {shard}")

    def _sleep(self, microseconds: int) -> None:
        self.wakes_us = self._world.now_us() + microseconds
        self._is_asleep = True

    # --- what it is told

    def took_effect(self, calls: Sequence[Request[Any]], answers: list[Any]) -> None:
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(call, Claim) and isinstance(answer, Claimed):
                self._world.promises.check_marks({call.shard: self.link.node.record(call.shard)})

    def told(self, calls: Sequence[Request[Any]], answers: list[Any], order: int) -> None:
        promises = self._world.promises
        self._told_of_watermarks(calls, answers, order)
        for call, answer in zip(calls, answers, strict=True):
            match call:
                case Commit():
                    self._committed(call, answer, order)
                case Fetch():
                    self._handed_out(answer)
                case Tasks():
                    self._token = False
                    for shard in [s for s in self._granted if answer.mapping.get(s) != self.name]:
                        del self._granted[shard]
                case Measure():
                    self._measured(call.shards, answer)
                case Claim():
                    self._answered(call, answer, order)
                case Load() | Scan() if isinstance(answer, Answer):
                    self._refused(call.shard)
                case ReadOutbox() if not answer or answer[0][0] != call.after + 1:
                    # An earlier owner acknowledged after the claim, which told an old cursor.
                    self._refused(call.producer)
                case ReportFailure():
                    self._refused(call.shard)
                    if answer is Answer.OK or answer is Answer.DONE:
                        promises.failure_counted(self.name, call.message)

    def _told_of_watermarks(self, calls: Sequence[Request[Any]], answers: list[Any], order: int) -> None:
        if self._world.watermarks is None:
            return
        self._world.watermarks.told(calls, answers, order)
        for call, answer in zip(calls, answers, strict=True):
            for one, taken in (
                zip(call.shards, answer.answers, strict=True) if isinstance(call, Advance) else ()
            ):
                if taken is not Answer.OK and taken is not Answer.BUSY:
                    self._refused(one.shard)

    def _committed(self, commit: Commit, answer: object, order: int) -> None:
        shard = commit.shard
        batch = self.in_hand.get(shard)
        if commit.in_hand:
            if batch is not None and batch.epoch != commit.epoch:
                epochs = f"epoch {commit.epoch} what it was handed under {batch.epoch}"
                raise PromiseBroken(1, f"{self.name} commits to {shard} under {epochs}")
            self.in_hand.pop(shard, None)
        if answer is Answer.OK or answer is Answer.DONE:
            self._world.promises.committed(self.name, commit, order)
        else:
            self._granted.pop(shard, None)
            self._refusals[shard] = commit.epoch

    def _answered(self, claim: Claim, answer: object, order: int) -> None:
        before = self._granted.pop(claim.shard, None)
        if before is not None:
            raise PromiseBroken(5, f"{self.name} claims {claim.shard} again, granted under epoch {before}")
        if isinstance(answer, Claimed):
            self._granted[claim.shard] = answer.epoch
            self._world.promises.claimed(self.name, claim.shard, answer.epoch, order)

    def _handed_out(self, fetched: Fetched) -> None:
        self._token = self._token or fetched.control
        for one in fetched.shards:
            self.in_hand[one.shard] = one
            if self._granted.get(one.shard, one.epoch) != one.epoch:
                del self._granted[one.shard]

    def _measured(self, shards: Sequence[str], counters: Sequence[ShardCounters | None]) -> None:
        """Another one's, or looked at a second time with work waiting: then it is rightly claimed again."""
        for shard, seen in zip(shards, counters, strict=True):
            has_work = seen is not None and (not seen.finished if self._is_source else seen.inbox_entries)
            if seen is None or has_work or self._granted.get(shard) != seen.epoch:
                self._granted.pop(shard, None)

    def _refused(self, shard: str) -> None:
        self.in_hand.pop(shard, None)
        self._granted.pop(shard, None)

    def failed(self) -> None:
        self.in_hand.clear()
        self._granted.clear()
        self._token = False
