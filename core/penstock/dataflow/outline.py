"""A plan laid out flat: its operators in the order of the data, each with the stage whose tasks run it.

What figures, the console delivery and a fresh start ask of a plan. Neighbour: `plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.dataflow.partitions import part_of
from penstock.dataflow.plan import Fanout, Plan, Processor, Stage
from penstock.dataflow.schema import Schema


@dataclass(frozen=True, slots=True)
class OutlinedOperator:
    """`kind` is source, step, keyed or sink; `stage` is the operator itself, or the one it is fused behind
    (the first one, where there are several; `others` are the rest). `timed_by` are the stages whose told
    watermarks are its own: a source itself, the producers of a processor that goes by event time; none where
    there is no event time."""

    name: str
    kind: str
    stage: str
    others: tuple[str, ...] = ()
    timed_by: tuple[str, ...] = ()
    timed_by_keyed: tuple[str, ...] = ()
    """Those of them that are keyed."""

    @property
    def is_stage(self) -> bool:
        return self.name == self.stage

    @property
    def stages(self) -> tuple[str, ...]:
        """Those whose tasks run it."""
        return (self.stage, *self.others)


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    """A console sink behind a stage: whose outboxes hold its rows, and how to read them."""

    sink: str
    stage: str
    schema: Schema


def outline(plan: Plan) -> tuple[OutlinedOperator, ...]:
    """All operators once, each after its inputs' stage."""
    found: dict[str, OutlinedOperator] = {}
    for stage in plan.stages:
        kind = "source" if stage.is_source else "sink" if stage.is_sink else "keyed"
        found[stage.operator] = OutlinedOperator(
            stage.operator,
            kind,
            stage.operator,
            timed_by=_timed_by(stage),
            timed_by_keyed=_timed_by_keyed(stage),
        )
        for operator in (*_fused(stage, stage.out), *_late(stage), *_letters(stage)):
            known = found.setdefault(operator.name, operator)
            if stage.operator not in known.stages:
                found[operator.name] = replace(known, others=(*known.others, stage.operator))
    return tuple(found.values())


def console_targets(plan: Plan) -> tuple[ConsoleTarget, ...]:
    """One for each (stage, console sink)."""
    return tuple(
        ConsoleTarget(sink.name, stage.operator, schema)
        for stage in plan.stages
        for sink, schema in stage.all_sinks()
        if sink.is_shown
    )


def sink_files(plan: Plan, shards: Mapping[str, Sequence[str]], base_dir: Path) -> list[Path]:
    """The files that the plan's sinks write behind these shards (stage -> shard names)."""
    return [
        file
        for stage in plan.stages
        for sink, _ in stage.all_sinks()
        for file in sink.files(stage.operator, map(part_of, shards[stage.operator]), base_dir)
    ]


def _timed_by(stage: Stage) -> tuple[str, ...]:
    if isinstance(stage.head, Processor):
        return stage.head.producers if stage.head.by_event_time else ()
    return (stage.operator,) if stage.tells_watermark else ()


def _timed_by_keyed(stage: Stage) -> tuple[str, ...]:
    return stage.head.keyed_producers if isinstance(stage.head, Processor) else ()


def _fused(stage: Stage, fanout: Fanout) -> Iterator[OutlinedOperator]:
    for step in fanout.steps:
        yield OutlinedOperator(step.name, "step", stage.operator)
        yield from _fused(stage, step.out)
    for sink in fanout.sinks:
        yield OutlinedOperator(sink.name, "sink", stage.operator)


def _letters(stage: Stage) -> Iterator[OutlinedOperator]:
    """Where its dead letters go, where that is a sink."""
    if (sink := stage.dead_letters) is not None and not sink.is_stage:
        yield OutlinedOperator(sink.name, "sink", stage.operator)


def _late(stage: Stage) -> Iterator[OutlinedOperator]:
    """Where its late rows go: sinks without an operator of their own in the manifest."""
    for sink in stage.head.late_sinks if isinstance(stage.head, Processor) else ():
        yield OutlinedOperator(sink.name, "sink", stage.operator)
