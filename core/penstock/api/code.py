"""Whether the code that a Topology names is there, found out without running any of it.

Looks for modules beside the manifest and among the installed packages, and for names in their syntax trees.
What cannot be seen that way (a star import, a compiled module) is left to the worker. Neighbour: `load`.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from penstock.api.specs.operator_spec import STEPS
from penstock.api.syntax import syntax_tree
from penstock.api.windows import aggregators_of
from penstock.connectors.named_code import DATA_SOURCE, FOREACH, FOREACH_BATCH
from penstock.connectors.registry import named_code
from penstock.manifest.faults import Fault, listed, nearest, path_text

_PYTHON = ".py"
_STAR = "*"
_WANTED = {
    **dict.fromkeys((*STEPS, "transform"), ("functions and classes", ("def", "class"))),
    "processor": ("classes and functions", ("class", "def")),
    FOREACH: ("functions and classes", ("def", "class")),
    FOREACH_BATCH: ("functions", ("def",)),
}
_COMPOUND = (ast.If, ast.Try, ast.With, ast.For, ast.While)


@dataclass(frozen=True, slots=True)
class _Names:
    """What a module defines at its top: name -> "class", "def" or "other". None when that cannot be seen."""

    kinds: Mapping[str, str] | None
    problem: str | None = None


def missing_code(spec: Mapping[str, Any], code_dir: Path) -> list[Fault]:
    """Faults of `code.module` and of the targets of steps, processors, aggregators, sources and sinks in a
    Topology's plain `spec`."""
    faults: list[Fault] = []
    known: dict[str, _Names] = {}
    code = spec.get("code")
    module = code.get("module") if isinstance(code, dict) else None
    if isinstance(code, dict) and code.get("configMap") is not None:
        return faults
    if isinstance(module, str):
        known[module] = _names(module, code_dir)
        if problem := known[module].problem:
            faults.append(Fault("spec.code.module", problem))
    for path, role, target in _targets(spec):
        name, colon, attribute = target.partition(":")
        if not (name and colon and attribute):
            continue
        reported = name in known and known[name].problem is not None
        names = known.setdefault(name, _names(name, code_dir))
        if names.problem is not None:
            if not reported:
                faults.append(Fault(path, names.problem))
        elif message := _wrong(names, role, name, attribute):
            faults.append(Fault(path, message))
    return faults


def _targets(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    operators = spec.get("operators")
    for index, operator in enumerate(operators if isinstance(operators, list) else ()):
        if not isinstance(operator, dict):
            continue
        for role in (*STEPS, "transform", "processor"):
            target = operator.get(role)
            if isinstance(target, str):
                yield path_text(("spec", "operators", index, role), {"spec": spec}), role, target
        for place, target in aggregators_of(operator):
            at = ("spec", "operators", index, "aggregate", place, "function")
            yield path_text(at, {"spec": spec}), "aggregate", target
        for where, code in named_code(operator):
            yield path_text(("spec", "operators", index, *where), {"spec": spec}), code.role, code.target
    for where, code in named_code(spec):
        yield path_text(("spec", *where), {"spec": spec}), code.role, code.target


def _wrong(names: _Names, role: str, module: str, attribute: str) -> str | None:
    if names.kinds is None:
        return None
    kind = names.kinds.get(attribute)
    if kind is None:
        what, wanted_kinds = _WANTED.get(role, ("classes", ("class",)))
        wanted = [name for name, kind in names.kinds.items() if kind in wanted_kinds]
        return f"{module} has no {attribute!r}{nearest(attribute, wanted)}; its {what} are {listed(wanted)}"
    if role == "aggregate" and kind == "def":
        return f"{attribute!r} is a function; an aggregator is a class with zero, reduce, merge and finish"
    if role == DATA_SOURCE and kind == "def":
        return f"{attribute!r} is a function; a data source is a class, a DataSource"
    return None


def _names(module: str, code_dir: Path) -> _Names:
    spec = _find(module, [str(code_dir), *sys.path])
    if spec is None:
        return _Names(None, f"no module {module!r} beside the manifest or installed; put {module}.py there")
    if spec.origin is None or not spec.origin.endswith(_PYTHON):
        return _Names(None)
    try:
        with tokenize.open(spec.origin) as file:
            tree = syntax_tree(file.read())
    except SyntaxError as error:
        return _Names(None, f"{module}.py, line {error.lineno}: {error.msg}")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        return _Names(None, f"{module}.py cannot be read: {error}")
    kinds: dict[str, str] = {}
    for statement in tree.body:
        _collect(statement, kinds)
    return _Names(None if kinds.keys() & {_STAR, "__getattr__"} else kinds)


def _find(module: str, path: Sequence[str]) -> ModuleSpec | None:
    """The module's spec, without importing its packages."""
    places: Sequence[str] | None = path
    spec: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        if places is None:
            return None
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    return spec


def _collect(statement: ast.stmt, kinds: dict[str, str]) -> None:
    """Add what a statement defines; a star import as `_STAR`."""
    match statement:
        case ast.ClassDef(name=name):
            kinds[name] = "class"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            kinds[name] = "def"
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            for alias in aliases:
                kinds[alias.asname or alias.name.split(".")[0]] = "other"
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    kinds[node.id] = "other"
        case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
            for child in ast.walk(statement):
                if isinstance(child, ast.stmt) and not isinstance(child, _COMPOUND):
                    _collect(child, kinds)
        case _:
            pass
