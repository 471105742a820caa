"""The live view of `penstock run` on a terminal: a table of the operators, the workers, the last events.

`render` is a function of a `RunStatus`; `LiveView` keeps it on the screen, redrawn in place by whoever calls
`show` (no thread of its own), and gives the terminal back whatever happens. Neighbour:
`log_lines` is what is written when there is no terminal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.figures.operators import OperatorFigures
from penstock.sla.standing import SlaLine
from penstock_operator.local.showing.run_status import RunEvent, RunStatus, WorkerLine
from penstock_operator.words import figure_words
from penstock_operator.words.sla_words import share

_TREND_WIDTH = 16
_EVENTS_SHOWN = 5
_WIDE = 112
_MIDDLE = 90
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


def _operators(status: RunStatus, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("operator", no_wrap=True, overflow="ellipsis")
    headers = ["records/s", "p50", "p99", "records", "waiting"]
    if width >= _MIDDLE:
        headers += ["workers", "executors"]
    headers += ["tasks", "shards"]
    if width >= _WIDE:
        headers.append("last 16 s")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for operator in status.operators:
        table.add_row(*_line(operator, width))
    return table


def _line(operator: OperatorFigures, width: int) -> list[RenderableType]:
    is_stage = operator.is_stage
    name = Text(operator.name if is_stage else f"  {operator.name}")
    if not is_stage:
        name.stylize("dim")
    has_latency = operator.kind in ("keyed", "sink")
    cells: list[RenderableType] = [
        name,
        Text(figure_words.rate(operator.rate_per_s), style="bold"),
        figure_words.latency(operator.p50_ms) if has_latency else "",
        figure_words.latency(operator.p99_ms) if has_latency else "",
        figure_words.count(operator.records),
        waiting(operator) if operator.kind == "keyed" else "",
    ]
    numbers = [operator.tasks_ready, operator.shards]
    if width >= _MIDDLE:
        numbers = [operator.workers, operator.executors, *numbers]
    cells.extend(figure_words.count(number) if is_stage else "" for number in numbers)
    if width >= _WIDE:
        cells.append(Text(figure_words.sparkline(operator.trend, _TREND_WIDTH), style="cyan"))
    return cells


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
