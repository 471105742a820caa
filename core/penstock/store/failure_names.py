"""Under which name an operator's failure is reported: its own, and the code's that failed.

A failure speaks of the code it came from. Workers made from other code (in a cluster: of another
template) take no notice of it, so a topology whose code was mended goes on, without anybody who has to
forget the old failure. `penstock run` has one code a run, no template, and forgets earlier failures at
its start.
"""

from __future__ import annotations

from collections.abc import Mapping

_SEPARATOR = "@"
"""In no operator's name."""


def failure_name(operator: str, template: str) -> str:
    """What `ReportFailure` calls the operator; `template` is "" where there are none."""
    return f"{operator}{_SEPARATOR}{template}" if template else operator


def failures_of(failures: Mapping[str, str], template: str) -> dict[str, str]:
    """operator -> message, of the failures of this code."""
    found = {}
    for name, message in failures.items():
        operator, _, failed = name.partition(_SEPARATOR)
        if failed == template:
            found[operator] = message
    return found
