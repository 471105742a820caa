"""`python -m bench.locality.drift_fit`: what the paper's own way comes to on a stream of `drift_stream`.

Exact counts of a week, METIS on all of them with its imbalance of 1.03, all keys of that week by table and
all others by hash: none of Penstock's own decisions, counters or bounds. The stream's shape was fitted with
this, to the paper's figures, before Penstock was tried on it; options try other shapes. It prints a line of
JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields, replace

import numpy as np
import pymetis
from bench.locality.drift_stream import FITTED, DriftShape, DriftStream, Numbers, Week

SERVERS = 6
WEEKS = 8
FEW_PAIRS = 0.001
IMBALANCE_THOUSANDTHS = 30
"""METIS' default: alpha = 1.03."""


def by_hash(count: int, seed: int) -> Numbers:
    """A server for each of so many numbers, at random and for good."""
    return np.random.default_rng(seed).integers(0, SERVERS, count)


def divided(week: Week, kept: float = 1.0) -> tuple[dict[int, int], dict[int, int], float]:
    """Server of each location and of each tag of a week, and what part of that week stays on its server. Of
    all pairs only the most frequent `kept` are known (figure 12)."""
    if kept < 1:
        week = _most_frequent(week, kept)
    locations, at_location = np.unique(week.location, return_inverse=True)
    tags, at_tag = np.unique(week.tag, return_inverse=True)
    pair = at_location * len(tags) + at_tag
    pairs, counts = np.unique(pair, return_counts=True)
    first, second = pairs // len(tags), pairs % len(tags) + len(locations)
    size = len(locations) + len(tags)
    ends = np.concatenate((first, second))
    order = np.argsort(ends, kind="stable")
    others, weights = np.concatenate((second, first))[order], np.concatenate((counts, counts))[order]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(ends, minlength=size))))
    load = np.bincount(ends, np.concatenate((counts, counts)), size).astype(np.int64)
    found = pymetis.part_graph(
        SERVERS,
        pymetis.CSRAdjacency(starts.tolist(), others.tolist()),
        vweights=load.tolist(),
        eweights=weights.tolist(),
        recursive=False,
        options=pymetis.Options(seed=1, ufactor=IMBALANCE_THOUSANDTHS),
    )
    part = np.array(found.vertex_part)
    local = float(counts[part[first] == part[second]].sum() / counts.sum())
    return (
        dict(zip(locations.tolist(), part[: len(locations)].tolist(), strict=True)),
        dict(zip(tags.tolist(), part[len(locations) :].tolist(), strict=True)),
        local,
    )


def _most_frequent(week: Week, kept: float) -> Week:
    """The records of the most frequent pairs."""
    pair = week.location * (1 + int(week.tag.max())) + week.tag
    _, which, counts = np.unique(pair, return_inverse=True, return_counts=True)
    first = np.argsort(-counts, kind="stable")[: max(SERVERS, int(kept * len(counts)))]
    is_kept = np.isin(which, first)
    return Week(week.location[is_kept], week.tag[is_kept])


def placed(hashed: Numbers, table: dict[int, int]) -> Numbers:
    """Servers of all numbers: by table, else by hash."""
    found = hashed.copy()
    found[list(table)] = list(table.values())
    return found


def measured(week: Week, location: Numbers, tag: Numbers) -> tuple[float, float]:
    """(locality, how much more than the mean the fullest instance gets) of a week, by servers of numbers."""
    here, there = location[week.location], tag[week.tag]
    loads = [np.bincount(servers, minlength=SERVERS) for servers in (here, there)]
    fullest = max(float(load.max() / load.mean()) for load in loads)
    return float((here == there).mean()), fullest - 1


def fitted(shape: DriftShape, seed: int) -> dict[str, object]:
    """The paper's figures on a stream of this shape."""
    stream = DriftStream(shape, seed)
    weeks = list(stream.weeks(WEEKS))
    tags = 1 + max(int(week.tag.max()) for week in weeks)
    hashed = by_hash(shape.locations, seed), by_hash(tags, seed + 1)
    shares: dict[str, list[tuple[float, float]]] = {"hash": [], "offline": [], "online": []}
    expected: list[float] = []
    first = tables = divided(weeks[0])
    for week in weeks[1:]:
        expected.append(tables[2])
        for name, table in (("hash", ({}, {}, 0.0)), ("offline", first), ("online", tables)):
            servers = [placed(all_, found) for all_, found in zip(hashed, table[:2], strict=True)]
            shares[name].append(measured(week, servers[0], servers[1]))
        tables = divided(week)

    def means(name: str, since: int = 0) -> list[float]:
        return [round(float(np.mean([one[i] for one in shares[name][since:]])), 3) for i in range(2)]

    few = divided(weeks[0], FEW_PAIRS)
    servers = [placed(all_, found) for all_, found in zip(hashed, few[:2], strict=True)]
    pairs = np.unique(weeks[0].location * tags + weeks[0].tag, return_counts=True)[1]
    return {
        "hash": means("hash"),
        "first week": [round(value, 3) for value in shares["offline"][0]],
        "offline, last weeks": means("offline", WEEKS // 2),
        "online": means("online"),
        "expected": round(float(np.mean(expected)), 3),
        "pairs a week": len(pairs),
        "by 0.1% of pairs": round(measured(weeks[1], servers[0], servers[1])[0], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    for field in fields(DriftShape):
        default = getattr(FITTED, field.name)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    given = vars(parser.parse_args())
    seed = given.pop("seed")
    shape: DriftShape = replace(FITTED, **given)
    print(json.dumps({"shape": asdict(shape), "seed": seed, **fitted(shape, seed)}), flush=True)


if __name__ == "__main__":
    main()
