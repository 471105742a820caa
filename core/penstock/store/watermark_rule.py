"""How far what comes to a stage is, by what the shards of its producers told: the rule, pure.

Each partition of a source goes at its own pace, so one that is idle holds nobody back. The shards of a keyed
stage all take one watermark, that of what comes to them: one that told that it is idle may have rows before
it again, of which it says nothing before they are worked off. So such a stage is as far as its last shard,
and idle when all of them are. `redis/functions/shared/watermarks.lua` is the same in the store; the twin and
`figures` ask here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from penstock.store.port import Watermark

UNKNOWN = Watermark(None)


def told_by_shards(told: Iterable[Watermark | None], *, keyed: bool) -> Watermark:
    """The watermark behind all shards of an operator. Nothing is known where one has told nothing."""
    known = list(told)
    waited = [_height(one) for one in known if one is not None and not one.is_idle]
    every = [_height(one) for one in known if one is not None]
    if not known or len(every) < len(known):
        return UNKNOWN
    if not waited:
        return _watermark(min(every) if keyed else max(every), is_idle=True)
    return _watermark(min(every if keyed else waited))


def told_by_operators(told: Sequence[Watermark]) -> Watermark:
    """The watermark behind several operators: the least of those that are not idle; where all are, the
    greatest."""
    if not told or UNKNOWN in told:
        return UNKNOWN
    waited = [_height(one) for one in told if not one.is_idle]
    if waited:
        return _watermark(min(waited))
    return _watermark(max(map(_height, told)), is_idle=True)


def _height(told: Watermark) -> float:
    """In ms. None is below all others, those before 1970 too; in a store it is 0."""
    return told.ms or -math.inf


def _watermark(height: float, *, is_idle: bool = False) -> Watermark:
    return Watermark(None if height == -math.inf else int(height), is_idle)
