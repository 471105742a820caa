"""An SLA in words for people: how it stands, what it came to, what its decisions promised and brought.

Neighbours: `penstock.sla.standing` and `penstock.sla.decision_record` have the figures; live view, summary,
`penstock explain` and the status of a LatencySLA show them.
"""

from __future__ import annotations

from penstock.control.wording import counted, help_words
from penstock.sla.decision_record import Brought, DecisionRecord, Expected
from penstock.sla.standing import SlaLine, SlaSummary
from penstock_operator.words import figure_words


def latency_words(latency_us: float | None) -> str:
    """Of microseconds."""
    return figure_words.latency(None if latency_us is None else latency_us / 1000)


def predicted_words(record: DecisionRecord) -> str:
    """ "never catches up (1 task) if nothing is done; 24.0 ms (2 tasks) with it"; "" where nothing is."""
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


def brought_words(brought: Brought) -> str:
    """ "done in 310 ms; 140 ms before, 120 ms in the window after it, with 2 tasks; 25.0 ms was promised: no
    help"."""
    took = f"done in {figure_words.latency(brought.took_us / 1000)}"
    if brought.stuck:
        return f"stuck: {brought.stuck}"
    if brought.latency_us is None:
        return f"{took}; nothing was completed in the window after it"
    tasks = counted(brought.tasks, "task")
    before = "" if brought.before_us is None else f"{latency_words(brought.before_us)} before, "
    told = f"{took}; {before}{latency_words(brought.latency_us)} in the window after it, with {tasks}"
    if brought.share is not None and brought.promised_us is not None:
        helped = help_words(brought.promised_us, brought.before_us, brought.latency_us, brought.share)
        told += f"; {latency_words(brought.promised_us)} was promised: {helped}"
    return told


def share(value: float | None) -> str:
    """0.98123 -> "98.1%"."""
    return figure_words.UNKNOWN if value is None else f"{value:.1%}"


def sla_words(line: SlaLine) -> str:
    """All of a line in one: "count: 34.0 ms of 250 ms (worst shard 80.1 ms), 98.1% kept, 3 tasks"."""
    mean, bound = figure_words.latency(line.mean_ms), figure_words.latency(line.bound_ms)
    text = f"{line.about} {mean} of {bound}, worst shard {figure_words.latency(line.worst_ms)}, "
    text += f"{share(line.success_recent)} kept, {line.tasks} tasks"
    if line.dry_run:
        text += ", dry run"
    return text + "".join(f", {kind}" for kind in line.conditions)


def summary_words(summary: SlaSummary) -> str:
    """What an SLA came to, in a sentence."""
    mean = figure_words.UNKNOWN if summary.mean_tasks is None else f"{summary.mean_tasks:.2f}"
    bound, window = figure_words.latency(summary.bound_ms), figure_words.latency(summary.window_ms)
    done = ", ".join(f"{number} {treatment}" for treatment, number in sorted(summary.decisions.items()))
    worst = min((s for s in summary.success_of_shards.values() if s is not None), default=None)
    verb = "would have been decided" if summary.dry_run else "decided"
    text = (
        f"{summary.name} ({summary.operator or 'end to end'} within {bound} over {window}, "
        f"{summary.policy}): kept {share(summary.success)} of windows, "
        f"{share(worst)} at the worst shard, with {mean} tasks on average; {verb}: {done or 'nothing'}"
    )
    return f"{text}; picture: {summary.picture}" if summary.picture else text
