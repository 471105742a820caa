"""Code of a user's with the arguments that a manifest gives it, checked against its signature.

A step is a function of rows, or of batches, and of its arguments; a processor is made by a class or by a
function. A step that takes no rows is a factory: it is called once in each task, and gives the function. What
does not fit is told with the right call and the right signature beside it. Neighbours: `stages.steps` and
`spark.task_entry` make what a task works with, `inspect_code` looks before anything starts.
"""

from __future__ import annotations

import difflib
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from penstock.dataflow.plan import ARROW, PANDAS, ROWS
from penstock.manifest.faults import joined
from penstock_worker.user_code.async_step import is_async
from penstock_worker.user_code.processor_code import class_of
from penstock_worker.user_code.running import UserCodeMissing, load_attribute, users_traceback
from penstock_worker.values.wire_values import shown

Arguments = Mapping[str, Any]

_PLAIN_TYPES = (bool, int, float, str, list, dict, type(None), Any)
_PLAIN_ORIGINS = (list, dict, typing.Union, types.UnionType, typing.Literal)
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class StepKind:
    """What code of a kind of step is: `role` is the manifest's field, `given` the name of what it is called
    with, `returns` what it does, in words."""

    role: str
    given: str
    returns: str


MAP = StepKind("map", "row", "a map takes a row and returns rows")
STEPS = {
    ROWS: MAP,
    PANDAS: StepKind(
        "mapInPandas", "iterator", "mapInPandas takes an iterator of DataFrames and returns one"
    ),
    ARROW: StepKind(
        "mapInArrow", "iterator", "mapInArrow takes an iterator of RecordBatches and returns one"
    ),
}
"""By the form of a step."""


def decoded(arguments: str) -> Arguments:
    """The arguments of a plan."""
    found: dict[str, Any] = json.loads(arguments) if arguments else {}
    return found


# --- steps ------------------------------------------------------------------------------------------


def step_function(kind: StepKind, target: str, arguments: Arguments, base_dir: Path) -> Callable[[Any], Any]:
    """What `target` names, as a function of what the step is given alone; a factory has been called. Raises
    UserCodeMissing."""
    code = load_attribute(target, base_dir)
    if problem := step_problem(kind, target, code, arguments):
        raise UserCodeMissing(problem)
    if not _is_factory(code, arguments):
        return partial(code, **arguments) if arguments else code
    try:
        made = code(**arguments)
    except BaseException as error:
        raise UserCodeMissing(f"{target!r} raised:\n{users_traceback(error)}") from error
    if not callable(made):
        right = f"def {target.partition(':')[2]}({', '.join((kind.given, *arguments))})"
        raise UserCodeMissing(
            f"{target!r} takes no {kind.given}, was called once and returned {shown(made)}, no function; "
            f"{kind.returns}: make it {right}, or return such a function"
        )
    function: Callable[[Any], Any] = made
    return function


def step_problem(kind: StepKind, target: str, code: Any, arguments: Arguments) -> str | None:
    """Why something is no such step, in a sentence with what is right; None where it is one."""
    if class_of(code) is not None:
        return f"{target!r} is a StatefulProcessor; a {kind.role} is a function, and a processor needs keyBy"
    if not callable(code):
        return f"{target!r} is {type(code).__name__}, no function; {kind.returns}"
    if kind is not MAP and is_async(code):
        return f"{target!r} is async, and only a map may be; {kind.returns}"
    if _is_factory(code, arguments):
        return _wrong_values(target, code, arguments)
    return _wrong_call(target, code, (kind.given,), arguments) or _wrong_values(target, code, arguments)


def _is_factory(code: Any, arguments: Arguments) -> bool:
    """Whether it can be called with arguments, and cannot with a row beside them."""
    return not _binds(code, (None,), arguments) and _binds(code, (), arguments)


def sync_with_calls(target: str, function: Callable[[Any], Any]) -> str | None:
    """What is wrong with a step that has `calls`; None for nothing."""
    if is_async(function):
        return None
    return f"{target!r} is not async, so calls says nothing of it; make it async def, or leave calls out"


# --- processors -------------------------------------------------------------------------------------


def processor_maker(target: str, arguments: Arguments, base_dir: Path) -> Any:
    """What `target` names, as `ProcessorRunner` takes it: an object, or what makes one. Raises
    UserCodeMissing."""
    code = load_attribute(target, base_dir)
    if problem := processor_problem(target, code, arguments):
        raise UserCodeMissing(problem)
    return partial(code, **arguments) if arguments else code


