"""Files that were read to their end and are not the ones any more: `penstock run` has them read on.

Whether a file was appended to, or changed before that, its reader finds out (`sources.file_changes` in the
worker). Neighbour: `local_run` asks before it says that the input is used up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.dataflow.file_position import file_position
from penstock.dataflow.partitions import file_of, part_of
from penstock.dataflow.plan import FilesSource, Plan
from penstock.store.port import ShardCounters


class GrownFiles:
    """Of the text sources of `plan`."""

    def __init__(self, plan: Plan, base_dir: Path) -> None:
        self._base_dir = base_dir
        self._sources = [stage.operator for stage in plan.stages if isinstance(stage.head, FilesSource)]

    def among(
        self,
        shards: Mapping[str, Sequence[str]],
        counters: Mapping[str, Sequence[ShardCounters | None]],
    ) -> list[str]:
        """Those of `shards` (by stage) whose files are finished and have changed since. `counters` are
        theirs, in their order. A file that is gone was read to its end."""
        return [
            shard
            for source in self._sources
            for shard, known in zip(shards[source], counters[source], strict=True)
            if known is not None
            and known.finished
            and known.position
            and self._changed(shard, known.position)
        ]

    def _changed(self, shard: str, position: bytes) -> bool:
        try:
            return not file_position(position).is_of(file_of(part_of(shard), self._base_dir).stat())
        except OSError:
            return False
