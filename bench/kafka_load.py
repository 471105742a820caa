"""A topic that is fed at a pace, and a topic whose totals are read: what a side between two topics is given.

Feed (`kafka_feed`) and reader (`kafka_watch`) are processes of their own, on neither side, one of each for a
run. Neighbours: `kafka_runs` and `peers.lives` measure sides between them.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench import sink_log
from bench.kafka_feed import PARTITIONS, Feed
from bench.kafka_sides import END_WITHIN_S, START_WITHIN_S, process, wait
from bench.kafka_watch import Watch
from bench.load import RatePlan, Segment, write_plan
from bench.penstock_side import RunFailedError

from backends.kafka_broker import KafkaBroker

COME_WITHIN_S = 60.0
START_RATE_PER_S = 50.0
"""Until the first total is there: what waits meanwhile is not to be worked off later."""
PLAN_AHEAD_US = 200_000
"""A plan changes from here on: the feed has read it by then."""
GRACE_S = 10.0


class Load:
    """Feed and reader of one run. `check_side` is called whenever something is waited for."""

    def __init__(
        self, broker: KafkaBroker, folder: Path, stack: ExitStack, sink_partitions: int = PARTITIONS
    ) -> None:
        self._folder = folder
        self._stack = stack
        self._feed = Feed(broker.bootstrap, broker.fresh_topic(PARTITIONS), str(folder))
        self._watch = Watch(
            broker.bootstrap, broker.fresh_topic(sink_partitions), str(folder), sink_partitions
        )
        self._watch.log.mkdir()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._start("watch", "bench.kafka_watch", self._watch.write())
        self.plan = RatePlan(())
        self.follower = sink_log.Follower(self._watch.log)
        self.check_side: Callable[[], None] = lambda: None

    @property
    def source(self) -> str:
        """The topic that is fed."""
        return self._feed.topic

    @property
    def sink(self) -> str:
        """The topic that is read."""
        return self._watch.topic

    @property
    def pids(self) -> list[int]:
        """Of feed and reader."""
        return [one.pid for one in self._processes.values()]

    def _start(self, name: str, module: str, argument: Path) -> None:
        self._processes[name] = self._stack.enter_context(
            process(module, argument, self._folder / f"{name}.txt")
        )

    def begin(self) -> None:
        """Feed from now on, gently."""
        self.plan = RatePlan((Segment(time.time_ns() // 1000, 0, START_RATE_PER_S),))
        write_plan(self._feed.plan, self.plan)
        self._start("feed", "bench.kafka_feed", self._feed.write())

    def turn(self, rate_per_s: float) -> float:
        """Another rate from soon on: when, in s since 1970."""
        at_us = time.time_ns() // 1000 + PLAN_AHEAD_US
        self.plan = self.plan.then(at_us, rate_per_s)
        write_plan(self._feed.plan, self.plan)
        return at_us / 1e6

    def burst(self, rate_per_s: float, seconds: float, then_per_s: float) -> tuple[float, float]:
        """A rate for so long, and another one behind it: when it begins and ends, in s since 1970."""
        at_us = time.time_ns() // 1000 + PLAN_AHEAD_US
        end_us = at_us + int(seconds * 1e6)
        self.plan = self.plan.then(at_us, rate_per_s).then(end_us, then_per_s)
        write_plan(self._feed.plan, self.plan)
        return at_us / 1e6, end_us / 1e6

    def due(self) -> int:
        """How many records are due by now."""
        return self.plan.due_before(time.time_ns() // 1000)

    def rows(self) -> sink_log.Rows:
        """All that came so far."""
        return self.follower.rows()

    def check(self) -> None:
        """Raises RunFailedError where the side, the feed or the reader has ended."""
        self.check_side()
        for name, one in self._processes.items():
            if one.poll() not in (None, 0):
                raise RunFailedError((self._folder / f"{name}.txt").read_text(errors="replace")[-4000:])

    def until(self, when_s: float) -> None:
        """Wait for a time, in s since 1970."""
        wait(lambda: time.time() >= when_s, self.check, "time", when_s - time.time() + GRACE_S)

    def until_first(self) -> None:
        """Wait for the first total."""
        wait(lambda: self.follower.records() > 0, self.check, "a total", START_WITHIN_S)

    def finish(self, within_s: float = COME_WITHIN_S) -> int:
        """Feed no more, wait until all that was fed came, or that long, and read no more: how many were
        fed."""
        self._feed.stop.touch()
        wait(self._feed.fed.exists, self.check, "the feed's end", COME_WITHIN_S)
        fed = int(self._feed.fed.read_text())
        with suppress(RunFailedError):
            wait(lambda: self.follower.records() >= fed, self.check, "all totals", within_s)
        self._watch.stop.touch()
        self._processes["watch"].wait(END_WITHIN_S)
        return fed


@contextmanager
def loaded(broker: KafkaBroker, folder: Path, sink_partitions: int = PARTITIONS) -> Iterator[Load]:
    """A load whose processes end with the context."""
    with ExitStack() as stack:
        yield Load(broker, folder, stack, sink_partitions)
