"""Figures 7 to 9 of the paper: throughput by hosts, padding and locality, by hash, at worst, by table.

A system runs for each number of hosts; streams and tables change while it stands still in between. A point
counts rows that the second operator has worked off while everything is full; from standstill to standstill it
counts what went over links, and that nothing was lost. Neighbours: `synthetic` makes the streams and says
what links allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.locality import synthetic
from bench.locality.hosts import Network
from bench.locality.synthetic import HASH, WAYS
from bench.locality.system import System, started
from bench.locality.topology import INTEGERS, SECOND
from bench.screen import Screen

WARMUP_S = 3.0
"""Until queues have filled where links bound, at the least,"""
FILL_BYTES = 2 << 20
"""and so much has gone over the slowest link: outboxes of a host's shards hold that."""
TELLING_PADDING_BYTES = 4096
"""From here on rows are most of what is on the wire: below, acknowledgements and markers are not."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One point of a figure, for all three ways. `locality` is a share, `padding_bytes` of each row."""

    padding_bytes: int
    locality: float


@dataclass(frozen=True, slots=True)
class Setting:
    """What does not change within a run: `bits_per_s` of a link, `rate_per_s` is what a host's source makes
    at most, its share of the machine's cores; `seconds` is how long a point is measured."""

    bits_per_s: int
    rate_per_s: float
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class Point:
    """`allowed_per_s` is what links and sources allow, all hosts together. `rows` and `link_bytes` are of the
    whole point, `expected_bytes` what was to go over links by where keys are."""

    hosts: int
    way: str
    condition: Condition
    records_per_s: float
    allowed_per_s: float
    local_share: float
    rows: int
    link_bytes: int
    expected_bytes: float

    @property
    def bytes_off(self) -> float | None:
        """By what part the links' bytes differ from the expected ones; None where rows are not most of it."""
        if self.condition.padding_bytes < TELLING_PADDING_BYTES or not self.expected_bytes:
            return None
        return self.link_bytes / self.expected_bytes - 1


def sweep(
    hosts: int,
    conditions: Sequence[Condition],
    setting: Setting,
    folder: Path,
    screen: Screen,
    ways: Sequence[str] = WAYS,
) -> list[Point]:
    """All points of so many hosts. Raises NodesFailedError, also for a row that was lost or came twice."""
    keys = synthetic.integers(hosts)
    points: list[Point] = []
    with Network(hosts) as network, System(folder, network.hosts, INTEGERS, sink=False) as system:
        system.set_stream(synthetic.stream(keys, 0.5, 0, 50.0, setting.seed))
        started(system)
        network.throttle(setting.bits_per_s)
        for way in ways:
            with system.paused():
                # Nothing is under way: markers go through at once.
                pass
            system.put_keys(SECOND, synthetic.table_of(keys, way))
            for condition in conditions:
                points.append(_point(system, keys, way, condition, setting))
                screen.note(_told(points[-1]))
    return points


def _point(
    system: System, keys: synthetic.Integers, way: str, condition: Condition, setting: Setting
) -> Point:
    stream = synthetic.stream(
        keys, condition.locality, condition.padding_bytes, setting.rate_per_s, setting.seed
    )
    shares, bytes_each = synthetic.flows(stream, keys, way), synthetic.row_bytes(stream)
    with system.paused():
        system.set_stream(stream)
        rows, before = system.check_nothing_lost(), system.links()
    time.sleep(max(WARMUP_S, FILL_BYTES * 8 / setting.bits_per_s))
    rate_per_s = measured(lambda: system.done(SECOND), setting.seconds)
    with system.paused():
        rows = system.check_nothing_lost() - rows
        after = system.links()
    return Point(
        hosts=system_hosts(system),
        way=way,
        condition=condition,
        records_per_s=rate_per_s,
        allowed_per_s=synthetic.allowed_per_s(shares, bytes_each, setting.bits_per_s, setting.rate_per_s),
        local_share=1 - synthetic.crossing(shares),
        rows=rows,
        link_bytes=sum(one.sent for one in after) - sum(one.sent for one in before),
        expected_bytes=rows * synthetic.crossing(shares) * bytes_each,
    )


def system_hosts(system: System) -> int:
    return len(system.hosts)


def measured(done: Callable[[], int], seconds: float) -> float:
    """Records a second over so many seconds."""
    first, began_s = done(), time.monotonic()
    time.sleep(seconds)
    last, ended_s = done(), time.monotonic()
    return (last - first) / (ended_s - began_s)


def bound(points: Sequence[Point], hosts: int, way: str, condition: Condition) -> float:
    """How many times as fast as by hash links allow it to be."""
    allowed = {
        one.way: one.allowed_per_s for one in points if (one.hosts, one.condition) == (hosts, condition)
    }
    return allowed[way] / allowed[HASH]


def _told(point: Point) -> str:
    off = "" if point.bytes_off is None else f", bytes {point.bytes_off:+.1%} of what was expected"
    return (
        f"{point.hosts} hosts, {point.way}, {point.condition.padding_bytes} B, "
        f"locality {point.condition.locality:.0%}: "
        f"{point.records_per_s:,.0f}/s of {point.allowed_per_s:,.0f}/s"
        f"{off}"
    )
