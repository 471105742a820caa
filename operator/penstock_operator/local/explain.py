"""`penstock explain`: the last decisions, each with what was seen, predicted and chosen, and what it brought.

Neighbour: `decision_log` holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.api.load import load_manifest
from penstock.control.wording import counted
from penstock_operator import quantities
from penstock_operator.sla.decision_record import Brought, DecisionRecord, Expected, SeenExecutor

_INDENT = "    "


def explanation(records: Sequence[DecisionRecord]) -> str:
    """All of `records` as text, the newest last."""
    return "\n".join(line for record in records for line in _lines(record))


def explanation_json(records: Sequence[DecisionRecord]) -> bytes:
    """The same for machines: a list, one object a decision."""
    return msgspec.json.format(msgspec.json.encode(list(records)), indent=2) + b"\n"


def latency_words(latency_us: float | None) -> str:
    return quantities.latency(None if latency_us is None else latency_us / 1000)


def _lines(record: DecisionRecord) -> Iterator[str]:
    at = datetime.fromtimestamp(record.at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    about = f"{record.operator or 'the topology'}: {record.treatment}"
    dry = ", dry run: not carried out" if record.dry_run else ""
    yield f"#{record.number} {at}  {about} ({record.policy}, rule {record.rule}; {record.health}){dry}"
    for view in record.seen:
        yield f"{_INDENT}seen       {_seen(view)}"
    if record.without is not None or record.expected is not None:
        yield f"{_INDENT}predicted  {_predicted(record)}"
    chosen = "; ".join(record.actions) or "nothing is done"
    yield f"{_INDENT}chosen     {record.reason}"
    yield f"{_INDENT}           {chosen}"
    for kind, sentence in record.conditions.items():
        yield f"{_INDENT}condition  {kind}: {sentence}"
    if record.brought is not None:
        yield f"{_INDENT}brought    {_brought(record.brought)}"
    elif record.actions and not record.dry_run:
        yield f"{_INDENT}brought    not known: it was not done, or the run ended, before a window had passed"


def _seen(view: SeenExecutor) -> str:
    expected = "never catches up" if view.overloaded else f"{latency_words(view.expected_us)} expected"
    return (
        f"{view.name} {view.health}: {quantities.rate(view.arrival_per_s)}/s arrive, "
        f"{quantities.rate(view.service_per_s)}/s can be served, "
        f"{latency_words(view.instantaneous_us)} now, {expected}"
    )


def _predicted(record: DecisionRecord) -> str:
    told = []
    if record.without is not None:
        told.append(f"{_expected(record.without)} if nothing is done")
    if record.expected is not None:
        told.append(f"{_expected(record.expected)} with it")
    return "; ".join(told)


def _expected(expected: Expected) -> str:
    tasks = f"{expected.tasks} task{'s' if expected.tasks != 1 else ''}"
    if expected.latency_us is None:
        return f"never catches up ({tasks})"
    return f"{latency_words(expected.latency_us)} ({tasks})"


def _brought(brought: Brought) -> str:
    took = f"done in {quantities.latency(brought.took_us / 1000)}"
    if brought.stuck:
        return f"stuck: {brought.stuck}"
    if brought.latency_us is None:
        return f"{took}; nothing was completed in the window after it"
    tasks = counted(brought.tasks, "task")
    told = f"{took}; {latency_words(brought.latency_us)} in the window after it, with {tasks}"
    if brought.share is not None:
        told += f": {brought.share:.0%} of what was promised"
    return told


def topology_name(given: str) -> str:
    """The name of a topology that is given by name or by its manifest. Raises InvalidManifest."""
    path = Path(given)
    if not path.is_file():
        return given
    return load_manifest(path).topology.metadata.name
