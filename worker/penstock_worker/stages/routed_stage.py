"""A stage that goes by routing tables: what comes in by them, goes out by them, or both.

It stands around a source's or a keyed stage, which knows nothing of tables, and only where the manifest asks
for it. Before each batch it decides: the shard switches to the next version (`switching`), or something in
its inbox is no rows (`receiving`), or the stage works, its edges routing by the shard's version.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec import structs

from penstock.dataflow.plan import Processor, Stage
from penstock.dataflow.routing_table import decode_table
from penstock.errors import RetryError
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Bounds, DropPairs, FetchedShard, Load, NodeStore, ReadTable, TableVersions
from penstock_worker.process.clock import Clock
from penstock_worker.stages.earlier_letters import EarlierLetters
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.pair_counts import PairCounts
from penstock_worker.stages.receiving import Given, Receiving
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.switching import Switch, Switching
from penstock_worker.stages.table_shelf import LOOK_US, TableShelf
from penstock_worker.stages.work import Rest, StageWork, Work, WorkFailed
from penstock_worker.state.cache import Variable

_Step = Switch | Given | Work | Rest | WorkFailed | OwnershipLost


class RoutedStage:
    """Keeps the ports `StageWork` and `Unasked`, for another stage."""

    def __init__(
        self,
        stage: StageWork,
        store: NodeStore,
        shelf: TableShelf,
        switching: Switching,
        receiving: Receiving | None,
        clock: Clock,
        *,
        is_source: bool,
        pairs: PairCounts | None = None,
    ) -> None:
        self._stage = self.inner = stage
        self._store = store
        self._shelf = shelf
        self._switching = switching
        self._receiving = receiving
        self._clock = clock
        self._pairs = pairs
        self._is_source = is_source
        self._steps: dict[str, _Step] = {}
        self._unasked_us = 0
        self.grew = stage.grew
        self.due = stage.due
        self.settled = stage.settled

    def close(self) -> None:
        """The task is over. What it counted goes, where the store can be told."""
        self._stage.close()
        if self._pairs is not None:
            with suppress(RetryError):
                self._pairs.withdraw(self._store)

    def adopt(self, owned: OwnedShard) -> None:
        self._stage.adopt(owned)
        self._shelf.look_anew()
        if self._receiving is not None:
            self._receiving.adopt(owned)

    def release(self, shard: str) -> None:
        self._steps.pop(shard, None)
        if self._receiving is not None:
            self._receiving.release(shard)
        self._stage.release(shard)

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        try:
            step = self._step(owned, fetched)
        except (WorkFailed, OwnershipLost) as error:
            step = error
        self._steps[owned.shard] = step
        return self._stage.wanted(owned, step.fetched) if isinstance(step, Given) else None

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> None:
        self._stage.loaded(owned, load, answer)

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        step = self._steps.pop(owned.shard)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, Switch):
            in_hand = self._is_source or bool(fetched.entries)
            return self._switching.work(owned, step, in_hand=in_hand, again=self._is_source)
        if not isinstance(step, Given):
            return step
        if not self._switching.route_as(owned):
            if isinstance(self._stage, KeyedStage):
                self._stage.withdraw(owned.shard)
            return self._until_table()
        return self._through(owned, step, self._stage.work(owned, step.fetched))

    # --- shards without work

    def wait_us(self) -> int:
        return self._unasked_us - self._clock.monotonic_us()

    def hurry(self) -> None:
        self._unasked_us = 0
        self._shelf.look_anew()

    def look(self) -> None:
        self._unasked_us = self._clock.monotonic_us() + LOOK_US
        self._look()

    def unasked(self, owned: OwnedShard, *, rests: bool) -> Work | None:
        if rests and not self._is_source:
            # It is asked again soon.
            return None
        switch = self._switching.due(owned)
        if switch is None:
            return None
        return self._switching.work(owned, switch, in_hand=rests, again=False)

    # --- within

    def _look(self) -> None:
        if self._shelf.look() and self._pairs is not None:
            self._pairs.see(self._shelf.newest)
            self._pairs.publish(self._store)

    def _step(self, owned: OwnedShard, fetched: FetchedShard) -> _Step:
        self._look()
        switch = self._switching.due(owned)
        if switch is not None:
            return switch
        if self._receiving is None:
            return Given(fetched)
        return self._receiving.next_step(owned, fetched)

    def _through(self, owned: OwnedShard, given: Given, worked: Work | Rest) -> Work | Rest:
        """The commit of what stood in the place of an entry, as one of the entry."""
        if isinstance(worked, Rest) or not given.head or worked.commit.offset < given.head:
            return worked
        writes, counted = given.through() if given.through is not None else ((), {})
        commit = structs.replace(
            worked.commit,
            offset=given.head if given.consumed_bytes else owned.offset,
            consumed_bytes=given.consumed_bytes,
            state=(*worked.commit.state, *writes),
        )
        return structs.replace(worked, commit=owned.counting_too(commit, counted) if counted else commit)

    def _until_table(self) -> Rest:
        """Until the table that a shard routes by is in the store."""
        return Rest(self._clock.now_us() + LOOK_US, for_news=True)


@dataclass(frozen=True, slots=True)
class RoutedParts:
    """What is put around a stage; a test puts a part with a planted bug in its place."""

    shelf: type[TableShelf] = TableShelf
    switching: type[Switching] = Switching
    receiving: type[Receiving] = Receiving


ROUTED_PARTS = RoutedParts()


def routed(
    stage: Stage,
    work: StageWork,
    variables: Sequence[Variable],
    fanout: FanoutRunner,
    store: NodeStore,
    bounds: Bounds,
    clock: Clock,
    parts: RoutedParts = ROUTED_PARTS,
    pairs: PairCounts | None = None,
    also: Collection[str] = (),
) -> StageWork:
    """A stage's work as it goes by routing tables; as it is where none are asked for. `variables` are those
    of a keyed stage's processor, `pairs` what its task counts; `also` are operators that have a table though
    none is asked for (`with_tables`)."""
    edges = [edge for edge in fanout.keyed_edges() if edge.edge.locality or edge.edge.operator in also]
    head = stage.head
    receives = isinstance(head, Processor) and (head.locality or stage.operator in also)
    if isinstance(work, KeyedStage) and isinstance(head, Processor) and not receives:
        earlier = EarlierLetters(stage.operator, head, work.failing, store, bounds, clock)
        work.letters_elsewhere = earlier.work
    if not edges and not receives:
        return work
    known = dict.fromkeys(edge.edge.operator for edge in edges)
    if pairs is not None:
        known |= dict.fromkeys(pairs.operators)
    shelf = parts.shelf(known, store, clock)
    switching = parts.switching(edges, shelf, bounds, clock)
    receiving = None
    if isinstance(head, Processor) and receives and isinstance(work, KeyedStage):
        receiving = parts.receiving(stage.operator, head, work, variables, shelf, store, bounds, clock)
    return RoutedStage(
        work,
        store,
        shelf,
        switching,
        receiving,
        clock,
        is_source=not isinstance(head, Processor),
        pairs=pairs,
    )


def with_tables(
    stage: Stage, fanout: FanoutRunner, store: NodeStore, clock: Clock, counted: Sequence[str] = ()
) -> frozenset[str]:
    """The operators around a stage that have a table, of earlier times, though the manifest asks for none:
    their keys are where it says, until an empty one is carried out, behind which there is a bare one. Rows of
    pairs called `counted`, of earlier times too, are dropped. Waits while the store is away."""
    near = {edge.edge.operator for edge in fanout.keyed_edges() if not edge.edge.locality}
    if isinstance(stage.head, Processor) and stage.head.key_columns and not stage.head.locality:
        near.add(stage.operator)
    names = sorted(near)
    while names:
        try:
            if counted:
                store.call(DropPairs(tuple(counted)))
            found = store.pipeline([TableVersions(name) for name in names])
            newest = {name: max(versions) for name, versions in zip(names, found, strict=True) if versions}
            if not newest:
                break
            contents = store.pipeline([ReadTable(name, version) for name, version in newest.items()])
        except RetryError:
            clock.sleep_us(LOOK_US)
            continue
        if None in contents:
            # A newer one has just taken its place.
            continue
        tables = dict(zip(newest, map(decode_table, contents), strict=True))
        return frozenset(name for name, table in tables.items() if not table.is_bare)
    return frozenset()
