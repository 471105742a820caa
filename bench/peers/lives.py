"""The lives of one system between two topics of Kafka: one at paces, one that is killed.

In the first it is warmed up, fed at each pace quiet and beside spinning processes, at rates that find what it
holds (`ladder`), and with more than it can take. In the second it is fed for a while at one rate, all its
processes are killed at once, and it is started again on what it left. Neighbours: `sides` starts systems,
`kafka_load` feeds and reads, `figures` works out what came.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench import sink_log
from bench.busy import spinning
from bench.core_groups import core_group
from bench.cpu import CpuSampler, tree
from bench.kafka_feed import fed_keys
from bench.kafka_figures import came, kept, once
from bench.kafka_load import Load, loaded
from bench.kafka_sides import Start, wait
from bench.peers import ladder
from bench.peers.figures import Full, Held, Killed, quantiles, told_again
from bench.penstock_side import RunFailedError

from backends.kafka_broker import KafkaBroker

SINK_PARTITIONS = 1
"""Whatever a system's partitioner does, the rows of a key are in order."""
WARM_PER_S = 5_000.0
GENTLE_PER_S = 500.0
GENTLE_SHARE = 0.3
REST_PER_S = 500.0
SETTLE_S = 2.0
COMES_S = 2.0
"""So long what was due is waited for before it counts as missing."""
REST_WITHIN_S = 20.0
WAITING_MAX = 200
"""Records that wait where a system is rested."""
STEPS_MAX, MORE_STEPS_MAX = 6, 3
BURST_PER_S = 150_000.0
BURST_OF_S, BURST_S_MAX = 15.0, 12.0
"""A burst has what the system works in so long at what it did best, and lasts so long at most."""
FULL_S = 10.0
LEFT_SHARE = 0.05
KILL_PER_S = 1_000.0
KILL_BACK_WITHIN_S = 90.0
HARNESS_NICE = -10
HARNESS_WEIGHT = 10
"""Feed, reader and broker together have as large a share of the cores as so many sides."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long things last. `step_s` is of a rate of the ladder."""

    warm_s: float
    paced_s: float
    step_s: float
    kill_s: float


@dataclass(frozen=True, slots=True)
class Life:
    """What a system did at paces. `paced` has each pace quiet and, where it was tried, busy."""

    paced: dict[float, tuple[Held, Held | None]]
    steps: dict[float, Held]
    full: Full | None


class _Measures:
    """Measures one side under one load."""

    def __init__(self, load: Load, cpu: CpuSampler, broker: CpuSampler) -> None:
        self._load, self._cpu, self._broker = load, cpu, broker

    def at(self, rate_per_s: float, seconds: float, settle_s: float = SETTLE_S) -> Held:
        """From soon on at this rate, for so long behind `settle_s`. The rate stays."""
        first_s = self._load.turn(rate_per_s) + settle_s
        last_s = first_s + seconds
        self._load.until(last_s)
        wanted = self._load.plan.due_before(int(last_s * 1e6))
        with suppress(RunFailedError):
            wait(lambda: self._load.follower.records() >= wanted, self._load.check, "what was due", COMES_S)
        self._load.check()
        arrived = self._arrived()
        p50_ms, p99_ms = quantiles(arrived, self._load.plan, first_s, last_s)
        there = came(arrived, first_s, last_s)
        # Between arrivals, so that a batch is in with all that it took. Without any, nothing was done.
        from_s, to_s = (first_s, last_s) if there is None else (there.first_s, there.last_s)
        return Held(
            rate_per_s=rate_per_s,
            p50_ms=p50_ms,
            p99_ms=p99_ms,
            per_s=0.0 if there is None else there.records / there.span_s,
            cores=self._cpu.seconds(from_s, to_s) / (to_s - from_s),
            broker_cores=self._broker.seconds(from_s, to_s) / (to_s - from_s),
        )

    def rest(self) -> bool:
        """Little to do, until nothing waits: whether that came."""
        self._load.turn(REST_PER_S)
        with suppress(RunFailedError):
            wait(self._is_rested, self._load.check, "what waits", REST_WITHIN_S)
            return True
        self._load.check()
        return False

    def _is_rested(self) -> bool:
        return self._load.due() - self._load.follower.records() <= WAITING_MAX + REST_PER_S

    def full(self, per_s: float) -> Full | None:
        """As fast as it goes, `per_s` being what it did best so far. None where it cannot be told."""
        burst_s = min(BURST_S_MAX, max(1.0, per_s * BURST_OF_S / BURST_PER_S))
        begin_s, end_s = self._load.burst(BURST_PER_S, burst_s, REST_PER_S)
        wanted = self._load.plan.due_before(int(end_s * 1e6))
        before = self._load.plan.due_before(int(begin_s * 1e6))
        enough = wanted - LEFT_SHARE * (wanted - before)
        self._load.until(end_s)
        by_feed = self._load.follower.records() >= enough
        if by_feed:
            first_s, last_s = begin_s + (end_s - begin_s) / 3, end_s
        else:
            first_s = time.time()
            with suppress(RunFailedError):
                wait(lambda: self._load.follower.records() >= enough, self._load.check, "a backlog", FULL_S)
            self._load.check()
            last_s = time.time()
        there = came(self._arrived(), first_s, last_s)
        if there is None:
            return None
        cpu_s = self._cpu.seconds(there.first_s, there.last_s)
        broker_s = self._broker.seconds(there.first_s, there.last_s)
        return Full(there.records / there.span_s, cpu_s / there.span_s, broker_s / there.span_s, by_feed)

    def _arrived(self) -> sink_log.Arrivals:
        rows = once(self._load.rows())
        return sink_log.arrivals(rows, fed_keys(self._load.due()))


