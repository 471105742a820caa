"""The parts that an operator's shards are named by: numbers of a keyed processor, and whatever a source calls
its partitions.

Whoever creates shards (the run, the agent) asks here. A shard is called "OPERATOR/PART" everywhere.
"""

from __future__ import annotations

from pathlib import Path

from penstock.dataflow.plan import Processor, Stage


def shard_name(operator: str, part: str) -> str:
    return f"{operator}/{part}"


def part_of(shard: str) -> str:
    """The part of a shard's name; operators have no slash in theirs."""
    return shard.partition("/")[2]


def operator_of(shard: str) -> str:
    """The operator whose shard it is."""
    return shard.partition("/")[0]


def shards_of(stage: Stage, base_dir: Path) -> tuple[str, ...]:
    """The names of all shards of `stage` that are there now. Raises what `Source.parts` raises."""
    head = stage.head
    parts = head.fixed_parts if isinstance(head, Processor) else head.parts(base_dir)
    return tuple(shard_name(stage.operator, part) for part in parts)
