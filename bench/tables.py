"""`make bench-tables`: what routing tables cost: nanoseconds to count a record's pair of keys, seconds from
counted pairs to a decision about tables.

Records are counted in batches as a task puts them out, with keys that were just read and routed; beside it
stands what routing them takes, which a record costs anyway; then what it takes by hash and by a table.
Decisions are about a graph of tags and
countries: a first one, and one with that table in use and a tenth of the tags gone elsewhere. CPU time of one
process; no figure needs a node store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from bench import machine
from bench.screen import Screen, show
from rich.table import Table

from penstock.control.locality.key_graph import CountedEdge
from penstock.control.locality.pair_counter import LIMIT_BYTES, PairCounter
from penstock.control.locality.pair_summary import Integers, Pair, PairSummary
from penstock.control.locality.scene import OperatorHomes
from penstock.control.locality.scene import Table as KeyTable
from penstock.control.locality.tables import LocalityLook, TableRules, decide_tables
from penstock.dataflow.routing import Key, Router
from penstock_operator.partitioning.choice import installed_partitioner

SEED = 20161212
RECORDS = 200_000
BATCHES = (16, 256)
STREAMS = ("steep", "long tail", "all different")
COUNTRIES = 200
GRAPHS = ((10_000, 6), (100_000, 6), (100_000, 32))
"""(pairs, nodes)"""
SHARDS = 256
TO_REACH_S = 2.0
REPEATS = 3

_rows = msgspec.msgpack.Decoder(list[tuple[str, str]]).decode


def zipf(rng: np.random.Generator, values: int, exponent: float, count: int) -> Integers:
    """Numbers below `values`, the lowest the most frequent."""
    weights = 1 / np.arange(1, values + 1) ** exponent
    return rng.choice(values, count, p=weights / weights.sum())


def stream(kind: str) -> tuple[Integers, Integers]:
    """Countries and tags of `RECORDS` records."""
    rng = np.random.default_rng(SEED)
    country = zipf(rng, COUNTRIES, 1.0, RECORDS)
    if kind == "all different":
        return country, np.arange(RECORDS)
    if kind == "long tail":
        return country, zipf(rng, 100_000, 1.1, RECORDS)
    own = country * 5 + zipf(rng, 20, 1.2, RECORDS)
    return country, np.where(rng.random(RECORDS) < 0.8, own, zipf(rng, 2000, 1.0, RECORDS))


def counting(kind: str, size: int) -> dict[str, float]:
    """Nanoseconds a record, and what is known in the end."""
    country, tag = stream(kind)
    packed = [
        msgspec.msgpack.encode(
            [
                (f"country-{one}", f"tag-{other}")
                for one, other in zip(country[at : at + size], tag[at : at + size], strict=True)
            ]
        )
        for at in range(0, RECORDS, size)
    ]
    counter = PairCounter()
    received_route, route = (Router(["string"], SHARDS).route for _ in range(2))
    counted = routed = 0.0
    clock = time.thread_time
    for data in packed:
        rows = _rows(data)
        received, sent = [(one,) for one, _ in rows], [(other,) for _, other in rows]
        for key in received:
            received_route(key)
        began = clock()
        for key in sent:
            route(key)
        between = clock()
        counter.count(received, sent)
        routed, counted = routed + between - began, counted + clock() - between
    summary = counter.summary()
    return {
        "count_ns": round(counted / RECORDS * 1e9, 1),
        "route_ns": round(routed / RECORDS * 1e9, 1),
        "pairs": len(summary.pairs),
        "counted_share": round(float(summary.certain.sum()) / RECORDS, 3),
    }


def routing(kind: str) -> dict[str, float]:
    """Nanoseconds to route a record by hash, and by a table of as many keys as tables have at most."""
    _, tag = stream(kind)
    found = {}
    overrides: dict[Key, int] = {(f"tag-{one}",): one % SHARDS for one in range(TableRules().keys_max)}
    for name, table in (("hash_ns", None), ("table_ns", overrides)):
        keys = [(f"tag-{one}",) for one in tag.tolist()]
        route = Router(["string"], SHARDS, table, int(table is not None)).route
        began = time.thread_time()
        for key in keys:
            route(key)
        found[name] = round((time.thread_time() - began) / RECORDS * 1e9, 1)
    return found


def graph(pairs: int, drifted: float) -> PairSummary:
    """Counted pairs of tags and countries; a part of the tags has gone to other countries."""
    rng = np.random.default_rng(SEED)
    tag = rng.integers(0, pairs // 2, 4 * pairs)
    home = tag * 7919 % 300
    home = np.where(rng.random(pairs // 2)[tag] < drifted, (home + 17) % 300, home)
    country = np.where(rng.random(4 * pairs) < 0.7, home, zipf(rng, 300, 0.5, 4 * pairs))
    found: list[Pair] = [
        ((f"country-{one}",), (f"tag-{other}",))
        for one, other in list(dict.fromkeys(zip(country.tolist(), tag.tolist(), strict=True)))[:pairs]
    ]
    counts = (np.random.default_rng(SEED + 1).pareto(1.0, len(found)) * 3 + 2).astype(np.int64)
    return PairSummary(int(counts.sum() * 1.3), 1, tuple(found), counts, 0 * counts)


def deciding(pairs: int, nodes: int) -> dict[str, float]:
    """Seconds of a first decision and of one after a drift, the best of some; and what they expect."""
    names = [f"node-{i}" for i in range(nodes)]
    partition = installed_partitioner()
    tables: dict[str, KeyTable] = {}
    found: dict[str, float] = {}
    for what, drifted in (("first", 0.0), ("next", 0.1)):
        edge = CountedEdge("countries", "tags", graph(pairs, drifted), 50_000.0, 200.0)
        times = []
        for _ in range(REPEATS):
            homes = {name: _homes(name, names, tables.get(name)) for name in ("countries", "tags")}
            look = LocalityLook(0, (edge,), homes, dict.fromkeys(names, 4.0))
            began = time.process_time()
            decision = decide_tables(look, partition, TableRules(), SEED)
            times.append(time.process_time() - began)
        if decision.action is None or decision.without is None or decision.expected is None:
            raise SystemExit(f"no table was proposed: {decision.reason}")
        tables = dict(decision.action.tables)
        found |= {
            f"{what}_s": round(min(times), 3),
            f"{what}_local": round(decision.expected.local_share, 3),
            f"{what}_before": round(decision.without.local_share, 3),
            f"{what}_moved": decision.action.keys_over,
        }
    return found


def _homes(operator: str, nodes: Sequence[str], table: KeyTable | None) -> OperatorHomes:
    route = Router(["string"], SHARDS).route
    places = [nodes[shard % len(nodes)] for shard in range(SHARDS)]
    return OperatorHomes(operator, places, route, table or {}, key_state_bytes=100.0)


def main() -> None:
    """Measure, print the table and the line."""
    screen = Screen(len(STREAMS) * (len(BATCHES) + 1) + len(GRAPHS))
    about = machine.description()
    table = Table(title=f"Counting in {LIMIT_BYTES >> 20} MiB, {RECORDS} records; deciding about tables")
    for column in ("what", "cost", "beside", "pairs", "of all, or local", "before"):
        table.add_column(column, justify="right", no_wrap=True)
    result: dict[str, Any] = {"bench": "tables", "counting": {}, "routing": {}, "deciding": {}}
    result["to_reach_s"] = TO_REACH_S
    for kind in STREAMS:
        for size in BATCHES:
            with screen.step(f"counting, {kind}, batches of {size}"):
                one = counting(kind, size)
            result["counting"][f"{kind}, {size}"] = one
            table.add_row(
                f"{kind}, batches of {size}",
                f"{one['count_ns']:.0f} ns",
                f"route {one['route_ns']:.0f} ns",
                f"{one['pairs']:.0f}",
                f"{one['counted_share']:.0%}",
            )
    for kind in STREAMS:
        with screen.step(f"routing, {kind}"):
            two = result["routing"][kind] = routing(kind)
        table.add_row(f"routing, {kind}", f"{two['table_ns']:.0f} ns", f"hash {two['hash_ns']:.0f} ns")
    for pairs, nodes in GRAPHS:
        with screen.step(f"deciding, {pairs} pairs, {nodes} nodes"):
            found = deciding(pairs, nodes)
        result["deciding"][f"{pairs}, {nodes}"] = found
        for what in ("first", "next"):
            table.add_row(
                f"{nodes} nodes, {what}",
                f"{found[f'{what}_s']:.2f} s",
                f"{found[f'{what}_moved']:.0f} keys move",
                str(pairs),
                f"{found[f'{what}_local']:.0%}",
                f"{found[f'{what}_before']:.0%}",
            )
    result["machine"] = about
    show(table, result)


if __name__ == "__main__":
    main()
