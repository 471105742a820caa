"""Partitions that were read to their end and may have more by now: `penstock run` has them read on.

Whether they have, their reader finds out (of a file `sources.file_changes` in the worker). Neighbour:
`local_run` asks before it says that the input is used up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.dataflow.partitions import part_of
from penstock.dataflow.plan import Plan
from penstock.dataflow.source import Source
from penstock.store.port import ShardCounters


class GrownFiles:
    """Of the sources of `plan`."""

    def __init__(self, plan: Plan, base_dir: Path) -> None:
        self._base_dir = base_dir
        self._sources = {
            stage.operator: stage.head
            for stage in plan.stages
            if isinstance(stage.head, Source) and not stage.initial_of
        }

    def among(
        self,
        shards: Mapping[str, Sequence[str]],
        counters: Mapping[str, Sequence[ShardCounters | None]],
    ) -> list[str]:
        """Those of `shards` (by stage) that are finished and have grown since. `counters` are theirs, in
        their order."""
        return [
            shard
            for operator, source in self._sources.items()
            for shard, known in zip(shards[operator], counters[operator], strict=True)
            if known is not None
            and known.finished
            and known.position
            and source.grew(part_of(shard), known.position, self._base_dir)
        ]
