"""What decisions promised and brought, in words for people.

Neighbours: `decision_record` has the figures; `penstock explain` and the status of a LatencySLA show them.
"""

from __future__ import annotations

from penstock.control.wording import counted, help_words
from penstock_operator import figure_words
from penstock_operator.sla.decision_record import Brought, DecisionRecord, Expected


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
