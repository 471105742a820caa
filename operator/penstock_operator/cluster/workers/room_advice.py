"""What would help where a worker finds no room: fields of its Topology, each with a value that would fit now.

Pure. Neighbours: `node_room` says why a worker as it is does not fit, `decisions.decide` tells both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.manifest.document import MEMORY_BYTES_MIN
from penstock_operator.cluster.workers.node_room import Free, Size

_MIB = 1 << 20
_CPU_STEP_MILLIS = 10
_CPU_LEAST_MILLIS = 100
"""With less Spark would take minutes to start: that is no advice."""
_MEMORY_STEP_MIB = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """What each of `workers` asks for without finding it, and where its cores come from: `tasks` of
    `task_millis` each, and `least_millis` at least."""

    size: Size
    workers: int
    tasks: int
    task_millis: int
    least_millis: int


def advice(asked: Asked, free: Sequence[Free]) -> str:
    """In words, what to change; `free` is of the nodes that a worker may be on. "" where there are none."""
    if not free:
        return ""
    size = asked.size
    cpu_alone = _cpu_that_fits(free, asked.workers, size.cpu_millis, size.memory_bytes)
    memory_alone = _memory_that_fits(free, asked.workers, size.cpu_millis, size.memory_bytes)
    ways = []
    if cpu_alone:
        ways.append(_cores(asked, cpu_alone))
    if memory_alone:
        ways.append(_memory(memory_alone))
    if not ways:
        memory = _memory_that_fits(free, asked.workers, _CPU_LEAST_MILLIS, size.memory_bytes)
        cpu = _cpu_that_fits(free, asked.workers, size.cpu_millis, memory) if memory else 0
        if cpu:
            ways.append(f"{_cores(asked, cpu)} and {_memory(memory)}")
    who = "it" if asked.workers == 1 else f"all {asked.workers}"
    if ways := [way for way in ways if way]:
        return f"{who} would fit with {', or with '.join(ways)}"
    count = "a node" if asked.workers == 1 else f"nodes for {asked.workers} workers"
    return f"a smaller worker would not fit either: add {count}, or end something there"


def _cores(asked: Asked, cpu_millis: int) -> str:
    """The fields that bring a worker's request down to `cpu_millis`."""
    fields = []
    if asked.tasks * asked.task_millis > cpu_millis:
        fields.append(f"taskCpu: {_cpu_text(_rounded(cpu_millis // asked.tasks, _CPU_STEP_MILLIS))}")
    if asked.least_millis > cpu_millis:
        fields.append(f"workers.cores.min: {_cpu_text(cpu_millis)}")
    return " and ".join(fields)


def _memory(memory_bytes: int) -> str:
    return f"workers.memory: {memory_bytes // _MIB}Mi"


def _cpu_text(millis: int) -> str:
    return f"{millis}m" if millis % 1000 else f"{millis // 1000}"


def _cpu_that_fits(free: Sequence[Free], workers: int, most_millis: int, memory_bytes: int) -> int:
    """The most cores that leave room for all `workers`, in millis and in whole steps; 0 when none do."""
    steps = _largest(
        most_millis // _CPU_STEP_MILLIS,
        lambda step: _count(free, Size(step * _CPU_STEP_MILLIS, memory_bytes)) >= workers,
    )
    found = steps * _CPU_STEP_MILLIS
    return found if found >= _CPU_LEAST_MILLIS else 0


def _memory_that_fits(free: Sequence[Free], workers: int, cpu_millis: int, most_bytes: int) -> int:
    """The most memory that leaves room for all `workers`, in bytes and in whole steps; 0 when none does."""
    step_bytes = _MEMORY_STEP_MIB * _MIB
    steps = _largest(
        most_bytes // step_bytes,
        lambda step: _count(free, Size(cpu_millis, step * step_bytes)) >= workers,
    )
    found = steps * step_bytes
    return found if found >= MEMORY_BYTES_MIN else 0


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` that fits, where all smaller ones do too; 0 when none does."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    return least


def _count(free: Sequence[Free], size: Size) -> int:
    """How many workers of `size` there is room for."""
    return sum(
        max(0, min(node.cpu_millis // size.cpu_millis, node.memory_bytes // size.memory_bytes, node.pods))
        for node in free
    )


def _rounded(value: int, step: int) -> int:
    return max(1, value // step * step) if value >= step else max(1, value)
