"""Shards without work take their input's watermark too, so that stages behind them go on.

Commits bring a watermark to shards that have rows or timers; of the others the task asks the store now and
then, some at a call. Only stages that tell their watermark need it. A shard that holds rows back until they
are tried again is left out: what comes of them would be late behind it. Neighbour: `task.loop`.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.on_error import held_rows_of
from penstock.dataflow.plan import Processor
from penstock.store.ownership import OwnedShard
from penstock.store.port import Advance, Advanced, Advancing, Answer, Watermark
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.watermark_watch import WATERMARK_LOOK_US

ADVANCED_MAX = 64
"""Shards of one call: at about 20 microseconds each."""


class Advances:
    """One per task."""

    def __init__(self, launch: TaskLaunch) -> None:
        stage = launch.stage
        head = stage.head
        self._producers = head.producers if isinstance(head, Processor) and stage.tells_watermark else ()
        self._keyed = head.keyed_producers if isinstance(head, Processor) else ()
        self._held = held_rows_of(stage.operator)
        self._watermark: Watermark | None = None
        self._due_us = 0

    def fetched(self, watermark: Watermark | None) -> None:
        """A fetch told how far the stage is."""
        if watermark is not None:
            self._watermark = watermark

    def due(self, owned: Mapping[str, OwnedShard], now_us: int) -> list[Advance]:
        """What to ask of the store now; of shards that lag behind."""
        told = self._watermark
        if not self._producers or told is None or told == Watermark(None) or now_us < self._due_us:
            return []
        self._due_us = now_us + WATERMARK_LOOK_US
        behind = [
            Advancing(one.shard, one.generation, one.epoch)
            for one in owned.values()
            if (one.watermark.is_idle is not told.is_idle or (one.watermark.ms or 0) < (told.ms or 0))
            and not one.counted(self._held)
        ]
        return [
            Advance(self._producers, tuple(behind[first : first + ADVANCED_MAX]), self._keyed)
            for first in range(0, len(behind), ADVANCED_MAX)
        ]

    @staticmethod
    def taken(call: Advance, answer: Advanced, owned: Mapping[str, OwnedShard]) -> list[str]:
        """Note what shards have now; answers those that are owned no more."""
        lost = []
        for shard, one in zip(call.shards, answer.answers, strict=True):
            mine = owned.get(shard.shard)
            if mine is None or mine.epoch != shard.epoch:
                continue
            if one is Answer.OK:
                mine.took(answer.watermark)
            elif one is not Answer.BUSY:
                lost.append(shard.shard)
        return lost