def at_paces(
    broker: KafkaBroker,
    start: Start,
    paces: Sequence[float],
    bounds_ms: Sequence[float],
    spinners: int,
    times: Times,
    folder: Path,
    tell: Callable[[str], None],
    note: Callable[[str], None],
) -> Life:
    """The first life. `bounds_ms`, the loosest one first, are those that the ladder is climbed for; without
    any there is no ladder and no burst. Raises RunFailedError."""
    with (
        core_group(HARNESS_WEIGHT) as harness,
        core_group() as own,
        loaded(broker, folder, SINK_PARTITIONS) as load,
        start(load.source, load.sink, folder) as side,
        CpuSampler(side.pid) as cpu,
        CpuSampler(broker.pid) as broker_cpu,
    ):
        load.check_side = side.check
        begin(load, times.warm_s, tell)
        own.take(side.pid)
        for pid in (broker.pid, *load.pids):
            harness.take(pid)
        measures = _Measures(load, cpu, broker_cpu)
        paced: dict[float, tuple[Held, Held | None]] = {}
        for pace in paces:
            measures.rest()
            tell(f"{pace:,.0f}/s")
            quiet, busy = measures.at(pace, times.paced_s), None
            if spinners and quiet.p99_ms is not None:
                tell(f"{pace:,.0f}/s, busy")
                with spinning(spinners):
                    busy = measures.at(pace, times.paced_s)
            paced[pace] = (quiet, busy)
            note(f"{pace:,.0f}/s: {said(quiet)}" + (f"; busy {said(busy)}" if busy else ""))
        steps = {pace: quiet for pace, (quiet, _) in paced.items()}
        for number, bound_ms in enumerate(bounds_ms):
            for _ in range(MORE_STEPS_MAX if number else STEPS_MAX):
                rate = ladder.next_rate({at: step.within(bound_ms) for at, step in steps.items()})
                if rate is None or not measures.rest():
                    break
                tell(f"p99 within {bound_ms:.0f} ms at {rate:,.0f}/s?")
                steps[rate] = measures.at(rate, times.step_s)
                note(f"{rate:,.0f}/s: {said(steps[rate])}")
        full = None
        if bounds_ms and measures.rest():
            tell("as fast as it goes")
            full = measures.full(max(step.per_s for step in steps.values()))
            if full is not None:
                note(f"as fast as it goes: {full.per_s:,.0f}/s, {full.per_cpu_s:,.0f} per CPU-second")
    return Life(paced, steps, full)


def killed(
    broker: KafkaBroker, start: Start, times: Times, folder: Path, tell: Callable[[str], None]
) -> Killed:
    """The second life. Raises RunFailedError."""
    killed_us = None
    with loaded(broker, folder, SINK_PARTITIONS) as load:
        try:
            with start(load.source, load.sink, folder) as side:
                load.check_side = side.check
                begin(load, 0.0, tell)
                tell("until the kill")
                load.until(load.turn(KILL_PER_S) + times.kill_s)
                out = load.follower.records()
                kill_all(side.pid)
                killed_us = time.time_ns() // 1000
        except RunFailedError:
            if killed_us is None:
                raise
        load.check_side = lambda: None
        tell("again")
        # What it had sent before it died is still coming in.
        time.sleep(0.2)
        with start(load.source, load.sink, folder) as side:
            load.check_side = side.check
            wanted = load.due()
            with suppress(RunFailedError):
                wait(lambda: load.follower.records() >= wanted, side.check, "all", KILL_BACK_WITHIN_S)
            fed = load.finish(REST_WITHIN_S)
    rows, keys = load.rows(), fed_keys(fed)
    again, new_us = told_again(rows, killed_us + 200_000)
    return Killed(
        duplicates=again,
        lost=kept(rows, keys).lost,
        back_s=None if new_us is None else round((new_us - killed_us) / 1e6, 1),
        records=out,
    )


def begin(load: Load, warm_s: float, tell: Callable[[str], None]) -> None:
    """Feed, wait for the first total, and warm up."""
    prefer(load)
    load.begin()
    prefer(load)
    tell("start")
    load.until_first()
    tell("warm-up")
    gentle_s = load.turn(GENTLE_PER_S)
    load.until(gentle_s + warm_s * GENTLE_SHARE)
    load.turn(WARM_PER_S)
    load.until(gentle_s + warm_s)


def prefer(load: Load) -> None:
    """Feed and reader before others, where that is allowed: they stand for machines of their own."""
    for pid in load.pids:
        prefer_process(pid)


def prefer_process(pid: int) -> bool:
    """All threads of a process; whether it was allowed."""
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), HARNESS_NICE)
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return False
    return True


def kill_all(root: int) -> None:
    """kill -9 for a process and all that it started."""
    processes = tree(root)
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    for process in processes[1:]:
        # Orphans came to this process, which adopted them.
        with suppress(ChildProcessError):
            os.waitpid(process.pid, 0)


def said(held: Held) -> str:
    ages = "not held" if held.p99_ms is None else f"p50 {held.p50_ms} ms, p99 {held.p99_ms} ms"
    return f"{ages}, {held.cores:.2f} cores"
