"""Faults of initial state, and of joins, that the simulation must catch; `planted_bugs` has the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from penstock.schedule.record import OperatorSchedule
from penstock.store.memory.store import MemoryStore
from penstock.store.port import ReadWatermark, Watermark
from penstock_simulation.protocol.drawn_runs import Shares
from penstock_simulation.protocol.scheduling import Schedules
from penstock_simulation.protocol.world import Parts
from penstock_worker.stages.initial_gate import InitialGate
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.task.loop import TaskLoop
from penstock_worker.windows.interval_join import IntervalJoinProcessor
from penstock_worker.windows.join_buffers import Held
from penstock_worker.windows.join_times import LEFT, RIGHT


class OpensWithTheFirst(MemoryStore):
    """The gate opens when one partition of initial rows has come to its end."""

    def _read_watermark(self, call: ReadWatermark) -> Watermark:
        facts = [fact for name in call.producers for fact in self._data.facts.get(name, {}).values()]
        return facts[0].watermark if facts else Watermark(None)


class AlwaysOpen(InitialGate):
    """Sources do not wait."""

    def is_open(self) -> bool:
        return True


class ToldWhenRead(MemoryStore):
    """The end of a partition of initial rows is told although some of them wait in its outbox."""

    def _tell_or_mark(self, shard: str, record: Any) -> None:
        if shard.startswith("mid-initial") and record.reached is not None and record.reached != record.told:
            self._tell(shard, record, record.reached)
        else:
            super()._tell_or_mark(shard, record)


class TimersAtOnce(TaskLoop):
    """A task asks for timers before all initial rows are in inboxes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._next_fetch._gate = None


class TimersBeforeTheRest(KeyedStage):
    """Timers of a shard fire although initial rows wait in its inbox."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reader._begun = None


class OnePartitionLater(Schedules):
    """The first schedule of the source of initial rows lacks a partition, which comes with a later one."""

    _writes = 0

    def _schedule(self, operator: str) -> OperatorSchedule:
        written = super()._schedule(operator)
        if operator != "mid-initial":
            return written
        self._writes += 1
        kept = dict(list(written.shards.items())[: len(written.shards) if self._writes > 1 else 1])
        return replace(written, shards=kept)

    def _write(self, *operators: str) -> None:
        super()._write(*dict.fromkeys((*operators, "mid-initial")))


class BuffersOverBySight(IntervalJoinProcessor):
    """What waits is over as soon as a later row of the other side comes, whatever the watermark says."""

    def _take(
        self, held: Held, side: int, time_us: int, values: Any, watermark_ms: int, made: list[Any]
    ) -> None:
        other = LEFT if side == RIGHT else RIGHT
        first_us, _ = self._times.partners(side, time_us)
        for bucket in [one for one in held.buckets[other] if one < self._times.bucket_of(first_us)]:
            self._buffers.rows(held, other, bucket)
            held.changed.discard((other, bucket))
            self._buffers.remove(held, other, bucket)
            self._buffers.write(held)
        super()._take(held, side, time_us, values, watermark_ms, made)


class WaitsForOneSide(MemoryStore):
    """The watermark of a join is that of its left input."""

    def _input_watermark(self, producers: Sequence[str], keyed: Sequence[str]) -> Watermark:
        return super()._input_watermark(producers[:1], keyed)


class OverALittleEarly(IntervalJoinProcessor):
    """A bucket goes when its own interval is over, not when nobody can come any more who meets its rows."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        over_ms: Callable[[int, int], int] = self._times.over_ms
        self._times.over_ms = lambda side, bucket: over_ms(side, bucket) - 1_000  # type: ignore[method-assign]


_INITIAL = Shares(joined=0.0, initial=1.0)
_JOINED = Shares(joined=1.0)

INITIAL_BUGS = {
    name: replace(parts, shares=_INITIAL)
    for name, parts in {
        "a gate that opens with the first end": Parts(store=OpensWithTheFirst),
        "a gate that opens with the first end, by event time": Parts(
            store=OpensWithTheFirst, moves=True, event_time=True
        ),
        "no gate": Parts(gate=AlwaysOpen),
        "an end that is told before its rows": Parts(store=ToldWhenRead, moves=True),
        "timers that do not wait for the gate": Parts(loop=TimersAtOnce),
        "timers before the rest of the initial rows": Parts(keyed=TimersBeforeTheRest),
        "a partition of initial rows is added later": Parts(schedules=OnePartitionLater),
    }.items()
}
JOIN_BUGS = {
    name: replace(parts, shares=_JOINED, moves=True, event_time=True)
    for name, parts in {
        "a join's buffer over by the other side's rows": Parts(join=BuffersOverBySight),
        "a join waits for one side": Parts(store=WaitsForOneSide),
        "a join's buffer over too early": Parts(join=OverALittleEarly),
    }.items()
}
