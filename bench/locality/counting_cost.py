"""What it costs to count pairs: CPU time of a record with `locality: Auto`, beside `Off`.

The paper's application on one node, all its tasks turned by hand in this process (`turned_tasks`): source,
counting of tags, counting of countries, and their store. Both settings work off the same records, in turns; a
rise is that of the medians, with the middle half of what each turn found by itself. Two runs of one setting
differ by more than counting costs, so the time within the calls that count is told beside it, in all of which
the clock that is read is too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.locality import tags
from bench.locality.streams import StreamReader, set_stream
from bench.locality.topology import FIRST, SECOND, SHARDS_EACH, SOURCE, STRINGS, locality_plan
from bench.turned_tasks import TurnedNode

from penstock.control.locality.pair_counter import PairCounter
from penstock.store.port import Measure
from penstock_worker.outputs.edges import EdgeRunner
from penstock_worker.stages.pair_counts import PairCounts

HOSTS = 8
"""What one node has the shards of here."""
RATE_PER_S = 2500.0
"""Of a partition, in told time."""
ROUND_MS = 50
BEGAN_US = 1_700_000_000_000_000
PORT = 17_463
WARM_ROUNDS = 4
AUTO, OFF = "Auto", "Off"


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds a record: of the three tasks, `counting_us` of them within calls that count, and of
    the store."""

    tasks_us: float
    store_us: float
    counting_us: float

    @property
    def record_us(self) -> float:
        return self.tasks_us + self.store_us


@dataclass(frozen=True, slots=True)
class Compared:
    """`rise` is by what part a record costs more with counting; `low`, `high` the middle half over turns.
    `within` is what goes by within calls that count, as a part of the rest of a record's cost."""

    off: Cost
    auto: Cost
    rise: float
    low: float
    high: float
    within: float
    turns: int


class _Within:
    """Thread time within calls."""

    def __init__(self) -> None:
        self.spent_ns = 0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            began_ns = time.thread_time_ns()
            try:
                return call(*args, **options)
            finally:
                self.spent_ns += time.thread_time_ns() - began_ns

        return timed


@contextmanager
def _timed_counting() -> Iterator[_Within]:
    """Calls by which tasks count take note of their time."""
    within = _Within()
    tap = PairCounts._tap  # noqa: SLF001 - what is measured is inside

    def timed_tap(
        counts: PairCounts, runner: EdgeRunner, counter: PairCounter
    ) -> Callable[[Sequence[Any]], None]:
        return within.timed(tap(counts, runner, counter))

    with ExitStack() as patches:
        patches.enter_context(patch.object(PairCounts, "_tap", timed_tap))
        for name in ("sampled", "drained", "see", "publish"):
            timed = within.timed(getattr(PairCounts, name))
            patches.enter_context(patch.object(PairCounts, name, timed))
        yield within


def cost(folder: Path, setting: str, rounds: int, padding_bytes: int, seed: int, port: int = PORT) -> Cost:
    """So many rounds of 1 000 records, on a fresh store."""
    with _timed_counting() as within:
        return _cost(folder, setting, rounds, padding_bytes, seed, port, within)


def _cost(
    folder: Path, setting: str, rounds: int, padding_bytes: int, seed: int, port: int, within: _Within
) -> Cost:
    plan = locality_plan(HOSTS, STRINGS, sink=False, locality=setting == AUTO)
    set_stream(folder, tags.stream(HOSTS, padding_bytes, RATE_PER_S, seed))
    node = TurnedNode(folder, plan, port, BEGAN_US)
    shards = {
        SOURCE: [f"{SOURCE}/{part}" for part in range(HOSTS)],
        FIRST: [f"{FIRST}/{shard}" for shard in range(HOSTS * SHARDS_EACH)],
        SECOND: [f"{SECOND}/{shard}" for shard in range(HOSTS * SHARDS_EACH)],
    }
    for operator, named in shards.items():
        node.publish(operator, named, source=operator == SOURCE)
    node.enroll()
    tasks = [node.task(name, shards[name], lambda *_: StreamReader(folder)) for name in shards]

    def done() -> tuple[int, ...]:
        return tuple(
            sum(one.completed_rows for one in node.store.call(Measure(tuple(named))) if one is not None)
            for named in shards.values()
        )

    def spent_us() -> tuple[float, float]:
        return time.process_time_ns() / 1000, float(node.store_us())

    try:
        for task in (*reversed(tasks), *tasks):
            task.turn()
        tasks_us = store_us = 0.0
        begun = 0
        for number in range(WARM_ROUNDS + rounds):
            node.clock.time_us += ROUND_MS * 1000
            if number == WARM_ROUNDS:
                begun, tasks_us, store_us = done()[-1], 0.0, 0.0
                within.spent_ns = 0
            seen = None
            while seen != (seen := done()):
                before = spent_us()
                for task in tasks:
                    task.turn()
                after = spent_us()
                tasks_us, store_us = tasks_us + after[0] - before[0], store_us + after[1] - before[1]
        records = done()[-1] - begun
        return Cost(tasks_us / records, store_us / records, within.spent_ns / 1000 / records)
    finally:
        node.stop()


def compared(folder: Path, turns: int, rounds: int, padding_bytes: int, seed: int) -> Compared:
    """`turns` of each setting, one after the other, the first one in turns too."""
    found: dict[str, list[Cost]] = {OFF: [], AUTO: []}
    for turn in range(turns):
        for setting in (OFF, AUTO) if turn % 2 else (AUTO, OFF):
            own = folder / f"{setting}-{turn}"
            own.mkdir()
            found[setting].append(cost(own, setting, rounds, padding_bytes, seed))
    rises = [auto.record_us / off.record_us - 1 for off, auto in zip(found[OFF], found[AUTO], strict=True)]
    low, _, high = statistics.quantiles(rises, n=4)
    off, auto = (_median(found[setting]) for setting in (OFF, AUTO))
    within = auto.counting_us / (auto.record_us - auto.counting_us)
    return Compared(off, auto, auto.record_us / off.record_us - 1, low, high, within, turns)


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(one.tasks_us for one in costs),
        statistics.median(one.store_us for one in costs),
        statistics.median(one.counting_us for one in costs),
    )
