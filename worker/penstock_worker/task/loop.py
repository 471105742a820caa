"""The hot path: one task's loop over the shards that it owns.

One round trip sends the commits of the last batches and fetches the next ones; the only other
calls are loads of state that the cache lacks, and claims when the assignment changed. When nothing waits,
the task blocks on its ready list. After any doubt (store away, FENCED) ownership is dropped and
claimed again (`penstock.store.ownership`). Neighbours: `held_shards` claims and lets go, `resting_shards`
has batches whose time comes later, `arrivals` says what is fresh, `post_pace` when work is sent;
`written_outputs` brings outputs to their sinks.

Life of a task: it starts, looks at the executor's task map until it is named there, claims, works, waits
while it is named without a shard, and retires by itself once the map names it no longer or names another
incarnation. What another task is to run is worked on until that one claims it (N-Storm's delayed kill: the
batch at hand is committed or fenced, never cut).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from penstock.dataflow.plan import Processor
from penstock.errors import RetryError
from penstock.store.failure_names import failure_name
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import (
    Answer,
    Claim,
    Fetched,
    FetchedShard,
    NodeStore,
    Reopen,
    ReportFailure,
    WaitReady,
)
from penstock_worker.process.clock import Clock
from penstock_worker.sinks.delivery import SinkDelivery
from penstock_worker.stages.work import Rest, StageWork, Unasked, Work, WorkFailed
from penstock_worker.task.advances import Advances
from penstock_worker.task.arrivals import without_stale
from penstock_worker.task.held_shards import RECLAIM_US, HeldShards
from penstock_worker.task.large_commit import LargeCommits, Placed
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.metrics import TaskMetrics
from penstock_worker.task.next_fetch import NextFetch
from penstock_worker.task.post_pace import PostPace
from penstock_worker.task.posted import Posted
from penstock_worker.task.resting_shards import RestingShards
from penstock_worker.task.state_loads import load_state
from penstock_worker.task.store_pressure import REST_US, StorePressure
from penstock_worker.task.tellings import Tellings
from penstock_worker.task.watermark_watch import WatermarkWatch
from penstock_worker.task.written_outputs import WrittenOutputs
from penstock_worker.user_code.recent_output import RecentOutput

_LOG = logging.getLogger(__name__)

CHECKED_MAX = 64
"""So many shards' files are looked at with each refresh."""
WAIT_MS_MAX = 500
"""Longest block on the ready list: also how soon a task sees that its worker was replaced."""
RESTING_US = 1_000
SHORT_REST_US = 12_000
"""A source that rests for no longer does not ask its ready list meanwhile. It never gathers for as long."""
AWAY_US = 50_000
AWAY_TOLD_US = 5_000_000
"""A store that stays away is logged so often; it is tried every `AWAY_US`."""
_NOTHING_FETCHED = Fetched((), control=False)


