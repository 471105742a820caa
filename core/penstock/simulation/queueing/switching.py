"""What a change of hands costs and when: moves as pauses in time. Pure.

Neighbours: `model.Switching` has the figures, `station` carries the pauses out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.simulation.queueing.model import Pauses, SimulatedOperator


@dataclass(frozen=True, slots=True)
class Move:
    """`shards` (by number) from executor `source` to `destination` (by key)."""

    shards: tuple[int, ...]
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class Pause:
    """From `begins_us` to `ends_us` (from now) `executors` work nothing and nobody works `shards`; then these
    are at `destinations` (executors), or at `servers` (tasks), one each, whichever is given."""

    begins_us: float
    ends_us: float
    shards: tuple[int, ...]
    executors: tuple[int, ...] = ()
    destinations: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """`ends_us` is when all is done, from now; `switching_us` how long somebody stands still or was waited
    for."""

    pauses: tuple[Pause, ...] = ()
    ends_us: float = 0.0
    switching_us: float = 0.0
    bytes: float = 0.0


def moves_of(
    operator: SimulatedOperator,
    moves: Sequence[Move],
    *,
    is_same_node: Callable[[int, int], bool],
    executors: tuple[int, ...],
    backlog_us: Callable[[int], float],
    upstream_executors: int,
    batch_us: float,
) -> Plan:
    """`moves` as pauses. Those that share no executor go on side by side, the others one after another, in
    their order; under `Pauses.OPERATOR` all go on at once, and the executor that sends most takes longest.

    `batch_us` is how finely shards that move one after another are told apart.
    """
    switching = operator.switching
    fixed_us = switching.fixed_us + switching.us_per_upstream * upstream_executors

    def copied(move: Move) -> bool:
        return switching.copies_within_node or not is_same_node(move.source, move.destination)

    def shard_us(move: Move) -> float:
        copying_us = switching.us_per_byte * operator.state_bytes if copied(move) else 0.0
        return switching.us_per_shard + copying_us

    moves = [move for move in moves if move.shards]
    if not moves:
        return Plan()
    total_bytes = sum(len(move.shards) * operator.state_bytes for move in moves if copied(move))
    if switching.pauses is Pauses.OPERATOR:
        waits_us = max(backlog_us(executor) for executor in executors) if switching.drains else 0.0
        sends: dict[int, float] = {}
        for move in moves:
            sends[move.source] = sends.get(move.source, 0.0) + len(move.shards) * shard_us(move)
        ends_us = waits_us + fixed_us + max(sends.values())
        shards = tuple(shard for move in moves for shard in move.shards)
        destinations = tuple(move.destination for move in moves for _ in move.shards)
        pause = Pause(waits_us, ends_us, shards, executors, destinations)
        return Plan((pause,), ends_us, ends_us, total_bytes)

    free_us: dict[int, float] = {}
    pauses: list[Pause] = []
    switching_us = 0.0
    for move in moves:
        starts_us = max(free_us.get(move.source, 0.0), free_us.get(move.destination, 0.0))
        waits_us = max(backlog_us(move.source), backlog_us(move.destination)) if switching.drains else 0.0
        cost_us = shard_us(move)
        takes_us = waits_us + fixed_us + len(move.shards) * cost_us
        if switching.pauses is Pauses.EXECUTORS:
            pauses.append(
                Pause(
                    starts_us + waits_us,
                    starts_us + takes_us,
                    move.shards,
                    (move.source, move.destination),
                    (move.destination,) * len(move.shards),
                )
            )
        else:
            pauses += [
                Pause(begins_us, ends_us, shards, destinations=(move.destination,) * len(shards))
                for begins_us, ends_us, shards in _one_by_one(
                    move.shards, cost_us, starts_us + waits_us + fixed_us, batch_us
                )
            ]
        free_us[move.source] = free_us[move.destination] = starts_us + takes_us
        switching_us += takes_us
    return Plan(tuple(pauses), max(free_us.values()), switching_us, total_bytes)


def task_moves_of(
    operator: SimulatedOperator,
    shards: Sequence[int],
    servers: Sequence[int],
    is_other_node: Sequence[bool],
    *,
    batch_us: float,
) -> Plan:
    """`shards` to the tasks `servers` of the same executor, one after another; state is copied where
    `is_other_node` (Elasticutor 3.1: state is shared within a process)."""
    switching = operator.switching
    pauses: list[Pause] = []
    starts_us = 0.0
    for away in (False, True):
        going = [
            (k, server)
            for k, server, other in zip(shards, servers, is_other_node, strict=True)
            if other == away
        ]
        cost_us = switching.task_us_per_shard + (
            switching.us_per_byte * operator.state_bytes if away else 0.0
        )
        to = dict(going)
        pauses += [
            Pause(begins_us, ends_us, batch, servers=tuple(to[k] for k in batch))
            for begins_us, ends_us, batch in _one_by_one([k for k, _ in going], cost_us, starts_us, batch_us)
        ]
        starts_us += cost_us * len(going)
    copied = sum(is_other_node) * operator.state_bytes
    return Plan(tuple(pauses), starts_us, starts_us, copied)


def _one_by_one(
    shards: Sequence[int], cost_us: float, starts_us: float, batch_us: float
) -> list[tuple[float, float, tuple[int, ...]]]:
    """(begin, end, shards): each pauses for its own cost. Those within one `batch_us` do so together, in the
    middle of the time that they take one after another."""
    count = max(1, int(batch_us // cost_us)) if cost_us > 0 else max(1, len(shards))
    out: list[tuple[float, float, tuple[int, ...]]] = []
    for first in range(0, len(shards), count):
        batch = tuple(shards[first : first + count])
        middle_us = starts_us + cost_us * (first + len(batch) / 2)
        out.append((middle_us - cost_us / 2, middle_us + cost_us / 2, batch))
    return out
