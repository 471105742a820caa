"""What a processor's code would use of its handle and its times, read from its source.

What `init` asks of the handle is seen when it is called. A call that comes only with rows (a timer is
registered) is looked for here, and only such a one counts: on the handle that the instance keeps, in a method
that is really the class's. Names alone say nothing: a method of the user's own may bear any of them. What
escapes this is refused when it is called. Neighbour: `inspect_code`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection, Iterator, Mapping
from types import FunctionType
from typing import Any

from penstock.api.syntax import syntax_tree

_NOT_THE_USERS = ("pyspark", "abc", "builtins")
_UNKNOWN = object()


def handle_calls(made: Any, handle: Any, names: Collection[str]) -> set[str]:
    """Which of `names` the methods of `made` ask of `handle`, which its `init` was given."""
    found = set()
    for function in users_functions(type(made)):
        tree = tree_of(function)
        if tree is None:
            continue
        code = function.__code__
        known = dict.fromkeys(code.co_varnames[: min(1, code.co_argcount)], made)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                value = _value_of(node.value, known)
                known.update({target.id: value for target in node.targets if isinstance(target, ast.Name)})
        found |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr in names
            and _value_of(node.value, known) is handle
        }
    return found


def mentions(processor: type[Any], name: str) -> bool:
    """Whether a method of the class reads an attribute called so, of anything."""
    trees = filter(None, map(tree_of, users_functions(processor)))
    return any(
        isinstance(node, ast.Attribute) and node.attr == name for tree in trees for node in ast.walk(tree)
    )


def users_functions(processor: type[Any]) -> Iterator[FunctionType]:
    """The methods of the class, and those of its bases that these reach by `super()`; only the user's."""
    waiting = [(name, 0) for name in dir(processor)]
    seen = set()
    mro = processor.__mro__
    while waiting:
        name, first = waiting.pop()
        for place in range(first, len(mro)):
            if name in vars(mro[place]):
                break
        else:
            continue
        owner = mro[place]
        if (name, owner) in seen or owner.__module__.split(".")[0] in _NOT_THE_USERS:
            continue
        seen.add((name, owner))
        member = vars(owner)[name]
        function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if isinstance(function, FunctionType):
            yield function
            waiting += [(called, place + 1) for called in _called_above(function)]


def _called_above(function: FunctionType) -> Iterator[str]:
    tree = tree_of(function)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Name) and called.id == "super":
                yield node.attr


def tree_of(function: FunctionType) -> ast.AST | None:
    """None where there is no source to read."""
    try:
        return syntax_tree(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return None


def _value_of(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """What an expression is, where it is a name that is `known` or an attribute of one."""
    if isinstance(node, ast.Name):
        return known.get(node.id, _UNKNOWN)
    if isinstance(node, ast.Attribute):
        owner = _value_of(node.value, known)
        return _UNKNOWN if owner is _UNKNOWN else inspect.getattr_static(owner, node.attr, _UNKNOWN)
    return _UNKNOWN
