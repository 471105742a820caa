"""What must hold of watermarks at each moment of a run by event time.

What is told is true: nothing before it is on its way from whoever told it, in whichever store that lies. What
a shard has taken is true likewise, and no more than what the owners of partitions had committed. Neither goes
back. In the end the watermark has come through, to shards without rows too. The checks look at what stores
hold and at what owners were told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from penstock.store.codec import decode_batch, decode_counts
from penstock.store.memory.node import ShardRecord
from penstock.store.port import (
    Advance,
    Advanced,
    Answer,
    Claim,
    Claimed,
    Commit,
    Request,
    ShardStatus,
    Watermark,
    WatermarkFact,
)
from penstock_simulation.protocol.event_workload import Timed
from penstock_simulation.protocol.node import SimulatedNode
from penstock_simulation.protocol.promises import PromiseBroken
from penstock_simulation.protocol.workload import SHARDS

NUMBER = 8
"""Of this promise."""
_LIVE = frozenset({ShardStatus.ACTIVE, ShardStatus.COPYING, ShardStatus.FROZEN})


class WatermarkPromises:
    """Remembers what was told during one run."""

    def __init__(self, workload: Timed, nodes: Mapping[str, SimulatedNode]) -> None:
        self._workload = workload
        self._nodes = nodes
        self._sources = tuple(workload.partitions)
        self._taken: dict[str, list[tuple[int, int]]] = {}
        """Order and watermark of what owners were told that a shard has at the least, by shard,"""
        self._claimed: dict[str, list[tuple[int, int]]] = {}
        """and of what they were granted it with."""
        self._seen: dict[str, dict[int, Watermark]] = {}
        """Version -> watermark of the facts that somebody was told of, by shard."""
        self._known: dict[tuple[str, int], dict[str, int]] = {}
        """Versions that a start of a store knows, by shard."""

    # --- what owners, and carriers, are told

    def told(self, calls: Sequence[Request[Any]], answers: Sequence[Any], order: int) -> None:
        """Effects were in this order over all stores."""
        for call, answer in zip(calls, answers, strict=True):
            match call:
                case Claim() if isinstance(answer, Claimed):
                    self._claimed.setdefault(call.shard, []).append((order, answer.watermark_ms or 0))
                    self._has(call.shard, answer.watermark_ms, order)
                case Commit() if answer is Answer.OK or answer is Answer.DONE:
                    if call.watermark is not None and call.watermark.ms is not None:
                        self._has(call.shard, call.watermark.ms, order)
                    if call.counts and any("/late" in name for name in decode_counts(call.counts)):
                        raise PromiseBroken(NUMBER, f"a row is late in {call.shard}")
                case Advance() if isinstance(answer, Advanced):
                    for one, taken in zip(call.shards, answer.answers, strict=True):
                        if taken is Answer.OK and answer.watermark.ms is not None:
                            self._has(one.shard, answer.watermark.ms, order)

    def carried(self, facts: Iterable[WatermarkFact]) -> None:
        """Somebody was told of these facts, and may tell others."""
        for fact in facts:
            self._saw(fact)

    def _has(self, shard: str, ms: int | None, order: int) -> None:
        """A shard's watermark never goes back, whoever owns it."""
        taken = self._taken.setdefault(shard, [])
        if ms is not None:
            taken.append((order, ms))
        for at, claimed_ms in self._claimed.get(shard, ()):
            if any(before < at and taken_ms > claimed_ms for before, taken_ms in taken):
                raise PromiseBroken(
                    NUMBER, f"{shard} is claimed at watermark {claimed_ms}, and was at {taken}"
                )

    def _saw(self, fact: WatermarkFact) -> None:
        """A version is one fact, and a later one says no less."""
        versions = self._seen.setdefault(fact.shard, {})
        if versions.setdefault(fact.version, fact.watermark) != fact.watermark:
            raise PromiseBroken(NUMBER, f"{fact} was told otherwise: {versions[fact.version]}")
        for version, watermark in versions.items():
            earlier, later = sorted(((version, watermark.ms or 0), (fact.version, fact.watermark.ms or 0)))
            if earlier[1] > later[1]:
                raise PromiseBroken(NUMBER, f"{fact}, and in version {version} there was {watermark}")

    # --- what stores hold

    def check(self) -> None:
        """Whatever is taken, or told anywhere, is true."""
        records = self._records()
        homes = {shard: home for shard, found in records.items() if (home := _home(found)) is not None}
        facts = [
            fact
            for node in self._nodes.values()
            for of_shards in node.facts.values()
            for fact in of_shards.values()
            if fact.watermark.ms
        ]
        if not facts:
            return
        self._check_versions()
        ahead = {shard: self._out_of_source(shard, records, homes) for shard in self._sources}
        ahead |= {shard: self._out_of_initial(shard, records, homes) for shard in self._workload.initial}
        for stage in self._workload.stages:
            for shard in stage.shards:
                towards_us = self._towards(shard, stage.producers, records, homes, ahead)
                self._check_taken(shard, homes.get(shard), towards_us)
                waiting_us = self._waiting_us(shard, stage.targets, records, homes)
                ahead[shard] = min(towards_us, _timers_us(homes.get(shard)), waiting_us)
        committed = self._committed(homes)
        for shard in self._workload.stages[0].shards:
            if (home := homes.get(shard)) is not None and (home.watermark_ms or 0) > committed:
                what = f"{shard} has taken {home.watermark_ms}, and partitions are at {committed}"
                raise PromiseBroken(NUMBER, what)
        for fact in facts:
            if (fact.watermark.ms or 0) * 1000 > ahead[fact.shard]:
                raise PromiseBroken(NUMBER, f"{fact}, and {ahead[fact.shard]} us are on their way")

    def _check_versions(self) -> None:
        """No store forgets a fact for an earlier one."""
        for name, node in self._nodes.items():
            known = self._known.setdefault((name, node.starts), {})
            for of_shards in node.facts.values():
                for fact in of_shards.values():
                    if fact.version < known.get(fact.shard, 0):
                        raise PromiseBroken(NUMBER, f"{name} has {fact}, and had version {known[fact.shard]}")
                    known[fact.shard] = fact.version

    def not_ended(self) -> str:
        """The partition that has not ended, after a calm, or with another watermark than it should; "" for
        none: then the last watermark is known."""
        ended = []
        for shard in self._sources:
            home = _home(self._records().get(shard, ()))
            least_ms, most_ms = self._workload.end_of(shard)
            ended_ms = home.watermark_ms or 0 if home is not None and home.finished else 0
            if not least_ms <= ended_ms <= most_ms:
                return f"{shard} has ended at {ended_ms}, not between {least_ms} and {most_ms}"
            ended.append(ended_ms)
        self._workload.ended(ended)
        return ""

    def left_over(self) -> str:
        """What the last watermark has not come to, after a calm; "" when liveness is kept."""
        last = Watermark(self._workload.end_ms, is_idle=True)
        first, *behind = self._workload.stages
        for shard, found in self._records().items():
            home = _home(found)
            if home is not None and behind and shard in first.shards and home.watermark_ms != last.ms:
                return f"{shard} is left with watermark {home.watermark_ms}, not {last.ms}"
        for name, node in self._nodes.items():
            for shard in first.shards if behind else ():
                fact = node.facts.get("mid", {}).get(shard)
                if fact is None or fact.watermark != last:
                    return f"{name} is left with {fact} of {shard}, not {last}"
        return ""

    def _records(self) -> dict[str, list[ShardRecord]]:
        records: dict[str, list[ShardRecord]] = {}
        for node in self._nodes.values():
            for shard, record in node.records():
                records.setdefault(shard, []).append(record)
        return records

    def _committed(self, homes: Mapping[str, ShardRecord]) -> float:
        """The least of what the owners of partitions had committed; of those that have not ended, and that
        have not said that they are idle."""
        sources = [homes[shard] for shard in self._sources if shard in homes]
        if len(sources) < len(self._sources):
            return math.inf
        going = [
            record.watermark_ms or 0
            for record in sources
            if not (record.finished or (record.reached is not None and record.reached.is_idle))
        ]
        return min(going) if going else max(record.watermark_ms or 0 for record in sources)

    def _check_taken(self, shard: str, home: ShardRecord | None, towards_us: float) -> None:
        if home is not None and (home.watermark_ms or 0) * 1000 > towards_us:
            what = f"{shard} has taken {home.watermark_ms}, and {towards_us} us are before it"
            raise PromiseBroken(NUMBER, what)

    def _out_of_source(
        self, shard: str, records: Mapping[str, list[ShardRecord]], homes: Mapping[str, ShardRecord]
    ) -> float:
        """The earliest that a partition has not read, or that waits to be placed."""
        position = max((int(record.position or b"0") for record in records.get(shard, ())), default=0)
        waiting_us = self._waiting_us(shard, SHARDS.mid, records, homes)
        return min(self._workload.rest_us[shard][position], waiting_us)

    def _out_of_initial(
        self, shard: str, records: Mapping[str, list[ShardRecord]], homes: Mapping[str, ShardRecord]
    ) -> float:
        """The same of a partition of initial rows, which come before all times."""
        position = max((int(record.position or b"0") for record in records.get(shard, ())), default=0)
        if position < len(self._workload.initial[shard]):
            return 0.0
        return self._waiting_us(shard, SHARDS.mid, records, homes)

    def _towards(
        self,
        shard: str,
        producers: Sequence[str],
        records: Mapping[str, list[ShardRecord]],
        homes: Mapping[str, ShardRecord],
        ahead: Mapping[str, float],
    ) -> float:
        """The earliest that may come to a shard, or waits there."""
        home = homes.get(shard)
        at = self._workload.at_behind
        inbox = [_earliest_us(entry.payload, at) for entry in home.inbox] if home is not None else []
        return min((*inbox, *(ahead[producer] for producer in producers)))

    def _waiting_us(
        self,
        producer: str,
        targets: Sequence[str],
        records: Mapping[str, list[ShardRecord]],
        homes: Mapping[str, ShardRecord],
    ) -> float:
        """The earliest in a shard's outboxes that is in no inbox yet."""
        earliest_us = math.inf
        for record in records.get(producer, ()):
            for target in targets:
                lane = record.lanes.get(target)
                if lane is None or not lane.waiting:
                    continue
                there = homes.get(target)
                placed = there.taken_from.get(producer, 0) if there is not None else math.inf
                for entry in lane.waiting:
                    if entry.number > placed:
                        earliest_us = min(earliest_us, _earliest_us(entry.payload, self._workload.at_behind))
        return earliest_us


def _home(found: Sequence[ShardRecord]) -> ShardRecord | None:
    """The record that counts: where a shard lives, or its complete copy."""
    for record in found:
        if record.status in _LIVE:
            return record
    for record in found:
        if record.status is ShardStatus.INSTALLING and record.note is not None and record.note.complete:
            return record
    return None


def _timers_us(home: ShardRecord | None) -> float:
    return min(home.timers.values(), default=math.inf) * 1000 if home is not None else math.inf


@lru_cache(maxsize=4096)
def _earliest_us(payload: bytes, at: int) -> float:
    """The earliest event time in an entry, which rows have at that column; initial ones come before all."""
    batch = decode_batch(payload)
    return 0.0 if batch.initial else min((row[at] for row in batch.rows), default=math.inf)
