"""Faults of a task that the simulation must catch, planted in the product's own loop, cache and sinks.

`planted_bugs` has those of stores and senders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from msgspec import structs

from penstock.store.ownership import OwnedShard
from penstock.store.port import (
    Answer,
    Claim,
    Claimed,
    Commit,
    Fetch,
    Fetched,
    FetchedShard,
    NodeStore,
    ReadOutbox,
    ShardCounters,
    StoreUnreachable,
    Tasks,
)
from penstock.store.stranding import StrandingWatch
from penstock_simulation.protocol.node import BOUNDS
from penstock_simulation.protocol.stages import SimulatedSinks
from penstock_simulation.protocol.world import Parts
from penstock_worker.stages.work import Work, WorkFailed
from penstock_worker.state.cache import ShardState, StateCache
from penstock_worker.task.loop import TaskLoop

Done = list[tuple[OwnedShard, Work]]
_FOR_EVER_US = 1 << 60


class OutputsAgainOnDone(TaskLoop):
    """DONE is taken for "not applied": the same work is committed under the next number."""

    def _settle(self, done: Done, answers: list[Any]) -> None:
        for (owned, work), answer in zip(done, answers, strict=True):
            if answer is Answer.DONE:
                work = structs.replace(
                    work, commit=structs.replace(work.commit, number=work.commit.number + 1)
                )
                answer = self._store.call(work.commit)
            super()._settle([(owned, work)], [answer])


class ClaimsBack(TaskLoop):
    """After FENCED the shard is claimed again, and the same work is committed under the new epoch."""

    def _settle(self, done: Done, answers: list[Any]) -> None:
        for (owned, work), answer in zip(done, answers, strict=True):
            if answer is Answer.FENCED and self._claims_back(owned.shard):
                self._commit_again(owned.shard, work)
            else:
                super()._settle([(owned, work)], [answer])

    def _claims_back(self, shard: str) -> bool:
        return True

    def _commit_again(self, shard: str, work: Work) -> None:
        version = self._store.call(Tasks(self._launch.executor, self._operator)).version
        claimed = self._store.call(Claim(shard, self._launch.owner, version))
        if isinstance(claimed, Claimed):
            self._held.adopt(OwnedShard(shard, claimed))
        owned = self._held.owned[shard]
        commit = structs.replace(
            work.commit, number=owned.number + 1, epoch=owned.epoch, generation=owned.generation
        )
        super()._settle([(owned, structs.replace(work, commit=commit))], [self._store.call(commit)])


class LingersOn(ClaimsBack):
    """A task that works on a shard until another one claims it goes on when that has happened."""

    def _claims_back(self, shard: str) -> bool:
        return shard in self._held.leaving


class KeptState(StateCache):
    """What was cached of a shard outlives its ownership."""

    def shard(self, owned: OwnedShard) -> ShardState:
        kept = self._shards.get(owned.shard)
        if kept is None:
            return super().shard(owned)
        kept._epoch, kept._generation = owned.epoch, owned.generation
        return kept

    def drop(self, shard: str) -> None:
        pass


class NoLookForStranded(TaskLoop):
    """A task never looks whether a call that came late took a shard off its list."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._held._stranding = _BlindWatch(BOUNDS, source=False)


class _BlindWatch(StrandingWatch):
    def is_stranded(
        self,
        owned: OwnedShard,
        seen: ShardCounters | None,
        now_us: int,
        *,
        in_hand: bool,
        pressed: bool = False,
    ) -> bool:
        return False


class SinkFromAnOldCursor(SimulatedSinks):
    """What an earlier owner left for the sink is looked for behind the cursor that came with the claim,
    though that owner may have written and acknowledged it since."""

    def catch_up(self, owned: OwnedShard, target: str, store: NodeStore) -> Iterator[list[bytes]]:
        if target not in self._writers:
            return
        waiting = store.call(ReadOutbox(owned.shard, target, 1_000))
        if not waiting:
            raise WorkFailed("the outbox lacks an entry")
        entries = [(target, number, payload) for number, _, _, payload in waiting]
        for acknowledge, payloads in self.write(owned, entries):
            store.call(acknowledge)
            yield payloads


