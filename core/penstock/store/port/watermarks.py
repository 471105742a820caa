"""Watermarks: no row with an event time before it is waited for any more.

A shard's owner says with its commits how far it is. What it has put out by then may still wait in its
outbox: only when all of that has reached its targets' inboxes is the watermark *told*, as a fact about this
one producer that stays true whatever moves or restarts. So the least of what all producers of a stage told
holds for every inbox of that stage, however old the facts are and in whatever order they were read
(`docs/decisions/0033-watermarks-are-facts.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.store.port.answers import Answer, Watermark
from penstock.store.port.request import Request


class WatermarkFact(NamedTuple):
    """What a producer told: of two facts about one shard the one with the higher `version` is newer."""

    shard: str
    version: int
    watermark: Watermark


@dataclass(frozen=True, slots=True)
class ReadWatermark(Request[Watermark]):
    """The watermark of a stage that `producers` (operators) feed, by what their shards told here.

    It is the least of those that are not idle; where all are, the greatest. Those of `keyed` among them are
    keyed stages: idle or not, the least of its shards counts, and one is idle where all of them are. Nothing
    is known before each shard that the schedules name has told something (`watermark_rule`).
    """

    producers: tuple[str, ...]
    keyed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listen(Request[bool]):
    """Have the ready list `ready` rung, once, when anything new is known of `producers` here: what one of
    their shards told, or which shards there are. It has something then, but nothing that a fetch hands out.

    False, and nothing is rung, where the stage's watermark is no longer `heard`, where timers that it has
    passed wait for something else, and at a store that cannot do it. `keyed` as of `ReadWatermark`.
    """

    ready: str
    heard: Watermark
    producers: tuple[str, ...]
    keyed: tuple[str, ...] = ()


class Advancing(NamedTuple):
    """A shard that is to take its input's watermark, as its owner knows it."""

    shard: str
    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """`watermark` is that of the input. `answers`, one a shard: OK (taken), BUSY (something waits in the
    inbox, whose commits bring it), FENCED, UNKNOWN."""

    watermark: Watermark
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Advance(Request[Advanced]):
    """Shards without work take their input's watermark and tell it. `producers` and `keyed` as of
    `ReadWatermark`. May be repeated."""

    producers: tuple[str, ...]
    shards: tuple[Advancing, ...]
    keyed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToldOperators(Request[list[str]]):
    """Operators of which something was told here, by name."""


@dataclass(frozen=True, slots=True)
class ReadFacts(Request[list[WatermarkFact]]):
    """All that the shards of an operator told here, or that was brought here (`TakeFacts`), by shard."""

    operator: str


@dataclass(frozen=True, slots=True)
class TakeFacts(Request[Answer]):
    """Facts that another store has. Each counts if it is newer than what is known. OK, UNKNOWN."""

    operator: str
    facts: tuple[WatermarkFact, ...]