def processor_problem(target: str, code: Any, arguments: Arguments) -> str | None:
    """Why something is no processor and makes none, in a sentence with what is right; None where it may."""
    if isinstance(code, StatefulProcessor):
        if not arguments:
            return None
        return f"{target!r} is an object, made already; leave args out, or name its class"
    is_other_class = isinstance(code, type) and class_of(code) is None
    if is_other_class or not callable(code):
        return (
            f"{target!r} is no subclass of pyspark.sql.streaming.StatefulProcessor, nor an object of one, "
            "nor a function that makes one"
        )
    return _wrong_call(target, code, (), arguments) or _wrong_values(target, code, arguments)


# --- signatures -------------------------------------------------------------------------------------


def _signature(code: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(code)
    except (TypeError, ValueError):  # one that Python cannot look into
        return None


def _binds(code: Any, given: Sequence[Any], arguments: Arguments) -> bool:
    signature = _signature(code)
    if signature is None:
        return bool(given)
    try:
        signature.bind(*given, **arguments)
    except TypeError:
        return False
    return True


def _wrong_call(target: str, code: Any, given: Sequence[str], arguments: Arguments) -> str | None:
    if _binds(code, given, arguments):
        return None
    signature = typing.cast("inspect.Signature", _signature(code))
    parameters = list(signature.parameters.values())
    taken = [p.name for p in parameters if p.kind in _BY_PLACE][: len(given)]
    rest = [p for p in parameters if p.kind in _BY_NAME and p.name not in taken]
    names = [p.name for p in rest]
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    unknown = [] if takes_any else [name for name in arguments if name not in names]
    free = [name for name in names if name not in arguments]
    meant = {name: difflib.get_close_matches(name, free, n=1) for name in unknown}
    lacks = [p.name for p in rest if p.default is inspect.Parameter.empty and p.name in free]
    wrong = [f"has no {n!r}{f' (did you mean {meant[n][0]}?)' if meant[n] else ''}" for n in unknown]
    if lacks:
        wrong.append(f"lacks {joined(map(repr, lacks))}")
    name = target.partition(":")[2]
    called = (*given, *(f"{argument}={_short(value)}" for argument, value in arguments.items()))
    own = "__init__" if isinstance(code, type) else name
    right = f"make it def {own}({', '.join((*(('self',) if own != name else ()), *given, *arguments))})"
    if _may_bind(signature, given, names):
        kept = {
            (meant[argument] or [""])[0] if argument in meant else argument: value
            for argument, value in arguments.items()
        }
        right = f"give {_right(lacks, kept)}, or {right}"
    because = f": it {joined(wrong)}" if wrong else ""
    shown_signature = signature.replace(return_annotation=inspect.Signature.empty)
    return (
        f"{target!r} takes {shown_signature} and is called as {name}({', '.join(called)}){because}; {right}"
    )


def _may_bind(signature: inspect.Signature, given: Sequence[str], names: Sequence[str]) -> bool:
    """Whether there are arguments by which it could be called so."""
    try:
        signature.bind(*given, **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _right(lacks: Sequence[str], kept: Arguments) -> str:
    pairs = [f"{name}: {_short(value)}" for name, value in kept.items() if name]
    pairs += [f"{name}: ..." for name in lacks if name not in kept]
    return f"args: {{{', '.join(pairs)}}}" if pairs else "no args"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


# --- hints ------------------------------------------------------------------------------------------


def _wrong_values(target: str, code: Any, arguments: Arguments) -> str | None:
    """An argument that is not what its parameter's hint says, where that is a plain type."""
    hints = _hints(code)
    for name, value in arguments.items():
        hint = hints.get(name)
        if hint is None or not _is_plain(hint):
            continue
        try:
            msgspec.convert(value, hint, strict=True)
        except msgspec.ValidationError as error:
            wanted = getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)
            return (
                f"{target!r} takes {name}: {wanted}, and args give {name}: {_short(value)} "
                f"({str(error).replace('`', '')}); give one of that type, or change the hint"
            )
    return None


def _hints(code: Any) -> dict[str, Any]:
    looked_at = getattr(code, "__init__", None) if isinstance(code, type) else code
    try:
        return typing.get_type_hints(looked_at)
    except (
        NameError,
        AttributeError,
        TypeError,
        SyntaxError,
    ):  # there for type checkers alone, or not at all
        return {}


def _is_plain(hint: Any) -> bool:
    """Whether it is made of what YAML has alone, so that a value can be compared with it as it is."""
    if any(hint is plain for plain in _PLAIN_TYPES):
        return True
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return True
    return origin in _PLAIN_ORIGINS and all(map(_is_plain, typing.get_args(hint)))
