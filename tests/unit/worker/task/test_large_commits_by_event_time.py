"""A commit in parts takes the shard's watermark along and tells it, whoever ends it."""

from __future__ import annotations

from clocks.standing_clock import StandingClock
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.ownership import OwnedShard
from penstock.store.port import Output, ReadFacts, StateWrite, TimerWrite, Watermark
from penstock_worker.task.large_commit import LargeCommits
from scenes.store_scenario import NOW_US, SMALL, Scene

DUE_MS = 500


class Fires:
    """Shard mid/0 has a timer, and a large commit of its owner fires it behind watermark 1 000."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryNode(), "t", SMALL)
        self.scene = Scene(self.store).set_up("mid/0", "end/0")
        self.large = LargeCommits(self.store, SMALL, StandingClock())
        self.owned = OwnedShard("mid/0", self.scene.claims["mid/0"])
        first = self.owned.commit(
            NOW_US, timers=(TimerWrite(b"timer", DUE_MS),), watermark=Watermark(400), tells=True
        )
        self.owned.settle(first, self.store.call(first))
        state = tuple(StateWrite(b"", b"%d" % number, b"x" * 100) for number in range(6))
        self.commit = self.owned.commit(
            NOW_US,
            state=state,
            timers=(TimerWrite(b"timer", None),),
            outputs=(Output("end/0", b"fired", 1, external=False),),
            watermark=Watermark(1_000),
            tells=True,
        )

    @property
    def told(self) -> list[Watermark]:
        return [fact.watermark for fact in self.store.call(ReadFacts("mid"))]


def test_a_commit_in_parts_that_fires_the_last_timer_tells_the_watermark() -> None:
    fires = Fires()
    assert fires.told == [Watermark(400)]
    assert len(list(fires.large.carry_out(fires.owned, fires.commit))) > 0
    assert fires.told == [Watermark(1_000)]
    assert fires.owned.watermark == Watermark(1_000)


def test_whoever_carries_it_on_tells_it_when_all_is_out() -> None:
    fires = Fires()
    next(fires.large.carry_out(fires.owned, fires.commit))
    assert fires.told == [Watermark(400)]
    owned = OwnedShard("mid/0", fires.scene.claim("mid/0"))
    assert list(fires.large.finish(owned))
    assert fires.told == [Watermark(1_000)]
    assert owned.watermark == Watermark(1_000)
