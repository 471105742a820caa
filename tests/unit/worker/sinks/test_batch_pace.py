"""When a batch begins: at once where none did for a while, else an interval behind the one before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clocks.standing_clock import StandingClock
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Claimed, Output
from penstock_worker.sinks.batches.turns import BatchTurns
from penstock_worker.sinks.batches.writer import Outcome, Part
from scenes.store_scenario import Scene

SHARD, SINK = "mid/0", "wire"
INTERVAL_US = 100_000


class TimedWriter:
    """Takes `takes_us` for each batch, and notes when it began and what was in it."""

    gather_us = INTERVAL_US
    is_asked = False

    def __init__(self, clock: StandingClock, takes_us: int) -> None:
        self._clock = clock
        self._takes_us = takes_us
        self.begun: list[tuple[int, int]] = []

    def next_name(self) -> bytes:
        raise AssertionError("it has no names")

    def outcome(self, name: bytes, *, fence: bool) -> Outcome:
        raise AssertionError("it has no names")

    def write(self, name: bytes, parts: Sequence[Part]) -> None:
        self.begun.append((self._clock.monotonic_us(), sum(len(part.payloads) for part in parts)))
        self._clock.sleep_us(self._takes_us)

    def close(self) -> None:
        """Nothing is open."""


class Sink:
    def __init__(self, takes_us: int) -> None:
        self.clock = StandingClock()
        self._scene = Scene(MemoryStore(MemoryNode(), "t", Bounds()))
        self._scene.set_up(SHARD)
        self.writer = TimedWriter(self.clock, takes_us)
        self.turns = BatchTurns(SINK, self.writer, self._scene.store, self.clock)
        claimed = self._scene.try_claim(SHARD, ready="mid@a")
        assert isinstance(claimed, Claimed)
        self._owned = OwnedShard(SHARD, claimed)
        self.turns.adopt(self._owned)
        self.turns.turn()
        self.began_us = self.clock.monotonic_us()

    def entry_comes(self) -> None:
        commit = self._owned.commit(1, outputs=(Output(SINK, b"[x]", 1, external=True),))
        answer = self._scene.store.call(commit)
        self.turns.place(
            self._owned, [(number, payload) for _, number, payload in self._owned.settle(commit, answer)]
        )

    def run_for(self, us: int) -> None:
        """As the thread does: it sleeps for as long as a turn says."""
        end_us = self.clock.monotonic_us() + us
        while (now_us := self.clock.monotonic_us()) < end_us:
            waits_us = self.turns.turn()
            if waits_us is None:
                self.clock.sleep_us(max(0, end_us - self.clock.monotonic_us()))
            elif waits_us > 0:
                self.clock.sleep_us(min(waits_us, end_us - now_us))

    def begun(self) -> list[tuple[int, int]]:
        return [(at_us - self.began_us, entries) for at_us, entries in self.writer.begun]


def test_what_comes_after_a_rest_is_written_at_once() -> None:
    sink = Sink(takes_us=0)
    sink.entry_comes()
    sink.run_for(500_000)
    sink.entry_comes()
    sink.run_for(1)
    assert sink.begun() == [(0, 1), (500_000, 1)]


@pytest.mark.parametrize(("takes_us", "next_us"), [(0, 100_000), (60_000, 100_000), (130_000, 130_000)])
def test_what_comes_while_a_batch_is_written_does_not_wait_for_a_whole_interval_behind_it(
    takes_us: int, next_us: int
) -> None:
    sink = Sink(takes_us)
    sink.entry_comes()
    sink.run_for(1)
    sink.entry_comes()
    sink.entry_comes()
    sink.run_for(300_000)
    assert sink.begun() == [(0, 1), (next_us, 2)]
