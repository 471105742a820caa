"""What a user names as a processor: a class, an object that is made in the module, or what makes one.

Neighbours: `running` makes what a task works with, `inspect_code` looks at it before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


def class_of(code: object) -> type[StatefulProcessor] | None:
    """The class of the processor that `code` is or makes; None where it is neither."""
    found = code if isinstance(code, type) else type(code)
    return found if issubclass(found, StatefulProcessor) else None


def maker_of(code: Any) -> Callable[[], StatefulProcessor]:
    """What makes a task's own: the class or function, or a copy of the object, taken as Spark takes one."""
    return partial(_copied, code) if isinstance(code, StatefulProcessor) else code


def making(code: Any) -> str:
    """What `maker_of` calls, in words."""
    if isinstance(code, StatefulProcessor):
        return f"a copy of {type(code).__name__}"
    called, given = (code.func, code.keywords) if isinstance(code, partial) else (code, {})
    name = getattr(called, "__name__", type(called).__name__)
    return f"{name}({', '.join(f'{argument}={value!r}' for argument, value in given.items())})"


def _copied(processor: StatefulProcessor) -> StatefulProcessor:
    copy: StatefulProcessor = cloudpickle.loads(cloudpickle.dumps(processor))
    return copy
