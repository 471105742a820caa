"""Rows of counted pairs, as tasks left them -> edges with their counts, and what part of each stays at home.

Rows of other versions of tables, and those that were not renewed for long, are passed over; a task that
should have one and has none makes its edge's counts missing, never fewer (promise 7). Neighbours: `seen` has
the rows, `control.locality` merges and decides.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.control.locality.key_graph import CountedEdge
from penstock.control.locality.pair_summary import Key, PairSummary, merged
from penstock.control.locality.pairs_row import PairsRow, UnreadableRow, row_name, unpack_row
from penstock.control.locality.summary_wire import UnreadableSummary, unpack_summary
from penstock.locality.seen import LocalitySeen

PAIRS_MAX = 100_000
"""Of one edge, merged."""
UNPACKED_BYTES_MAX = 256 << 20
"""Of all rows of a look: what is packed well takes a thousand times as much."""
STALE_US = 60_000_000
"""A row that was not renewed for so long tells nothing about now,"""
GONE_US = 600_000_000
"""and after so long its task does not come again: the row may go."""


@dataclass(frozen=True, slots=True)
class EdgeCounts:
    """One edge as its tasks counted it. `local_share` is what part of its rows went to shards of their own
    node; None where none is known of. `missing` names tasks whose rows are not there."""

    upstream: str
    downstream: str
    counted: CountedEdge
    local_share: float | None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """Of all edges, and names of rows that may go."""

    edges: tuple[EdgeCounts, ...]
    gone: tuple[str, ...]


def counts_of(
    seen: LocalitySeen,
    edges: Iterable[tuple[str, str]],
    versions: Mapping[str, int],
    hashed: Mapping[str, Callable[[Key], int]],
) -> Counts:
    """`versions` is operator -> version of the table that it has, 0 for none; `hashed` operator -> where its
    keys go without one: a row with a key that cannot be routed was not written by a task of ours."""
    rows: dict[str, PairsRow] = {}
    gone: list[str] = []
    left_bytes = UNPACKED_BYTES_MAX
    for name, packed in seen.rows.items():
        try:
            row, size_bytes = unpack_row(packed, left_bytes)
        except UnreadableRow:
            continue
        left_bytes -= size_bytes
        if row.at_us < seen.at_us - GONE_US:
            gone.append(name)
        elif row.at_us >= seen.at_us - STALE_US:
            of = row_name(row.upstream, row.downstream, row.executor, row.task)
            # An executor that has come from another node has left one in the store there.
            if of not in rows or rows[of].at_us < row.at_us:
                rows[of] = row
    return Counts(
        tuple(_edge(seen, rows, upstream, downstream, versions, hashed) for upstream, downstream in edges),
        tuple(gone),
    )


def _edge(
    seen: LocalitySeen,
    rows: Mapping[str, PairsRow],
    upstream: str,
    downstream: str,
    versions: Mapping[str, int],
    hashed: Mapping[str, Callable[[Key], int]],
) -> EdgeCounts:
    now = (versions.get(upstream, 0), versions.get(downstream, 0))
    found: list[tuple[PairsRow, PairSummary]] = []
    missing: list[str] = []
    for executor, tasks in seen.tasks.get(upstream, {}).items():
        for task in range(tasks):
            row = rows.get(row_name(upstream, downstream, executor, task))
            summary = None
            if row is not None and row.versions == now:
                summary = _summary(row, hashed[upstream], hashed[downstream])
            if row is None or summary is None:
                missing.append(f"{executor}.{task}")
            else:
                found.append((row, summary))
    sent = sum(row.rows for row, _ in found)
    counted = CountedEdge(
        upstream,
        downstream,
        merged((summary for _, summary in found), PAIRS_MAX),
        records_per_s=sum(row.rows_per_s for row, _ in found),
        record_bytes=sum(row.sent_bytes for row, _ in found) / sent if sent else 0.0,
    )
    local = _local_share(seen, upstream, downstream, (row for row, _ in found))
    return EdgeCounts(upstream, downstream, counted, local, tuple(missing))


def _summary(row: PairsRow, received: Callable[[Key], int], sent: Callable[[Key], int]) -> PairSummary | None:
    try:
        summary = unpack_summary(row.summary)
        for one, other in summary.pairs:
            received(one)
            sent(other)
    except (UnreadableSummary, TypeError, ValueError, ArithmeticError, struct.error):
        return None
    return summary


def _local_share(
    seen: LocalitySeen, upstream: str, downstream: str, rows: Iterable[PairsRow]
) -> float | None:
    """By where shards are now."""
    here, there = seen.homes.get(upstream, {}), seen.homes.get(downstream, {})
    local = whole = 0
    for row in rows:
        for source, target, count in row.flows:
            home, other = here.get(f"{upstream}/{source}"), there.get(f"{downstream}/{target}")
            if home is not None and other is not None:
                whole += count
                local += count if home == other else 0
    return local / whole if whole else None
