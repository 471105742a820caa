"""What `penstock run` writes when there is no terminal: a line on how it goes every few seconds.

Events come as lines of their own as they happen. Neighbour: `live_view` is the same for a terminal.
"""

from __future__ import annotations

from penstock.figures.operators import OperatorFigures
from penstock_operator.local.showing.run_status import RunEvent, RunStatus
from penstock_operator.words import figure_words
from penstock_operator.words.locality_words import locality_words
from penstock_operator.words.sla_words import sla_words


def status_line(status: RunStatus) -> str:
    """All that matters in one line; operators that are fused are left out, but for sinks."""
    head = f"{figure_words.duration(status.elapsed_s)} {status.phase}"
    workers = f"{status.workers_ready}/{len(status.workers)} workers ready"
    told = [_operator(operator) for operator in status.operators if operator.kind != "step"]
    if status.store_away:
        workers += ", the store is away"
    kept = [f"{line.name}: {sla_words(line)}" for line in status.slas]
    placed = [f"{line.name}: {locality_words(line)}" for line in status.edges]
    return " | ".join([f"{head}, {workers}", *told, *kept, *placed])


def event_line(event: RunEvent) -> str:
    return f"{figure_words.duration(event.at_s)} {event.text}"


def _operator(operator: OperatorFigures) -> str:
    text = f"{operator.name} {figure_words.rate(operator.rate_per_s)}/s"
    if operator.kind in ("keyed", "sink"):
        text += f" p50 {figure_words.latency(operator.p50_ms)} p99 {figure_words.latency(operator.p99_ms)}"
    if operator.has_inbox:
        text += f" waiting {figure_words.count(operator.inbox_rows)}"
    if operator.lag_records is not None:
        text += f" lag {figure_words.count(operator.lag_records)}"
        if operator.lag_ms:
            text += f" ({figure_words.behind(operator.lag_ms)})"
    if operator.has_event_time:
        text += f" watermark {figure_words.moment(operator.watermark_ms, operator.watermark_lag_ms)}"
        if operator.watermark_lag_ms is not None:
            text += f" ({figure_words.behind(operator.watermark_lag_ms)})"
        if operator.kind == "keyed":
            text += f" late {figure_words.count(operator.late_rows)}"
    return text
