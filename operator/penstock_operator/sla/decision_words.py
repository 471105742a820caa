"""What decisions promised and brought, in words for people.

Neighbours: `decision_record` has the figures; `penstock explain` and the status of a LatencySLA show them.
"""

from __future__ import annotations

from penstock.control.wording import counted
from penstock_operator import quantities
from penstock_operator.sla.decision_record import Brought, DecisionRecord, Expected


def latency_words(latency_us: float | None) -> str:
    """Of microseconds."""
    return quantities.latency(None if latency_us is None else latency_us / 1000)


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
    """ "done in 310 ms; 24.0 ms in the window after it, with 2 tasks"."""
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
