"""What a user names as a processor: a class, or an object that is made in the module, with arguments.

Neighbours: `running` makes what a task works with, `inspect_code` looks at it before anything starts.
"""

from __future__ import annotations

import inspect
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
    """What makes a task's own: the class, or a copy of the object, taken as Spark takes one."""
    return partial(_copied, code) if isinstance(code, StatefulProcessor) else code


def needs_arguments(code: object) -> bool:
    """Whether `code` is a class of which no instance can be made without arguments."""
    if not isinstance(code, type):
        return False
    try:
        inspect.signature(code).bind()
    except TypeError:
        return True
    except ValueError:  # it shows no signature
        return False
    return False


def _copied(processor: StatefulProcessor) -> StatefulProcessor:
    copy: StatefulProcessor = cloudpickle.loads(cloudpickle.dumps(processor))
    return copy
