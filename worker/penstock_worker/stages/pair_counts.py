"""What a task counts of an edge between keyed operators: which key came in when which key went out.

It is there only where the manifest asks for it, on the edges that lead from such an operator to another one.
A share of the batches, drawn by lot, is counted: of these it sees the rows as they go to an edge, knows whose
rows they came of, and later what they came to. Now and then the newest counts go into the node's store, where
whoever makes tables reads them; with each new table they begin anew (Middleware'16, section 3.2).

Neighbours: `keyed_stage` hands a batch's rows on through here, `steps` says what goes to an edge,
`routed_stage` tells of new tables and lets it publish; `penstock.control.locality` has the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from penstock.control.locality.batch_sampling import BatchSampling
from penstock.control.locality.pair_counter import LIMIT_BYTES, LIMIT_BYTES_MIN, PairCounter
from penstock.control.locality.pairs_row import PairsRow, pack_row, row_name
from penstock.control.locality.summary_wire import pack_summary
from penstock.dataflow.plan import Processor, Stage
from penstock.store.port import DropPairs, NodeStore, Output, PutPairs, StoreFull
from penstock_worker.outputs.edges import EdgeRunner
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.process.clock import Clock
from penstock_worker.stages.keyed_part import Key, keys_getter
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.values.rows import WireRow

SHARE = 0.2
"""Of the batches, counted. A record of these takes 1.1 to 1.9 microseconds, so one of all 0.2 to 0.4."""
PUBLISH_US = 10_000_000
"""Counts are put into the store this often."""
FLOWS_MAX = 1 << 16
"""Of more pairs of shards the rows between them are not counted apart."""

Origins = list[tuple[Key, int]]
"""Keys in the order in which their rows were put out, each with how many these were."""


class _CountedEdge:
    """One edge as one task counts it."""

    def __init__(self, downstream: str, limit_bytes: int, *, keeps_flows: bool) -> None:
        self.downstream = downstream
        self.keeps_flows = keeps_flows
        self.counter = PairCounter(limit_bytes)
        self.versions = (0, 0)
        self.reset(0)

    def reset(self, now_us: int) -> None:
        self.counter.reset()
        self.since_us = now_us
        self.rows = 0
        self.sent_bytes = 0
        self.flows: dict[tuple[int, int], int] = {}


class PairCounts:
    """Of one task. Not thread safe."""

    def __init__(
        self,
        stage: Stage,
        fanout: FanoutRunner,
        executor: str,
        task: int,
        clock: Clock,
        rng: Random,
        *,
        share: float = SHARE,
        publish_us: int = PUBLISH_US,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """`executor` and `task` say whose rows these are in the store."""
        self._upstream = stage.operator
        self._executor = executor
        self._task = task
        self._clock = clock
        self._share = share
        self._sampling = BatchSampling(share, rng)
        self._publish_us = publish_us
        self._due_us = clock.monotonic_us() + int(publish_us * rng.random())
        self._fanout = fanout
        head = stage.head
        shards = head.shards if isinstance(head, Processor) else 1
        self._edges: dict[str, _CountedEdge] = {}
        self._by_key = False
        """Whether steps stand before an edge: what came of which row is not known behind them, so each key's
        rows go through them by themselves."""
        runners = list(fanout.table_edges())
        direct = set(map(id, fanout.direct_edges()))
        limit = max(LIMIT_BYTES_MIN, limit_bytes // max(1, len({one.edge.operator for one in runners})))
        for runner in runners:
            name = runner.edge.operator
            if name not in self._edges:
                keeps_flows = shards * runner.edge.shards <= FLOWS_MAX
                self._edges[name] = _CountedEdge(name, limit, keeps_flows=keeps_flows)
                self._edges[name].reset(clock.now_us())
            self._by_key = self._by_key or id(runner) not in direct
            runner.tap = self._tap(runner, self._edges[name].counter)
        self._received: Sequence[Key] | None = None
        """The keys that the rows which are fed now came of; None while nothing is counted."""
        self._from = 0
        """The first row of those that are fed whose key is known."""

    @property
    def operators(self) -> tuple[str, ...]:
        """Those whose tables it has to know of."""
        return (self._upstream, *self._edges)

    def sampled(self) -> Origins | None:
        """Whether a batch is counted: where the keys of its rows are to be noted, else None."""
        return [] if self._sampling.is_due() else None

    def feed(
        self,
        first: int,
        origins: Origins,
        rows: Sequence[WireRow],
        timestamps_us: Sequence[int],
        into: OutputBatch,
        counts: dict[str, int],
    ) -> None:
        """Take a batch's rows to every target, as the fanout does, and count. From the row `first` on they
        are those of `origins`."""
        feed = self._fanout.feed_counting
        try:
            if not self._by_key:
                self._from = first
                self._received = [key for key, count in origins for _ in range(count)]
                feed(rows, timestamps_us, into, counts)
                return
            feed(rows[:first], timestamps_us[:first], into, counts)
            self._from = 0
            for key, count in origins:
                end = first + count
                self._received = (key,)
                feed(rows[first:end], timestamps_us[first:end], into, counts)
                first = end
            self._received = None
            feed(rows[first:], timestamps_us[first:], into, counts)
        finally:
            self._received = None

    def drained(self, shard: str, outputs: Sequence[Output]) -> None:
        """What a counted batch of `shard` came to."""
        for target, payload, rows, is_external in outputs:
            edge = None if is_external else self._edges.get(target.rpartition("/")[0])
            if edge is None:
                continue
            edge.rows += rows
            edge.sent_bytes += len(payload)
            if edge.keeps_flows:
                flow = int(shard.rpartition("/")[2]), int(target.rpartition("/")[2])
                edge.flows[flow] = edge.flows.get(flow, 0) + rows

    def see(self, newest: Callable[[str], int]) -> None:
        """The newest versions of tables, as the store has them: where one is another one, counts begin
        anew."""
        own = newest(self._upstream)
        for name, edge in self._edges.items():
            versions = (own, newest(name))
            if versions != edge.versions:
                edge.versions = versions
                edge.reset(self._clock.now_us())

    def publish(self, store: NodeStore) -> None:
        """Put the newest counts into the store, where that is due. One without room has none of them: others
        need it more."""
        now_us = self._clock.monotonic_us()
        if now_us < self._due_us:
            return
        self._due_us = now_us + self._publish_us
        try:
            store.pipeline(list(self._rows()))
        except StoreFull:
            return

    def withdraw(self, store: NodeStore) -> None:
        """The task goes: what it counted is nobody's any more."""
        names = tuple(self._name(edge) for edge in self._edges.values())
        store.call(DropPairs(names))

    def _rows(self) -> Iterator[PutPairs]:
        now_us = self._clock.now_us()
        for edge in self._edges.values():
            row = PairsRow(
                upstream=self._upstream,
                downstream=edge.downstream,
                executor=self._executor,
                task=self._task,
                at_us=max(now_us, edge.since_us),
                since_us=edge.since_us,
                share=self._share,
                versions=edge.versions,
                rows=edge.rows,
                sent_bytes=edge.sent_bytes,
                flows=tuple((source, target, rows) for (source, target), rows in edge.flows.items()),
                summary=pack_summary(edge.counter.summary()),
            )
            yield PutPairs(self._name(edge), pack_row(row))

    def _name(self, edge: _CountedEdge) -> str:
        return row_name(self._upstream, edge.downstream, self._executor, self._task)

    def _tap(self, runner: EdgeRunner, counter: PairCounter) -> Callable[[Sequence[Any]], None]:
        keys_of = keys_getter(runner.edge.key_columns, runner.row_types)

        def tap(rows: Sequence[Any]) -> None:
            received = self._received
            if received is None:
                return
            if self._by_key:
                counter.count(list(received) * len(rows), list(keys_of(rows)))
                return
            own = rows[self._from : self._from + len(received)]
            counter.count(received, list(keys_of(own)))

        return tap


def row_names(stage: Stage, fanout: FanoutRunner, executor: str, task: int) -> list[str]:
    """What the rows of counted pairs are called that a task of `stage` might leave in its store."""
    edges = dict.fromkeys(edge.edge.operator for edge in fanout.keyed_edges())
    return [row_name(stage.operator, name, executor, task) for name in edges]


def pair_counts(
    stage: Stage, fanout: FanoutRunner, executor: str, task: int, clock: Clock
) -> PairCounts | None:
    """The counts of a task of `stage`; None where nothing is to be counted."""
    head = stage.head
    if not isinstance(head, Processor) or not head.locality or not any(fanout.table_edges()):
        return None
    rng = Random(f"{executor}.{task}")  # noqa: S311 - a lot, no secret
    return PairCounts(stage, fanout, executor, task, clock, rng)
