"""Code that raises now and then, after it has changed its state, under onError Retry: what waits is held back
in the state, and every promise holds all the same, whatever is killed, fenced and moved meanwhile, also where
routing tables take keys to other shards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from penstock.dataflow.on_error import FAIL, OnError
from penstock.store.letters import Letter
from penstock_simulation.protocol.world import Parts, simulate
from penstock_worker.stages.held_back import HoldingCalls
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.state.cache import Key, ShardState
from penstock_worker.user_code.running import ProcessorRunner, UserCodeError
from penstock_worker.values.held import ONE_ROW, Held

RETRY = OnError(FAIL, attempts=100, backoff_ms=3)
KINDS = {
    "still": Parts(),
    "moving": Parts(moves=True),
    "full": Parts(pressure=True),
    "tables": Parts(moves=True, tables=True),
    "tables-full": Parts(moves=True, tables=True, pressure=True),
    "by event time": Parts(event_time=True),
    "by event time, moving": Parts(event_time=True, moves=True),
}
SEEDS = 30
"""Half as many where tables change: such runs take twice as long."""


class FalteringRunner(ProcessorRunner):
    """Raises behind some calls of the processor."""

    lot: random.Random
    operator: str

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ONE_ROW,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        made = super().run(state, key, rows, now_ms, held, given)
        if self.lot.random() < 0.2:
            raise UserCodeError(self.operator, "falters", "")
        return made

    def expire(
        self, state: ShardState, key: Key, expiry_ms: int, now_ms: int, held: Held = ONE_ROW
    ) -> list[tuple[Any, ...]]:
        made = super().expire(state, key, expiry_ms, now_ms, held)
        if self.lot.random() < 0.2:
            raise UserCodeError(self.operator, "falters", "")
        return made


class FalteringStage(KeyedStage):
    """A keyed stage whose code falters."""

    def __init__(self, operator: str, head: Any, runner: ProcessorRunner, *others: Any, **named: Any) -> None:
        faltering = copy(runner)
        faltering.__class__ = FalteringRunner
        assert isinstance(faltering, FalteringRunner)
        faltering.lot, faltering.operator = random.Random(operator), operator
        super().__init__(operator, head, faltering, *others, on_error=RETRY, **named)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of the simulation hold few bytes: what waits lies in parts."""
    monkeypatch.setattr("penstock.store.letters.PART_BYTES", 100)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_tried_again_is_neither_lost_nor_doubled_nor_out_of_order(kind: str) -> None:
    parts = replace(KINDS[kind], keyed=FalteringStage)
    seeds = SEEDS // 2 if parts.tables else SEEDS
    broken = [one for one in (simulate(seed, parts) for seed in range(seeds)) if one.broken]
    assert not broken, "\n".join(f"seed {one.seed}, turn {one.turns}: {one.broken}" for one in broken[:10])


class Forgetful(HoldingCalls):
    """Does not look at what an earlier owner has left."""

    def adopt(self, owned: Any) -> None:
        self._waiting[owned.shard] = {}


def test_an_owner_that_forgets_what_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_worker.stages.failing_code.HoldingCalls", Forgetful)
    parts = replace(KINDS["moving"], keyed=FalteringStage)
    assert any(simulate(seed, parts).broken for seed in range(20))


class StaysBehind(HoldingCalls):
    """What waits of a key stays where it is when the key changes its shard."""

    def give_away(self, key: Key) -> list[Letter]:
        return []


class LosesWhatWaits(HoldingCalls):
    """What waits of a key that comes is lost on its way."""

    def take_in(self, key: Key, waiting: Iterable[Letter]) -> None:
        """Nothing is taken in."""


class TurnsItAround(HoldingCalls):
    """What a key brings along waits in the wrong order."""

    def take_in(self, key: Key, waiting: Iterable[Letter]) -> None:
        super().take_in(key, reversed(list(waiting)))


@pytest.mark.parametrize(("bug", "first"), [(StaysBehind, 0), (LosesWhatWaits, 0), (TurnsItAround, 100)])
def test_what_does_not_go_with_its_key_is_found(
    bug: type[HoldingCalls], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_worker.stages.failing_code.HoldingCalls", bug)
    parts = replace(KINDS["tables"], keyed=FalteringStage)
    assert any(simulate(seed, parts).broken for seed in range(first, first + 100))


def test_an_operator_that_tells_its_watermark_while_rows_wait_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HoldingCalls, "holds_any", lambda self: False)
    parts = replace(KINDS["by event time"], keyed=FalteringStage)
    assert any(simulate(seed, parts).broken for seed in range(20))
