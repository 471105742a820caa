"""How far event time is, by what stores counted: of a stage, and whether it has gone through all of them.

The rule is the store's (`store.port.watermarks`), over what is seen of all stores. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.dataflow.plan import Plan, Processor, Stage
from penstock.store.port import ShardCounters, Watermark

Counters = Mapping[str, Sequence[ShardCounters | None]]
"""Stage -> its shards', None for one that was not seen."""


def least(told: Iterable[Watermark | None]) -> Watermark:
    """The watermark behind producers that told these: the least of those that are not idle; where all are,
    the greatest. Nothing is known where one has told nothing."""
    known = list(told)
    if not known or any(one is None for one in known):
        return Watermark(None)
    waited = [one.ms for one in known if one is not None and not one.is_idle]
    if waited:
        return Watermark(None if None in waited else min(ms for ms in waited if ms is not None))
    idle = [one.ms for one in known if one is not None and one.ms is not None]
    return Watermark(max(idle, default=None), is_idle=True)


def told_by(counters: Sequence[ShardCounters | None]) -> Watermark:
    """What the shards of a stage told, as those behind it take it."""
    return least(None if one is None else one.told for one in counters)


def told_by_all(stages: Iterable[str], counters: Counters) -> Watermark:
    """The watermark behind several stages."""
    return least(told_by(counters.get(name, ())) for name in stages)


def input_of(stage: Stage, counters: Counters) -> Watermark:
    """What a stage that goes by event time has before it."""
    head = stage.head
    return told_by_all(head.producers, counters) if isinstance(head, Processor) else Watermark(None)


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
    told = told_by(own)
    return not stage.tells_watermark or (told.ms is not None and told.ms >= before.ms)
