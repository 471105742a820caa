"""The live view of `penstock run` on a terminal: a table of the operators, the workers, the last events.

`render` is a function of a `RunStatus`; `LiveView` keeps it on the screen, redrawn in place by whoever calls
`show` (no thread of its own), and gives the terminal back whatever happens. Neighbour:
`log_lines` is what is written when there is no terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.figures.operators import OperatorFigures
from penstock.locality.record import EdgeLine
from penstock.sla.standing import SlaLine
from penstock_operator.local.showing.run_status import RunEvent, RunStatus, WorkerLine
from penstock_operator.words import figure_words
from penstock_operator.words.locality_words import locality_words
from penstock_operator.words.sla_words import share

_TREND_WIDTH = 16
_EVENTS_SHOWN = 5
_WIDE = 112
_MIDDLE = 90
_GAP = 2
_NAME_WIDTH = 12
"""Names may be cut to this before a column gives way."""
_GIVING_WAY = ("lag", "watermark", "late", "executors", "workers", "last 16 s")
_STATE_STYLE = {
    "ready": "green",
    "warm": "cyan",
    "starting": "yellow",
    "down": "red",
    "stopping": "yellow",
    "ended": "dim",
}


class LiveView:
    """A context: the view is on the screen within it. `log` writes a line above the view."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, status: RunStatus) -> None:
        self._live.update(render(status, self._console.width), refresh=True)

    def print_rows(self, lines: list[str]) -> None:
        """Rows of a console sink, above the view."""
        self._console.print(Text("\n".join(lines)), soft_wrap=True)


def render(status: RunStatus, width: int) -> RenderableType:
    """The whole view for a terminal of `width` columns."""
    parts: list[RenderableType] = [_title(status), _operators(status, width)]
    parts.extend(part for line in status.slas for part in _sla(line))
    parts.extend(_edge(line) for line in status.edges)
    parts.extend(_event(event) for event in status.events[-_EVENTS_SHOWN:])
    return Group(*parts)


def _title(status: RunStatus) -> Text:
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(status.topology, style="bold")
    title.append(f"  {status.phase} {figure_words.duration(status.elapsed_s)}")
    title.append(f"  durability {status.durability}", style="dim")
    title.append(f"  workers {status.workers_ready}/{len(status.workers)} ready")
    for worker in status.workers:
        title.append("  ")
        title.append_text(_worker(worker))
    if status.store_away:
        title.append("  the store is away", style="bold red")
    return title


def _worker(worker: WorkerLine) -> Text:
    text = Text(worker.name + " ", style="dim")
    text.append(worker.state, style=_STATE_STYLE.get(worker.state, ""))
    if worker.restarts:
        text.append(f" (restarted {worker.restarts})", style="dim")
    return text


@dataclass(frozen=True, slots=True)
class _Column:
    """Its cells are in the order of the operators. `from_width`: columns of the terminal that it needs."""

    header: str
    cells: list[Text]
    from_width: int = 0

    @property
    def width(self) -> int:
        return _GAP + max(cell_len(self.header), *(cell.cell_len for cell in self.cells), 0)


