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
from penstock.sla.decision_record import DecisionRecord, SeenExecutor
from penstock_operator.words import figure_words
from penstock_operator.words.sla_words import brought_words, latency_words, predicted_words

_INDENT = "    "


def explanation(records: Sequence[DecisionRecord]) -> str:
    """All of `records` as text, the newest last."""
    return "\n".join(line for record in records for line in _lines(record))


def explanation_json(records: Sequence[DecisionRecord]) -> bytes:
    """The same for machines: a list, one object a decision."""
    return msgspec.json.format(msgspec.json.encode(list(records)), indent=2) + b"\n"


def _lines(record: DecisionRecord) -> Iterator[str]:
    at = datetime.fromtimestamp(record.at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
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
