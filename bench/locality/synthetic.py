"""Section 4.2 of the paper: tuples (integer, integer, padding), of which a part are equal ("locality").

Sources stand beside the first operator: a partition makes the integers that are its host's there. Integers
are picked so that each host of `first` has as many with each host of `second`, by hash: so hash keeps exactly
one in n, on hosts that are equally full, as it does with very many keys. The other two ways are tables of
`second`: "table" has each integer where it is for `first`, "worst" on the next host. From where keys are
follows what part of the rows crosses which link, and so what links allow. Neighbour: `system` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from bench.locality.hosts import FRAME_BYTES, MTU_BYTES
from bench.locality.streams import Stream, padding
from bench.locality.topology import INTEGERS, SHARDS_EACH, SOURCE
from numpy.typing import NDArray

from penstock.dataflow.wire_keys import wire_router

HASH, WORST, TABLE = "hash", "worst", "table"
WAYS = (HASH, WORST, TABLE)
KEYS_EACH = 4
"""Integers for each two hosts."""
DRAWN = 8192
"""Rows of a partition, which come over and over."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Integers:
    """Of so many hosts: `first[h]` are the integers whose `first` is on host h; `at` integer -> host of
    `second` by hash."""

    first: tuple[tuple[int, ...], ...]
    at: Mapping[int, int]

    @property
    def hosts(self) -> int:
        return len(self.first)


def integers(hosts: int, each: int = KEYS_EACH) -> Integers:
    """The lowest that there are, `each` for each two hosts."""
    shards = hosts * SHARDS_EACH
    routes = [wire_router((type_,), shards) for type_ in INTEGERS]
    found: dict[tuple[int, int], list[int]] = {(a, b): [] for a in range(hosts) for b in range(hosts)}
    number = 0
    while any(len(cell) < each for cell in found.values()):
        number += 1
        cell = found[routes[0]((number,)) % hosts, routes[1]((number,)) % hosts]
        if len(cell) < each:
            cell.append(number)
    return Integers(
        tuple(tuple(n for b in range(hosts) for n in found[a, b]) for a in range(hosts)),
        {n: b for (_, b), cell in found.items() for n in cell},
    )


def second_at(keys: Integers, way: str) -> dict[int, int]:
    """Integer -> host of `second`."""
    if way == HASH:
        return dict(keys.at)
    step = 1 if way == WORST else 0
    return {n: (host + step) % keys.hosts for host, mine in enumerate(keys.first) for n in mine}


def table_of(keys: Integers, way: str) -> dict[tuple[int], int]:
    """The table of `second` that does it: integer -> shard, of those that are not there by hash."""
    route = wire_router((INTEGERS[1],), keys.hosts * SHARDS_EACH)
    return {
        (n,): host + keys.hosts * (n % SHARDS_EACH)
        for n, host in second_at(keys, way).items()
        if way != HASH and route((n,)) % keys.hosts != host
    }


def stream(keys: Integers, locality: float, padding_bytes: int, rate_per_s: float, seed: int) -> Stream:
    """`locality` of all rows have equal integers; the other second ones are of other hosts' integers."""
    rng = np.random.default_rng(seed)
    pairs = {}
    for host, mine in enumerate(keys.first):
        own = np.array(mine)
        others = np.array([n for other, far in enumerate(keys.first) if other != host for n in far] or own)
        first = rng.choice(own, DRAWN)
        second = np.where(rng.random(DRAWN) < locality, first, rng.choice(others, DRAWN))
        pairs[f"{SOURCE}/{host}"] = list(zip(first.tolist(), second.tolist(), strict=True))
    return Stream(pairs, padding_bytes, rate_per_s)


def even_stream(keys: Integers, padding_bytes: int, rate_per_s: float) -> Stream:
    """Equal integers, one after the other."""
    pairs = {f"{SOURCE}/{host}": [(n, n) for n in mine] for host, mine in enumerate(keys.first)}
    return Stream(pairs, padding_bytes, rate_per_s)


def flows(made: Stream, keys: Integers, way: str) -> Floats:
    """What part of the rows of host a goes to host b for `second`: [a, b], each row comes to 1."""
    at = second_at(keys, way)
    found = np.zeros((keys.hosts, keys.hosts))
    for host in range(keys.hosts):
        for _, second in made.pairs[f"{SOURCE}/{host}"]:
            found[host, at[second]] += 1
    shares: Floats = found / found.sum(axis=1, keepdims=True)
    return shares


def row_bytes(made: Stream) -> float:
    """What a row is on the wire: packed, with its share of frames around it."""
    pairs: Sequence[tuple[int, int]] = made.pairs[f"{SOURCE}/0"][:256]
    padded = padding(made.padding_bytes)
    packed = sum(len(msgspec.msgpack.encode((*pair, padded))) for pair in pairs) / len(pairs)
    return packed * MTU_BYTES / (MTU_BYTES + 14 - FRAME_BYTES)


def allowed_per_s(shares: Floats, bytes_each: float, bits_per_s: float, rate_per_s: float) -> float:
    """Records a second over all hosts that links allow, and sources make, all hosts being equally fast."""
    across = shares * (1 - np.eye(len(shares)))
    fullest = float(max(across.sum(axis=0).max(), across.sum(axis=1).max()))
    by_link = bits_per_s / 8 / (fullest * bytes_each) if fullest > 0 else float("inf")
    return len(shares) * min(rate_per_s, by_link)


def crossing(shares: Floats) -> float:
    """What part of all rows goes over a link."""
    return float(1 - np.trace(shares) / len(shares))
