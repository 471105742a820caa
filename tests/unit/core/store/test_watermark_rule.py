"""How far what comes to a stage is, by what its producers told."""

from __future__ import annotations

import pytest

from penstock.store.port import Watermark
from penstock.store.watermark_rule import UNKNOWN, told_by_operators, told_by_shards


def at(ms: int | None) -> Watermark:
    return Watermark(ms)


def idle(ms: int | None) -> Watermark:
    return Watermark(ms, is_idle=True)


@pytest.mark.parametrize(
    ("told", "of_a_source", "of_a_keyed_stage"),
    [
        ([], UNKNOWN, UNKNOWN),
        ([at(5), None], UNKNOWN, UNKNOWN),
        ([at(5), at(3)], at(3), at(3)),
        ([at(5), idle(3)], at(5), at(3)),
        ([at(5), idle(None)], at(5), UNKNOWN),
        ([idle(5), idle(3)], idle(5), idle(3)),
        ([idle(None)], idle(None), idle(None)),
        ([at(-5), at(-3)], at(-5), at(-5)),
        ([at(-5), UNKNOWN], UNKNOWN, UNKNOWN),
        ([idle(-5), idle(None)], idle(-5), idle(None)),
        ([idle(-5), idle(-3)], idle(-3), idle(-5)),
    ],
)
def test_an_idle_partition_holds_nobody_back_and_an_idle_keyed_shard_does(
    told: list[Watermark | None], of_a_source: Watermark, of_a_keyed_stage: Watermark
) -> None:
    assert told_by_shards(told, keyed=False) == of_a_source
    assert told_by_shards(told, keyed=True) == of_a_keyed_stage


@pytest.mark.parametrize(
    ("told", "behind"),
    [
        ([], UNKNOWN),
        ([at(5), UNKNOWN], UNKNOWN),
        ([at(5), idle(3)], at(5)),
        ([at(5), at(3)], at(3)),
        ([idle(5), idle(3)], idle(5)),
        ([idle(-5), idle(None)], idle(-5)),
        ([at(-5), idle(None)], at(-5)),
    ],
)
def test_an_idle_operator_holds_nobody_back(told: list[Watermark], behind: Watermark) -> None:
    assert told_by_operators(told) == behind