def _operators(status: RunStatus, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    table.add_column("operator", no_wrap=True, overflow="ellipsis")
    columns = _columns(status.operators, width)
    for column in columns:
        table.add_column(column.header, justify="right", no_wrap=True)
    for number, operator in enumerate(status.operators):
        table.add_row(_name(operator), *(column.cells[number] for column in columns))
    return table


def _columns(operators: Sequence[OperatorFigures], width: int) -> list[_Column]:
    """Those of event time and of where an operator runs give way, the last of `_GIVING_WAY` first, where they
    would cut a figure."""

    def column(
        header: str, cell: Callable[[OperatorFigures], str], *, style: str = "", from_width: int = 0
    ) -> _Column:
        return _Column(header, [Text(cell(operator), style=style) for operator in operators], from_width)

    def of_stages(header: str, number: Callable[[OperatorFigures], int | None], from_width: int) -> _Column:
        return column(
            header, lambda one: figure_words.count(number(one)) if one.is_stage else "", from_width=from_width
        )

    found = [
        column("records/s", lambda one: figure_words.rate(one.rate_per_s), style="bold"),
        column("p50", lambda one: _latency(one, one.p50_ms)),
        column("p99", lambda one: _latency(one, one.p99_ms)),
        column("records", lambda one: figure_words.count(one.records)),
        column("waiting", lambda one: waiting(one) if one.has_inbox else ""),
    ]
    if any(operator.lag_records is not None for operator in operators):
        found.append(column("lag", _lag))
    if any(operator.has_event_time for operator in operators):
        found += [column("watermark", _watermark), column("late", _late)]
    found += [
        of_stages("workers", lambda one: one.workers, _MIDDLE),
        of_stages("executors", lambda one: one.executors, _MIDDLE),
        of_stages("tasks", lambda one: one.tasks_ready, 0),
        of_stages("shards", lambda one: one.shards, 0),
        column(
            "last 16 s",
            lambda one: figure_words.sparkline(one.trend, _TREND_WIDTH),
            style="cyan",
            from_width=_WIDE,
        ),
    ]
    shown = [column for column in found if column.from_width <= width]
    names = max((_name(operator).cell_len for operator in operators), default=0)
    for header in reversed(_GIVING_WAY):
        if min(names, _NAME_WIDTH) + sum(column.width for column in shown) > width:
            shown = [column for column in shown if column.header != header]
    return shown


def _name(operator: OperatorFigures) -> Text:
    return Text(operator.name) if operator.is_stage else Text(f"  {operator.name}", style="dim")


def _latency(operator: OperatorFigures, milliseconds: float | None) -> str:
    return figure_words.latency(milliseconds) if operator.kind in ("keyed", "sink") else ""


def _lag(operator: OperatorFigures) -> str:
    """Of a source that can tell it."""
    if operator.lag_records is None:
        return ""
    behind = f" ({figure_words.behind(operator.lag_ms)})" if operator.lag_ms else ""
    return f"{figure_words.count(operator.lag_records)}{behind}"


def _watermark(operator: OperatorFigures) -> str:
    if not operator.has_event_time:
        return ""
    return figure_words.moment(operator.watermark_ms, operator.watermark_lag_ms)


def _late(operator: OperatorFigures) -> str:
    has_late = operator.has_event_time and operator.kind == "keyed"
    return figure_words.count(operator.late_rows) if has_late else ""


def _sla(line: SlaLine) -> Iterator[Text]:
    """Target, latency and success of one SLA, and its last decision."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{line.name} ", style="bold")
    text.append(f"{line.about} \u2264 {figure_words.latency(line.bound_ms)}", style="dim")
    text.append(f" over {figure_words.latency(line.window_ms)}  ", style="dim")
    style = {True: "green", False: "bold red", None: "dim"}[line.met]
    now, worst = figure_words.latency(line.mean_ms), figure_words.latency(line.worst_ms)
    text.append(f"now {now}, worst {worst}", style=style)
    text.append(f"  expected {_expected(line.expected_ms)}")
    text.append(f"  kept {share(line.success_recent)} of 5 min, {share(line.success)} in all")
    mean = figure_words.UNKNOWN if line.mean_tasks is None else f"{line.mean_tasks:.1f}"
    text.append(f"  {line.tasks} tasks (mean {mean})", style="cyan")
    text.append(f"  {line.policy}{', dry run' if line.dry_run else ''}", style="dim")
    yield text
    for kind, sentence in line.conditions.items():
        yield Text(f"  {kind}: {sentence}", style="yellow", no_wrap=True, overflow="ellipsis")
    if line.last_decision:
        yield Text(f"  {line.last_decision}", no_wrap=True, overflow="ellipsis")


def _edge(line: EdgeLine) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{line.name} ", style="bold")
    text.append(locality_words(line))
    return text


def _expected(milliseconds: float | None) -> str:
    if milliseconds is not None and math.isinf(milliseconds):
        return "never to catch up"
    return figure_words.latency(milliseconds)


def waiting(operator: OperatorFigures) -> str:
    """Inbox length: entries, and the rows in them."""
    if operator.inbox_entries is None or operator.inbox_rows is None:
        return figure_words.UNKNOWN
    return f"{figure_words.count(operator.inbox_entries)} / {figure_words.count(operator.inbox_rows)}"


def _event(event: RunEvent) -> Text:
    text = Text(f"{figure_words.duration(event.at_s)} ", style="dim", no_wrap=True, overflow="ellipsis")
    text.append(event.text, style="red" if event.is_trouble else "none")
    return text