class SettlesOutOfOrder(TaskLoop):
    """Of a post's commits the last one gets the first one's answer."""

    def _settle(self, done: Done, answers: list[Any]) -> None:
        super()._settle(done, answers[::-1])


class DropsAwaitedClaims(TaskLoop):
    """What is granted along with a fetch is not taken up."""

    def _exchange(self) -> Fetched:
        with patch.object(self._held, "take_up", return_value=False):
            return super()._exchange()


class LosesTokens(TaskLoop):
    """A control token that comes along with commits is forgotten."""

    def _finish(self, posted: Any) -> Fetched | None:
        fetched = super()._finish(posted)
        return fetched and replace(fetched, control=False)


class UsesOldBatches(TaskLoop):
    """A batch that was fetched under another epoch is worked on."""

    def _is_mine(self, fetched: FetchedShard) -> bool:
        return fetched.shard in self._held.owned or super()._is_mine(fetched)


class PostsAgain(TaskLoop):
    """A post whose answers got lost is sent again, built anew."""

    def _post(self, done: Done, claims: Sequence[Claim] = (), *, fetch: bool = False) -> Any:
        posted = super()._post(done, claims, fetch=fetch)
        first_answers = posted._answers

        def answers() -> list[Any]:
            try:
                return first_answers()
            except StoreUnreachable:
                posted.done[:] = [
                    (owned, structs.replace(work, commit=_next_again(work.commit)))
                    for owned, work in posted.done
                ]
                calls = [*claims, *(work.commit for _, work in posted.done)]
                fetches: list[Fetch] = [posted.fetch] if posted.fetch else []
                return [None] * posted._told + self._store.pipeline([*calls, *fetches])

        posted._answers = answers
        return posted


def _next_again(commit: Commit) -> Commit:
    return structs.replace(commit, number=commit.number + 1, in_hand=False)


class FiresAgain(PostsAgain):
    """Work on timers, whose answers got lost, is sent again, built anew."""

    def _post(self, done: Done, claims: Sequence[Claim] = (), *, fetch: bool = False) -> Any:
        if any(work.commit.timers for _, work in done):
            return super()._post(done, claims, fetch=fetch)
        return TaskLoop._post(self, done, claims, fetch=fetch)


class HearsOnly(TaskLoop):
    """A task that waits goes by its bell, also where names were left on its list."""

    def _hear(self, wait_ms: int, *, look: bool = True) -> bool:
        return super()._hear(wait_ms, look=look and not wait_ms)


class SleepsOn(TaskLoop):
    """A task that waits does not wake for a timer."""

    def _wait(self) -> bool:
        self._next_fetch.forget()
        return super()._wait()


class ForgetsRested(TaskLoop):
    """A batch of a source whose next row was not due yet is never taken up again."""

    def _take_rested(self, *, told: bool) -> list[FetchedShard]:
        self._resting.take_due(self._clock.now_us() + _FOR_EVER_US, told=told)
        return []


TASK_BUGS = {
    "outputs again on DONE": Parts(loop=OutputsAgainOnDone),
    "cached state after FENCED": Parts(loop=ClaimsBack, cache=KeptState),
    "no look for stranded shards": Parts(loop=NoLookForStranded),
    "sink from an old cursor": Parts(sinks=SinkFromAnOldCursor),
    "settled out of order": Parts(moves=True, loop=SettlesOutOfOrder),
    "lingering after another's claim": Parts(loop=LingersOn),
    "an awaited claim dropped": Parts(moves=True, loop=DropsAwaitedClaims),
    "a control token lost": Parts(loop=LosesTokens),
    "cached state kept across a lost claim": Parts(cache=KeptState),
    "a batch of an old epoch used": Parts(loop=UsesOldBatches),
    "a post repeated after a lost answer": Parts(loop=PostsAgain),
    "a resting batch forgotten": Parts(loop=ForgetsRested),
    "a timer fired again after a lost answer": Parts(loop=FiresAgain),
    "a timer slept through": Parts(loop=SleepsOn),
    "a bell that was heard before": Parts(loop=HearsOnly),
}
