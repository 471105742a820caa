"""Timers that came due, as a keyed stage works on them: those of user code, and sweeps of what expired.

Neighbours: `state.timers` and `state.expiring` give them their names, `keyed_stage` works on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from penstock.store.port import DueTimer
from penstock_worker.state.cache import Key, Variable
from penstock_worker.state.encoding import TIMERS
from penstock_worker.state.expiring import SWEEP, Sweep, sweep_of
from penstock_worker.state.timers import timer_parts


class Expired(NamedTuple):
    """A timer of `key` that user code set for `expiry_ms`; it was due at `due_us` of the steady clock."""

    key: Key
    expiry_ms: int
    due_us: int


@dataclass(frozen=True, slots=True)
class Due:
    """What is due of a shard. `fired` is in the order in which it fires: by expiry. `done` are the names of
    timers that are over with the commit, whatever comes of them."""

    fired: Sequence[Expired] = ()
    swept: Sequence[tuple[Key, Sweep]] = ()
    done: Sequence[bytes] = ()

    @property
    def keys(self) -> Iterable[Key]:
        yield from (timer.key for timer in self.fired)
        yield from (key for key, _ in self.swept)

    def __len__(self) -> int:
        return len(self.fired) + len(self.swept)


NOTHING_DUE = Due()


def hashable(value: Any) -> Any:
    """A wire value of a key: structs are lists there, and NaN is one object."""
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    return math.nan if value != value else value


def due_of(timers: Sequence[DueTimer], variables: Sequence[Variable]) -> Due:
    """What the names of timers say."""
    fired: list[Expired] = []
    swept: list[tuple[Key, Sweep]] = []
    done: list[bytes] = []
    for name, due_ms in timers:
        done.append(name)
        if name.startswith(TIMERS):
            key, expiry_ms = timer_parts(name)
            fired.append(Expired(hashable(key), expiry_ms, due_ms * 1000))
            continue
        found = sweep_of(name, variables) if name.startswith(SWEEP) else None
        if found is not None:
            swept.append((hashable(msgspec.msgpack.decode(found.packed_key)), found))
    fired.sort(key=attrgetter("expiry_ms"))
    return Due(fired, swept, done)
