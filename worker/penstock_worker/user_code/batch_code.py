"""The function of a sink `foreachBatch`: of a DataFrame and a batch id, as Spark calls it.

Neighbours: `spark.batch_door` calls it in the main process, `inspect_code` looks at it before anything
starts.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from penstock_worker.user_code.running import UserCodeMissing, load_attribute, raised


def not_foreach_batch(target: str, code: object) -> str | None:
    """Why something cannot be called so, in a sentence; None where it can."""
    wanted = "foreachBatch calls a function with a DataFrame and a batch id"
    if isinstance(code, type) or not callable(code):
        what = "a class" if isinstance(code, type) else type(code).__name__
        return f"{target!r} is {what}, no function; {wanted}"
    try:
        signature = inspect.signature(code)
    except (TypeError, ValueError):
        return None  # one that Python cannot look into
    if inspect.iscoroutinefunction(code):
        return f"{target!r} is async, and nobody would wait for it; {wanted}"
    try:
        signature.bind(None, 0)
    except TypeError:
        name = getattr(code, "__name__", target)
        return f"{target!r} takes {signature}; {wanted}: make it def {name}(df, batch_id)"
    return None


class BatchCode:
    """The code of the sink `operator`; it is loaded with the first call."""

    def __init__(self, operator: str, target: str, base_dir: Path) -> None:
        self._operator = operator
        self._target = target
        self._base_dir = base_dir
        self._function: Any = None

    def call(self, frame: Any, batch_id: int, rows: int) -> None:
        """Raises UserCodeMissing, and UserCodeError for whatever the function raises."""
        if self._function is None:
            function = load_attribute(self._target, self._base_dir)
            if problem := not_foreach_batch(self._target, function):
                raise UserCodeMissing(f"operator {self._operator}: {problem}")
            self._function = function
        try:
            self._function(frame, batch_id)
        except BaseException as error:
            what = f"on batch {batch_id}, of {rows} {'row' if rows == 1 else 'rows'}"
            raise raised(self._operator, self._function, self._target, what, error) from error