class TaskLoop:
    """`store` and `waiter` are two connections: the second one only blocks."""

    def __init__(
        self,
        launch: TaskLaunch,
        store: NodeStore,
        waiter: NodeStore,
        stage: StageWork,
        sinks: SinkDelivery,
        metrics: TaskMetrics,
        clock: Clock,
        written: RecentOutput | None = None,
        unasked: Unasked | None = None,
    ) -> None:
        self._launch = launch
        self._unasked = unasked
        self._written = written
        self._operator = launch.stage.operator
        self._store = store
        self._waiter = waiter
        self._stage = stage
        self._sinks = sinks
        self._metrics = metrics
        self._clock = clock
        self._large = LargeCommits(store, launch.bounds, clock)
        self._is_source = not isinstance(launch.stage.head, Processor)
        self._pace = PostPace(durable=launch.durable, source=self._is_source)
        self._pressure = StorePressure(launch.name, source=self._is_source)
        self._next_fetch = NextFetch(launch, clock, self._pressure, store.call)
        self._watch = WatermarkWatch(launch, clock)
        self._advances = Advances(launch)
        self._resting = RestingShards()
        self._held = HeldShards(
            launch, store, clock, self._resting, self._pressure, self._adopted, self._released
        )
        self._tellings = Tellings(sinks, metrics)
        self._outputs = WrittenOutputs(sinks, self._tellings, metrics, clock)
        self._unchecked: list[str] = []
        self._is_token_kept = False
        self._is_woken = False
        self._has_listened = False
        self._asked_us = 0
        self._away_told_us = 0
        self._halted = False
        self.retired = False

    @property
    def owned(self) -> dict[str, int]:
        """The shards that it owns, as far as it knows, and under which epochs."""
        return {shard: owned.epoch for shard, owned in self._held.owned.items()}

    def run(self) -> None:
        """Work until retired. Raises PermanentError when the store cannot be worked with."""
        try:
            while not self.retired:
                self.turn()
        finally:
            self._stage.close()
            self._sinks.close()

    def turn(self) -> None:
        """One turn; a store that is away, or a sink without room, costs what is owned and cached, no more."""
        try:
            self._turn()
        except RetryError as error:
            now_us = self._clock.monotonic_us()
            if now_us >= self._away_told_us:
                self._away_told_us = now_us + AWAY_TOLD_US
                _LOG.warning("%s waits: %s", self._launch.name, error)
            self._drop_all()
            self._clock.sleep_us(AWAY_US)

    def _turn(self) -> None:
        """Refresh when due, work until the ready list is empty or the next refresh is due, then block."""
        if self._held.is_refresh_due:
            self.refresh()
            if self.retired:
                return
            self._look_outside()
            if not self._has_listened:
                # Who never waits takes what was rung for it too, or the store keeps more and more of that.
                self._is_woken = self._hear(0)
            self._has_listened = False
        if self._halted or not self._held.is_named:
            # The row says that this task is up: only then is it given shards.
            self._send_told()
            if self._wait() and not self._held.is_named:
                self._look_for_name()
            return
        fetched: Fetched | None = _NOTHING_FETCHED if self._is_rested() else self._exchange()
        while fetched is not None and not self.retired:
            if fetched.control and self._unasked is not None:
                self._unasked.hurry()
            has_more = fetched.control and self.refresh({shard.shard for shard in fetched.shards})
            handed_out = [shard for shard in fetched.shards if self._is_mine(shard)]
            work = [*self._take_rested(told=fetched.control), *handed_out]
            work.extend(self._due_again(work))
            if self._unasked is not None and self._unasked.wait_us() <= 0:
                self._work_unasked(self._unasked, {one.shard for one in work})
            self._watch.fetched(fetched)
            self._advance(fetched)
            if work:
                self._watch.look_on()
                fetched = self._work_through(work)
            elif has_more:
                fetched = self._exchange()
            else:
                break
        if not self.retired and not self._halted:
            self._send_told()
            self._is_woken = self._wait()

    def _is_rested(self) -> bool:
        """Whether a source reads on, and nothing else is known of: what the ready list has by now comes with
        the fetch behind that batch's commit. One that finds nothing to commit asks all the same, in time."""
        return (
            self._is_source
            and bool(self._resting)
            and self._next_fetch.has_taken_all
            and not self._is_woken
            and self._clock.monotonic_us() - self._asked_us < SHORT_REST_US
            and not self._held.awaits_claims
            and not self._pressure.holds_source
            and self._resting.first_due_us() <= self._clock.now_us()
        )

    def _advance(self, fetched: Fetched) -> None:
        """Shards without work take the watermark that others take with their commits."""
        self._advances.fetched(fetched.watermark)
        calls = self._advances.due(self._held.owned, self._clock.monotonic_us())
        for call, answer in zip(calls, self._store.pipeline(calls) if calls else (), strict=True):
            for shard in self._advances.taken(call, answer, self._held.owned):
                self._lost(shard)

    def _look_for_name(self) -> None:
        """The map names this task now, most likely, and its shards wait."""
        self.refresh()
        if not self._held.is_named and not self.retired:
            self._clock.sleep_us(RECLAIM_US)

    # --- batches ----------------------------------------------------------------------------

    def _work_through(self, work: list[FetchedShard]) -> Fetched | None:
        """Work all shards; answers the next fetch, with which the last commits travel. There is none where a
        refresh is due: work without end is no reason not to read the map. Nor where all of a source rests.

        The others are posted a few at a time: the store applies them while the next shards are worked. They
        are settled soon after: what the first shards put out does not wait for the work of the last.
        """
        self._load(work)
        began_us = self._clock.monotonic_us()
        done: list[tuple[OwnedShard, Work]] = []
        posted: deque[Posted] = deque()
        sent_us = began_us
        call_us = 0
        for fetched in work:
            owned = self._held.owned.get(fetched.shard)
            if owned is None or self._halted:
                continue
            worked = self._work(owned, fetched)
            if worked is not None:
                done.append((owned, worked))
                call_us = max(call_us, worked.call_us)
            now_us = self._clock.monotonic_us()
            if self._pace.is_due(len(done), now_us - sent_us):
                posted.append(self._post(done))
                done, sent_us = [], now_us
            while posted and self._pace.is_to_settle(len(posted), now_us - posted[0].sent_us):
                self._settle_first(posted)
        self._next_fetch.worked(work, self._clock.monotonic_us() - began_us, call_us)
        if self._is_source and not posted and self._only_rests(work):
            # What the list has by now comes with the next commit, or wakes the task.
            return None
        last = self._post(done, fetch=not self._halted and not self._held.is_refresh_due)
        while posted:
            self._settle_first(posted)
        return self._finish(last)

    def _only_rests(self, work: Sequence[FetchedShard]) -> bool:
        """Whether all of that rests, and nothing else is listed or to be told."""
        return (
            self._next_fetch.has_taken_all
            and not self._is_token_kept
            and all(fetched.shard in self._resting for fetched in work)
        )

    def _work_unasked(self, stage: Unasked, in_hand: Collection[str]) -> None:
        """What shards commit though nothing was handed out of them: all but those in hand."""
        stage.look()
        done: list[tuple[OwnedShard, Work]] = []
        for owned in [one for one in self._held.owned.values() if one.shard not in in_hand]:
            worked = stage.unasked(owned, rests=owned.shard in self._resting)
            if worked is not None and worked.large:
                self._carry_out(owned, worked)
            elif worked is not None:
                done.append((owned, worked))
        if done:
            self._finish(self._post(done))

    def _settle_first(self, posted: deque[Posted]) -> None:
        first = posted.popleft()
        self._settle(first.done, first.answers())

    def _load(self, work: list[FetchedShard]) -> None:
        """Fill the caches for all of `work` in one round trip, when they lack something."""
        mine = [(self._held.owned[of.shard], of) for of in work if of.shard in self._held.owned]
        for shard in load_state(self._store, self._stage, mine):
            self._lost(shard)

    def _work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | None:
        try:
            worked = self._stage.work(owned, fetched)
        except OwnershipLost:
            self._lost(owned.shard)
            return None
        except WorkFailed as error:
            self._failed(owned, str(error))
            return None
        if isinstance(worked, Rest):
            self._resting.add(fetched, worked)
            if worked.for_outbox:
                self._tellings.acknowledge_soon(owned.shard)
            return None
        if worked.large:
            self._carry_out(owned, worked)
            return None
        return worked

    def _carry_out(self, owned: OwnedShard, work: Work) -> None:
        """Commit what takes several commits, at once: nobody else waits for that often."""
        try:
            if not self._write_all(owned, self._large.carry_out(owned, work.commit)):
                return
        except OwnershipLost:
            self._lost(owned.shard)
            return
        owned.spent(work.busy_us)
        self._count(owned, work, self._clock.now_us())

    def _exchange(self) -> Fetched:
        """One round trip without commits: what is to be told, claims of shards that may have come by now, and
        the next fetch, which brings what waits for them."""
        claims = self._held.take_awaited()
        posted = self._post([], claims, fetch=True)
        answers = posted.answers()
        fetched = cast("Fetched", answers.pop())
        self._next_fetch.answered(posted.fetch, fetched)
        has_more = self._held.take_up(claims, answers)
        if claims:
            fetched = replace(
                fetched, shards=without_stale(fetched.shards, claims, answers, self._held.owned)
            )
        if has_more and fetched.shards and fetched.control:
            # The token told of them, most likely: the map is read when their first batch is done.
            self._is_token_kept = True
            return replace(fetched, control=False)
        return fetched

    def _post(
        self, done: list[tuple[OwnedShard, Work]], claims: Sequence[Claim] = (), *, fetch: bool = False
    ) -> Posted:
        """Send what is to be told, claims, the commits, and a fetch if that is wanted."""
        told = self._tellings.take(self._clock.now_us())
        calls = [*told, *claims, *self._pressure.commits([work.commit for _, work in done])]
        sent_us = self._clock.monotonic_us()
        fetching = self._next_fetch.call(sent_us) if fetch else None
        if fetching is not None:
            calls.append(fetching)
            self._asked_us = sent_us
        answers = self._store.post(calls)
        return Posted(done, len(told), answers, fetch=fetching, sent_us=sent_us)

    def _finish(self, posted: Posted) -> Fetched | None:
        """Settle what was posted last; answers what it fetched."""
        answers = posted.answers()
        fetched: Fetched | None = answers.pop() if posted.fetch else None
        if fetched is not None:
            self._next_fetch.answered(posted.fetch, fetched)
        self._settle(posted.done, answers)
        if fetched is not None and self._is_token_kept:
            self._is_token_kept = False
            return replace(fetched, control=True)
        return fetched

    def _settle(self, done: list[tuple[OwnedShard, Work]], answers: list[Any]) -> None:
        now_us = self._clock.now_us()
        began_us = self._clock.monotonic_us()
        for (owned, work), answer in zip(done, answers, strict=True):
            try:
                placed = owned.settle(work.commit, answer)
            except OwnershipLost:
                self._lost(owned.shard)
                began_us = self._clock.monotonic_us()
                continue
            self._count(owned, work, now_us)
            self._write(owned, placed)
            ended_us = self._clock.monotonic_us()
            owned.spent(work.busy_us + ended_us - began_us)
            began_us = ended_us

    def _write_all(self, owned: OwnedShard, placed: Iterable[Placed]) -> bool:
        """Write what a large commit puts out as it goes; False when a sink failed: the next owner goes on."""
        for some in placed:
            began_us = self._clock.monotonic_us()
            self._write(owned, some)
            owned.spent(self._clock.monotonic_us() - began_us)
            if self._halted:
                return False
        return True

    def _count(self, owned: OwnedShard, work: Work, now_us: int) -> None:
        self._stage.settled(owned, work)
        self._metrics.settled(owned, work, self._operator, now_us)

    def _write(self, owned: OwnedShard, placed: Placed) -> None:
        if not placed:
            return
        try:
            self._outputs.write(owned, placed)
        except WorkFailed as error:
            self._failed(owned, str(error))

    def _look_outside(self) -> None:
        """At some shards' files: sinks that others changed are told soon, also while nothing is written, and
        what sources grew by is read."""
        if not self._unchecked:
            self._unchecked = list(self._held.owned)
        for shard in [self._unchecked.pop() for _ in range(min(CHECKED_MAX, len(self._unchecked)))]:
            owned = self._held.owned.get(shard)
            if owned is None or self._halted:
                continue
            try:
                self._sinks.check(owned)
            except WorkFailed as error:
                self._failed(owned, str(error))
                continue
            if owned.finished and self._stage.grew(owned):
                owned.finished = False
                self._store.call(Reopen(shard))

    def _send_told(self) -> None:
        told = self._tellings.take(self._clock.now_us())
        if told:
            self._store.pipeline(told)

    def _take_rested(self, *, told: bool) -> list[FetchedShard]:
        if not self._resting or self._pressure.holds_source:
            return []
        return self._resting.take_due(self._clock.now_us(), told=told)

    def _due_again(self, work: Sequence[FetchedShard]) -> list[FetchedShard]:
        """Shards that are to be worked though nothing was fetched of them."""
        shards, _ = self._stage.due(self._clock.now_us())
        if not shards:
            return []
        at_hand = {fetched.shard for fetched in work}
        return [
            FetchedShard(shard, owned.epoch, owned.offset, ())
            for shard in shards
            if shard not in at_hand
            and shard not in self._resting
            and (owned := self._held.owned.get(shard)) is not None
        ]

    def _is_mine(self, fetched: FetchedShard) -> bool:
        """A fetch under an epoch that is not ours took the shard off the list for nobody: claim again.

        Unless that was before our claim, which listed it anew: so it is where a claim's answer got lost, and
        the control token came along with that fetch.
        """
        owned = self._held.owned.get(fetched.shard)
        if owned is None:
            self._held.refresh_soon()
            return False
        if owned.epoch != fetched.epoch:
            if owned.epoch < fetched.epoch:
                self._lost(fetched.shard)
            return False
        self._held.handed_out(fetched.shard)
        return self._resting.gives_way(fetched.shard)

    def _wait(self) -> bool:
        """Block until the ready list has something, a source's record is due, or a row of metrics is.

        True when the list may have something.
        """
        wait_us = min(WAIT_MS_MAX * 1000, self._held.refresh_us - self._clock.monotonic_us())
        now_us = self._clock.now_us()
        untold_us = self._tellings.wait_us(now_us)
        if untold_us is not None:
            wait_us = min(wait_us, untold_us)
        if self._pressure.holds_source:
            self._clock.sleep_us(max(0, min(wait_us, REST_US)))
            return True
        wait_us = self._next_fetch.wait_us(self._listen(wait_us), now_us)
        if self._unasked is not None and self._held.is_named and not self._halted:
            wait_us = min(wait_us, self._unasked.wait_us())
        if self._resting:
            if wait_us <= 0 and not self._is_source:
                # Timers of a shard that rests are due, and wait for it.
                self._clock.sleep_us(RESTING_US)
            wait_us = min(wait_us, self._resting.first_due_us() - now_us)
        _, due_us = self._stage.due(now_us)
        if due_us is not None:
            wait_us = min(wait_us, due_us - now_us)
        if wait_us <= 0:
            return False
        if self._is_source and self._resting and wait_us <= SHORT_REST_US:
            # Whoever rings meanwhile is heard with the next fetch.
            self._clock.sleep_us(wait_us)
            return False
        self._has_listened = True
        is_woken = self._hear(-(-wait_us // 1000), look=not self._next_fetch.found_nothing)
        if is_woken:
            self._watch.look_on()
        return is_woken

    def _hear(self, wait_ms: int, *, look: bool = True) -> bool:
        is_woken = self._waiter.call(WaitReady(self._launch.owner.ready, wait_ms, look))
        if is_woken:
            self._next_fetch.found_nothing = False
        return is_woken

    def _listen(self, wait_us: int) -> int:
        """Have news of the watermark rung for, where nothing has come for a while; answers how long to wait
        for them, at most `wait_us`."""
        if self._held.is_named and not self._halted and (call := self._watch.due()) is not None:
            self._watch.answered(is_listening=self._store.call(call))
        return self._watch.wait_us(wait_us)

    # --- ownership --------------------------------------------------------------------------

    def refresh(self, in_hand: Collection[str] = ()) -> bool:
        """Read the task map, and retire where it has dismissed the task. True when shards were claimed.

        `in_hand` names shards that were fetched and not worked yet.
        """
        self._is_token_kept = False
        has_more = self._held.refresh(in_hand, halted=self._halted)
        if self._held.is_dismissed:
            self._retire()
        return has_more

    def _adopted(self, owned: OwnedShard) -> None:
        self._metrics.adopted(owned, self._clock.now_us())
        self._watch.look_on()
        try:
            number = owned.number
            self._outputs.catch_up(owned, self._store)
            if self._write_all(owned, self._large.finish(owned)):
                self._stage.adopt(owned)
            if owned.number != number:
                # The fetch that travelled with the claim knows nothing of the timers in it.
                self._next_fetch.at_once()
        except OwnershipLost:
            self._lost(owned.shard)
        except WorkFailed as error:
            self._failed(owned, str(error))

    def _lost(self, shard: str) -> None:
        """Not an error: somebody else owns the shard, or the store started anew."""
        self._metrics.fenced()
        self._held.release(shard)
        self._held.refresh_at_once()

    def _released(self, shard: str) -> None:
        self._stage.release(shard)
        self._sinks.release(shard)
        self._metrics.released(shard)

    def _drop_all(self) -> None:
        self._held.drop_all()
        self._next_fetch.forget()
        self._watch.look_on()
        self._tellings.forget()

    def _failed(self, owned: OwnedShard, message: str) -> None:
        """Report through the fence, then touch nothing more: the main process stops the operator."""
        name = failure_name(self._operator, self._launch.template)
        if self._written is not None:
            message += self._written.told(self._launch.worker)
        answer = self._store.call(ReportFailure(owned.shard, owned.generation, owned.epoch, name, message))
        if answer is Answer.FENCED or answer is Answer.UNKNOWN:
            self._lost(owned.shard)
            return
        self._halted = True

    def _retire(self) -> None:
        self.retired = True
        self._store.pipeline(self._tellings.take_all(self._clock.now_us()))
        self._held.release_all()
