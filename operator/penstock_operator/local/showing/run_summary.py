"""What a run came to: shown to people at its end, written as JSON for scripts.

Neighbours: `progress` adds the operators up, `local_run` fills this in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from rich.table import Table

from penstock.locality.record import EdgeLine
from penstock.sla.standing import SlaSummary
from penstock_operator.local.showing.progress import OperatorTotal
from penstock_operator.local.showing.run_status import RunEvent
from penstock_operator.local.showing.sla_picture import timeline_rows
from penstock_operator.words import figure_words


@dataclass(frozen=True, slots=True)
class RunSummary:
    """`result` is finished, time over, stopped or failed (with `message`). `worked_s` counts from the first
    task that ran; `restarts` names the workers that were started again, and how often."""

    topology: str
    result: str
    message: str
    resumed: bool
    duration_s: float
    worked_s: float
    operators: tuple[OperatorTotal, ...]
    restarts: Mapping[str, int]
    store_restarts: int
    events: tuple[RunEvent, ...]
    slas: tuple[SlaSummary, ...] = ()
    edges: tuple[EdgeLine, ...] = ()


def summary_json(summary: RunSummary) -> bytes:
    """One object; what is not known is null. `records` and `late_records` are of this run."""
    operators = {
        total.name: {
            "kind": total.kind,
            "records": total.records,
            "records_per_s": _per_s(total, summary),
            "p50_ms": total.p50_ms,
            "p99_ms": total.p99_ms,
            "max_ms": total.max_ms,
            "late_records": total.late_rows,
        }
        for total in summary.operators
    }
    document = {
        "topology": summary.topology,
        "result": summary.result,
        "message": summary.message,
        "resumed": summary.resumed,
        "duration_s": summary.duration_s,
        "worked_s": summary.worked_s,
        "operators": operators,
        "restarts": dict(summary.restarts),
        "store_restarts": summary.store_restarts,
        "events": [{"at_s": event.at_s, "text": event.text} for event in summary.events],
        "slas": {sla.name: _sla(sla) for sla in summary.slas},
        "edges": {line.name: _edge(line) for line in summary.edges},
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _edge(line: EdgeLine) -> dict[str, object]:
    """Shares are of rows; `tables` are the versions at both ends, 0 for none."""
    return {
        "local_share": line.local_share,
        "by_hash": line.by_hash,
        "expected": line.expected,
        "tables": list(line.versions),
    }


def _sla(sla: SlaSummary) -> dict[str, object]:
    """Shares are of windows; the cost is `mean_tasks`, which is `mean_executors` where each has one task."""
    return {
        "operator": sla.operator or None,
        "policy": sla.policy,
        "dry_run": sla.dry_run,
        "latency_ms": sla.bound_ms,
        "window_ms": sla.window_ms,
        "success_rate": sla.success,
        "success_rate_5min": sla.success_recent,
        "success_rate_of_shards": dict(sla.success_of_shards),
        "mean_executors": sla.mean_executors,
        "mean_tasks": sla.mean_tasks,
        "decisions": dict(sla.decisions),
        "picture": sla.picture or None,
        "timeline": timeline_rows(sla.timeline),
    }


def headline(summary: RunSummary) -> str:
    """ "word-count finished after 0:42"."""
    text = f"{summary.topology}: {summary.result} after {figure_words.duration(summary.duration_s)}"
    again = [f"{worker} ({_times(number)})" for worker, number in sorted(summary.restarts.items())]
    if again:
        text += f"; workers started again: {', '.join(again)}"
    if summary.store_restarts:
        text += f"; the store was started again ({_times(summary.store_restarts)})"
    return text


def summary_table(summary: RunSummary) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("operator", no_wrap=True)
    for header in ("records", "records/s", "p50", "p99", "max"):
        table.add_column(header, justify="right", no_wrap=True)
    for total in summary.operators:
        has_latency = total.kind in ("keyed", "sink")
        table.add_row(
            total.name,
            figure_words.count(total.records),
            figure_words.rate(_per_s(total, summary)),
            figure_words.latency(total.p50_ms) if has_latency else "",
            figure_words.latency(total.p99_ms) if has_latency else "",
            figure_words.latency(total.max_ms) if has_latency else "",
        )
    return table


def late_words(summary: RunSummary) -> str:
    """ "3 rows came late to sessions, 1 row to joined."; "" where none did."""
    told = [(total.late_rows, total.name) for total in summary.operators if total.late_rows]
    rows = [f"{figure_words.count(late)} row{'' if late == 1 else 's'}" for late, _ in told]
    parts = [
        f"{row}{'' if number else ' came late'} to {name}"
        for number, (row, (_, name)) in enumerate(zip(rows, told, strict=True))
    ]
    return f"{', '.join(parts)}." if parts else ""


def _times(number: int) -> str:
    return f"{number} time" if number == 1 else f"{number} times"


def _per_s(total: OperatorTotal, summary: RunSummary) -> float | None:
    if total.records is None or summary.worked_s <= 0:
        return None
    return total.records / summary.worked_s
