"""Whether the methods of a processor can be called as Spark, and a task here, calls them.

Neighbours: `inspect_code` asks before anything starts, `arguments` does the same for what makes processors
and for steps, `running` calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from penstock.manifest.faults import joined
from penstock_worker.user_code.async_step import is_async
from penstock_worker.user_code.key_calls import ASYNC_METHODS

_BY_PLACE = {
    "init": ("handle",),
    "handleInputRows": ("key", "rows", "timerValues"),
    "handleInitialState": ("key", "initialState", "timerValues"),
    "close": (),
}
_BY_NAME = {"handleExpiredTimer": ("key", "timerValues", "expiredTimerInfo")}
"""PySpark's names, which it calls it by."""


def method_problems(target: str, processor: Any) -> Iterator[tuple[str, str]]:
    """Methods of an instance that cannot be called so, each with a sentence that has the right one."""
    for name, given in (_BY_PLACE | _BY_NAME).items():
        method = getattr(processor, name, None)
        if not callable(method):
            continue
        right = f"make it def {name}({', '.join(('self', *given))})"
        if is_async(method):
            if name not in ASYNC_METHODS:
                may_be = joined(ASYNC_METHODS)
                yield name, f"{name} of {target!r} is async, and only {may_be} may be; {right}"
                continue
            right = right.replace("def ", "async def ", 1)
        try:
            signature = inspect.signature(method)
        except (TypeError, ValueError):
            continue  # one that Python cannot look into
        try:
            if name in _BY_NAME:
                signature.bind(**dict.fromkeys(given))
            else:
                signature.bind(*given)
        except TypeError:
            taken = signature.replace(return_annotation=inspect.Signature.empty)
            called = f"{joined(given)}{' by name' if name in _BY_NAME else ''}" if given else "nothing"
            yield name, f"{name} of {target!r} takes {taken} and is called with {called}; {right}"
