"""What of a topology its stored state depends on: state is gone on with only when none of it changed.

State, inboxes and positions are kept by operator, shard and column; so those, the keys, the sources, the
edges and the sinks' folders are fixed for the life of the state. Code, rates, workers, tasks and memory are
not. Neighbours: `penstock run` keeps the words beside its store (`run_record`), the operator a stage's digest
in its Schedule (`cluster.decisions.identity`); decision 0007 says the same to the API server.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from penstock.dataflow.letter_columns import DEAD_LETTERS
from penstock.dataflow.plan import Fanout, Plan, Processor, Stage

ABSENT = "nothing"
MAY_COME = frozenset({f"{DEAD_LETTERS}.deadLetters"})
"""What may be there now though it was not: nothing that is stored knows of it."""


def identity_of(plan: Plan) -> dict[str, str]:
    """ "OPERATOR.PROPERTY" -> its value in words, for everything that must not change."""
    found: dict[str, str] = {}
    for stage in plan.stages:
        _add(found, stage)
    return found


def stage_digest(stage: Stage) -> str:
    """64 hexadecimal digits, for everything of one stage, and of what is fused behind it, that must not
    change."""
    found: dict[str, str] = {}
    _add(found, stage)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One line for each property that is not what it was, by name."""
    return [
        f"{name}: was {before.get(name, ABSENT)}, is {now.get(name, ABSENT)}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name) and (name in before or name not in MAY_COME)
    ]


def _add(found: dict[str, str], stage: Stage) -> None:
    found.update(_head(stage))
    for name, value in _fanout(stage.operator, stage.out):
        if name in found and value not in found[name].split(" + "):
            # A step behind several stages, or a keyed stage fed by several.
            found[name] = " + ".join(sorted({*found[name].split(" + "), value}))
        else:
            found[name] = value


def _head(stage: Stage) -> Iterator[tuple[str, str]]:
    name = stage.operator
    match stage.head:
        case Processor() as head:
            yield f"{name}.shards", str(head.shards)
            if head.batches_to is not None:
                yield f"{name}.sink", head.batches_to.identity_text()
            elif head.transform is not None:
                yield f"{name}.transform", "transform"
            else:
                yield f"{name}.keyBy", ", ".join(head.input.names[column] for column in head.key_columns)
            yield f"{name}.input schema", head.input.ddl()
            if head.has_timers:
                yield f"{name}.timeMode", head.time_mode
            if head.event_column is not None:
                yield f"{name}.input event time", head.input.names[head.event_column]
            if head.window is not None:
                yield f"{name}.window", head.window.identity_text()
            if head.join is not None:
                yield f"{name}.join", head.join.identity_text()
            for sink in head.late_sinks:
                yield f"{name}.lateTo", sink.identity_text()
        case source:
            yield f"{name}.source.{source.kind}", source.identity_text()
    if stage.dead_letters is not None:
        yield f"{DEAD_LETTERS}.deadLetters", stage.dead_letters.identity_text()


def _fanout(name: str, fanout: Fanout) -> Iterator[tuple[str, str]]:
    yield f"{name}.outputSchema", fanout.schema.ddl()
    if fanout.event_time is not None:
        yield f"{name}.eventTime.column", fanout.schema.names[fanout.event_time.column]
    for edge in fanout.edges:
        yield f"{edge.operator}.inputs", name
        if edge.projection is not None:
            side = ("left", "right")[edge.projection.side]
            columns = (fanout.schema.names[column] for column in edge.key_columns)
            yield f"{edge.operator}.join.{side}.key", ", ".join(columns)
    for sink in fanout.sinks:
        yield f"{sink.name}.inputs", name
        yield f"{sink.name}.sink", sink.identity_text()
    for step in fanout.steps:
        yield f"{step.name}.inputs", name
        yield from _fanout(step.name, step.out)
