"""How far event time is, by what stores counted: of a stage, and whether it has gone through all of them.

The rule is the store's (`store.watermark_rule`), over what is seen of all stores. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.dataflow.plan import Plan, Processor, Stage
from penstock.store.port import ShardCounters, Watermark
from penstock.store.watermark_rule import told_by_operators, told_by_shards

Counters = Mapping[str, Sequence[ShardCounters | None]]
"""Stage -> its shards', None for one that was not seen."""


def told_by(counters: Sequence[ShardCounters | None], *, keyed: bool) -> Watermark:
    """What the shards of a stage told, as those behind it take it."""
    return told_by_shards((None if one is None else one.told for one in counters), keyed=keyed)


def told_by_all(stages: Sequence[str], keyed: Sequence[str], counters: Counters) -> Watermark:
    """The watermark behind several stages, of which those of `keyed` are keyed."""
    return told_by_operators([told_by(counters.get(name, ()), keyed=name in keyed) for name in stages])


def input_of(stage: Stage, counters: Counters) -> Watermark:
    """What a stage that goes by event time has before it."""
    head = stage.head
    if not isinstance(head, Processor):
        return Watermark(None)
    return told_by_all(head.producers, head.keyed_producers, counters)


def are_through(plan: Plan, counters: Counters) -> bool:
    """Whether nothing is to happen any more without new rows: no timer is before its stage's watermark, and
    each stage has told what came to it."""
    return all(
        _is_through(stage, counters)
        for stage in plan.stages
        if isinstance(stage.head, Processor) and stage.head.by_event_time
    )


def _is_through(stage: Stage, counters: Counters) -> bool:
    before = input_of(stage, counters)
    if before.ms is None:
        return True
    own = counters.get(stage.operator, ())
    for one in own:
        if one is None or (one.next_timer_ms is not None and one.next_timer_ms < before.ms):
            return False
    told = told_by(own, keyed=True)
    return not stage.tells_watermark or (told.ms is not None and told.ms >= before.ms)
