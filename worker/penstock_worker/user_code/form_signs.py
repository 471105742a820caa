"""In which form a processor takes its rows, where the manifest does not say it: Rows or Pandas.

To PySpark it is the call that says so (`transformWithState`, `transformWithStateInPandas`); the class is of
the same kind. Here the hints of `handleInputRows` say it, and where it has none its source: what it yields,
and what it asks of what it is given. Signs of both, or pandas without a sign, are not guessed at.
Neighbours: `forms` (what each form does), `running` and `inspect_code` (who asks).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

from penstock.dataflow.plan import PANDAS, ROWS
from penstock.errors import PermanentError
from penstock_worker.user_code.handle_use import tree_of

_FRAME_HINT = re.compile(r"DataFrame")
_ROW_HINT = re.compile(r"\b(Row|tuple|dict|Tuple|Dict)\b")
_OF_FRAMES_ONLY = frozenset(
    {
        "agg", "columns", "dtypes", "empty", "groupby", "iloc", "iterrows", "itertuples", "loc", "shape",
        "sort_values", "to_dict", "to_numpy",
    }
)  # fmt: skip
"""Attributes of a DataFrame that no Row has, unless as a column."""
_OF_ROWS_ONLY = frozenset({"asDict"})
_PANDAS_NAMES = frozenset({"pd", "pandas", "DataFrame"})
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_LITERALS = ast.Constant | ast.Dict | ast.JoinedStr


class FormUnclear(PermanentError):
    """Neither hints nor source say in which form a processor takes its rows; the message says what would."""


def form_of(processor: type[Any], said: str) -> str:
    """ROWS or PANDAS. `said` is what the manifest says, "" for nothing. Raises FormUnclear."""
    if said:
        return said
    method = processor.handleInputRows
    if len(hinted := _hinted(method)) == 1:
        return hinted.pop()
    tree = tree_of(method) if inspect.isfunction(method) else None
    shown = _shown(tree) if tree is not None and not hinted else hinted
    if len(shown) == 1:
        return shown.pop()
    if not shown and (tree is None or not _names_pandas(tree)):
        return ROWS
    why = "shows signs of both" if shown else "uses pandas, and does not show for what"
    raise FormUnclear(
        f"handleInputRows of {processor.__name__} may take Rows or pandas DataFrames: it {why}. Say "
        "`form: Rows` (as for transformWithState) or `form: Pandas` (transformWithStateInPandas) beside the "
        "processor in the manifest, or give the method a hint, such as -> Iterator[pd.DataFrame]"
    )


def _hinted(method: Any) -> set[str]:
    """What the hints of its rows and of what it returns say."""
    hints = dict(getattr(method, "__annotations__", {}))
    rows = _rows_parameter(method)
    texts = [str(hints[name]) for name in (rows, "return") if name in hints]
    kinds = [(bool(_FRAME_HINT.search(text)), bool(_ROW_HINT.search(text))) for text in texts]
    return {PANDAS if frames else ROWS for frames, row in kinds if frames != row}


def _rows_parameter(method: Any) -> str:
    """The name of the parameter that the rows come in, behind self and key."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    names: tuple[str, ...] = () if code is None else code.co_varnames[: code.co_argcount]
    return names[2] if len(names) > 2 else "rows"


def _names_pandas(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Name) and node.id in _PANDAS_NAMES for node in ast.walk(tree))


def _shown(tree: ast.AST) -> set[str]:
    """What the source says: ROWS, PANDAS, both or neither. What it gives counts before what it takes, whose
    attributes may be columns."""
    function = next((node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)), None)
    if function is None:  # a lambda, or what an expression made
        return set()
    source = _Source(function)
    return set(filter(None, source.of_given())) or set(filter(None, source.of_taken()))


class _Source:
    """Reads the source of one `handleInputRows`; what it finds is ROWS, PANDAS, or "" for neither."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._function = function
        arguments = function.args.args
        self._rows = arguments[2].arg if len(arguments) > 2 else "rows"
        self._assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._assigned.setdefault(target.id, []).append(node.value)

    # --- what it yields and returns ---

    def of_given(self) -> Iterator[str]:
        waiting: list[ast.AST] = list(self._function.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, _FUNCTIONS | ast.Lambda | ast.ClassDef):
                continue
            if isinstance(node, ast.Yield) and node.value is not None:
                yield from self._of_one(node.value)
            elif isinstance(node, ast.YieldFrom | ast.Return) and node.value is not None:
                yield from self._of_several(node.value)
            waiting += ast.iter_child_nodes(node)

    def _of_several(self, node: ast.expr, depth: int = 0) -> Iterator[str]:
        """Of an expression whose items are handed out."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            for item in node.elts:
                yield from self._of_one(item)
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            yield from self._of_one(node.elt)
        elif isinstance(node, ast.Call) and _called(node) == "DataFrame":
            yield PANDAS  # to be refused as what is no iterable of DataFrames
        elif isinstance(node, ast.Call) and _called(node) in ("iter", "list", "tuple") and node.args:
            yield from self._of_several(node.args[0], depth)
        elif isinstance(node, ast.Name) and depth == 0:
            for value in self._assigned.get(node.id, ()):
                yield from self._of_several(value, 1)

    def _of_one(self, node: ast.expr, depth: int = 0) -> Iterator[str]:
        """Of an expression that is handed out itself."""
        if isinstance(node, ast.Call):
            yield {"DataFrame": PANDAS, "Row": ROWS}.get(_called(node), "")
        elif isinstance(node, ast.Tuple | ast.List | _LITERALS):
            yield ROWS
        elif isinstance(node, ast.Name) and depth == 0:
            for value in self._assigned.get(node.id, ()):
                if isinstance(value, ast.Call):
                    yield from self._of_one(value, 1)

    # --- what it asks of what it is given ---

    def of_taken(self) -> Iterator[str]:
        items = {
            node.target.id
            for node in ast.walk(self._function)
            if isinstance(node, ast.For | ast.comprehension)
            and isinstance(node.target, ast.Name)
            and isinstance(node.iter, ast.Name)
            and node.iter.id == self._rows
        }
        for node in ast.walk(self._function):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in items
            ):
                yield PANDAS if node.attr in _OF_FRAMES_ONLY else ROWS if node.attr in _OF_ROWS_ONLY else ""
            elif isinstance(node, ast.Call) and _called(node) == "concat":
                named = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                yield PANDAS if self._rows in named else ""


def _called(node: ast.Call) -> str:
    called = node.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
