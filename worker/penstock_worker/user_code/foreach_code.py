"""What a user gives to a sink `foreach`: a function of a row, or a class in Spark's form with process.

Neighbours: `sinks.foreach` calls it, `inspect_code` looks at it before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_MAY_HAVE = ("open", "close")


@dataclass(frozen=True, slots=True)
class ForeachCode:
    """`process` takes a row; `open` takes partition_id and epoch_id and says whether to go on, `close` takes
    what was raised, or None."""

    process: Callable[[Any], Any]
    open: Callable[[int, int], Any] | None = None
    close: Callable[[BaseException | None], Any] | None = None


def not_foreach(target: str, code: object) -> str | None:
    """Why something cannot be called so, in a sentence; None where it can."""
    if not hasattr(code, "process"):
        if isinstance(code, type):
            return f"{target!r} is a class without process; give it process(row), or name a function of a row"
        if not callable(code):
            return f"{target!r} is {type(code).__name__}; name a function of a row, or a class with process"
        return None
    wrong = [name for name in ("process", *_MAY_HAVE) if not callable(getattr(code, name, print))]
    return f"{' and '.join(wrong)} of {target!r} cannot be called; make it a method" if wrong else None


def foreach_code(code: Any) -> ForeachCode:
    """What `not_foreach` has nothing against, made if it is a class. Raises what its `__init__` does."""
    made = code() if isinstance(code, type) else code
    if not hasattr(made, "process"):
        return ForeachCode(made)
    return ForeachCode(made.process, getattr(made, "open", None), getattr(made, "close", None))
