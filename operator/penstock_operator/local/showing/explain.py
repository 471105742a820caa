"""`penstock explain`: the last decisions, each with what was seen, predicted and chosen, and what it brought.

Neighbour: `decision_log` holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.api.graph import Runtime
from penstock.api.load import load_manifest
from penstock.locality.record import Placed, SeenEdge, TablesRecord
from penstock.sla.decision_record import DecisionRecord, SeenExecutor
from penstock_operator.words import figure_words
from penstock_operator.words.sla_words import brought_words, latency_words, predicted_words

_INDENT = "    "


def explanation(records: Sequence[DecisionRecord | TablesRecord]) -> str:
    """All of `records` as text, the newest last."""
    return "\n".join(
        line
        for record in records
        for line in (_lines(record) if isinstance(record, DecisionRecord) else _tables_lines(record))
    )


def explanation_json(records: Sequence[DecisionRecord | TablesRecord]) -> bytes:
    """The same for machines: a list, one object a decision."""
    return msgspec.json.format(msgspec.json.encode(list(records)), indent=2) + b"\n"


def _lines(record: DecisionRecord) -> Iterator[str]:
    at = _time(record.at_us)
    about = f"{record.operator or 'the topology'}: {record.treatment}"
    dry = ", dry run: not carried out" if record.dry_run else ""
    yield f"#{record.number} {at}  {about} ({record.policy}, rule {record.rule}; {record.health}){dry}"
    for view in record.seen:
        yield f"{_INDENT}seen       {_seen(view)}"
    if record.without is not None or record.expected is not None:
        yield f"{_INDENT}predicted  {predicted_words(record)}"
    chosen = "; ".join(record.actions) or "nothing is done"
    yield f"{_INDENT}chosen     {record.reason}"
    yield f"{_INDENT}           {chosen}"
    for kind, sentence in record.conditions.items():
        yield f"{_INDENT}condition  {kind}: {sentence}"
    if record.brought is not None:
        yield f"{_INDENT}brought    {brought_words(record.brought)}"
    elif record.actions and not record.dry_run:
        yield f"{_INDENT}brought    not known: it was not done, or the run ended, before a window had passed"


def _tables_lines(record: TablesRecord) -> Iterator[str]:
    dry = ", dry run: not carried out" if record.dry_run else ""
    about = " and ".join(record.operators) or "the topology"
    what = f"{about}: {record.treatment} (locality, rule {record.rule}){dry}"
    yield f"#{record.number} {_time(record.at_us)}  {what}"
    for edge in record.seen:
        yield f"{_INDENT}seen       {_seen_edge(edge)}"
    if record.expected is not None and record.without is not None:
        by_hash = "" if record.by_hash is None else f", {_placed(record.by_hash)} by hash"
        yield (
            f"{_INDENT}predicted  {_placed(record.expected)} stay on their node with it, "
            f"{_placed(record.without)} without{by_hash}; the fullest node has "
            f"{record.expected.imbalance:.2f} times its share"
        )
    yield f"{_INDENT}chosen     {record.reason}"
    yield f"{_INDENT}           {'; '.join(record.actions) or 'nothing is done'}"
    if record.brought is not None:
        yield f"{_INDENT}brought    {record.brought.words}, after {record.brought.took_us / 1e6:.1f} s"
    elif record.actions and not record.dry_run:
        yield f"{_INDENT}brought    not known: it was not done, or the run ended, before it was measured"


def _seen_edge(edge: SeenEdge) -> str:
    return (
        f"{edge.name}: {figure_words.rate(edge.records_per_s)}/s, {figure_words.count(edge.records)} records "
        f"counted, {edge.pairs} pairs are {edge.counted_share:.0%} of them"
    )


def _placed(placed: Placed) -> str:
    return f"{placed.local_share:.0%}"


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _seen(view: SeenExecutor) -> str:
    expected = "never catches up" if view.overloaded else f"{latency_words(view.expected_us)} expected"
    return (
        f"{view.name} {view.health}: {figure_words.rate(view.arrival_per_s)}/s arrive, "
        f"{figure_words.rate(view.service_per_s)}/s can be served, "
        f"{latency_words(view.instantaneous_us)} now, {expected}"
    )


def topology_name(given: str, runtime: Runtime = "local") -> str:
    """The name of a topology that is given by name or by its manifest, which is one for `runtime`. Raises
    InvalidManifest."""
    path = Path(given)
    is_a_path = path.suffix in {".yaml", ".yml"} or len(path.parts) > 1
    if not (is_a_path or path.is_file()):
        return given
    return load_manifest(path, runtime=runtime).topology.metadata.name
