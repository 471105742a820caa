"""How executors are called: by their operator and their worker, and by a number where there are several."""

from __future__ import annotations

from collections.abc import Collection


def executor_name(operator: str, worker: str) -> str:
    """The name of an operator's first executor in a worker."""
    return f"{operator}-{worker}"


def free_name(operator: str, worker: str, taken: Collection[str]) -> str:
    """A name for one more executor of `operator` in `worker`: "count-w0-1", "count-w0-2", ..."""
    number = 1
    while (name := f"{executor_name(operator, worker)}-{number}") in taken:
        number += 1
    return name
