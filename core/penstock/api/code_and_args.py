"""Code and its arguments in one field, as a manifest may have them: `processor: {class: ..., args: {...}}`.

The API server knows no field that is a text or an object, so the models have the two beside each other
(`processor: ...` and `args: ...`); here the one form becomes the other. Neighbour: `load`, which asks before
anything else looks at a document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.api.graph import Runtime
from penstock.api.specs.operator_spec import STEPS
from penstock.manifest.faults import Fault, listed, nearest, path_text

_NAMED_BY = {**dict.fromkeys((*STEPS, "transform"), "function"), "processor": "class"}
"""Field of an operator -> the field in it that holds "module:name"."""
_ARGS = "args"


def with_args_beside(document: Any, runtime: Runtime) -> tuple[Any, list[Fault]]:
    """A document with code and arguments in fields of their own, and what is wrong with those that had them
    in one. What is wrong is left as it is."""
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict) or not isinstance(operators := spec.get("operators"), list):
        return document, []
    faults: list[Fault] = []
    made = []
    for index, operator in enumerate(operators):
        spread = operator
        for field, named_by in _NAMED_BY.items() if isinstance(operator, dict) else ():
            given = operator.get(field)
            if isinstance(given, dict):
                path = path_text(("spec", "operators", index, field), document)
                found = _faults(path, field, named_by, given, operator, runtime)
                faults += found
                spread = spread if found else _spread(spread, field, named_by, given)
        made.append(spread)
    return document | {"spec": {**spec, "operators": made}}, faults


def _faults(
    path: str,
    field: str,
    named_by: str,
    given: Mapping[str, Any],
    operator: Mapping[str, Any],
    runtime: Runtime,
) -> list[Fault]:
    known = (named_by, _ARGS)
    faults = [
        Fault(
            f"{path}.{name}", f"unknown field{nearest(str(name), known) or f'; known here: {listed(known)}'}"
        )
        for name in given
        if name not in known
    ]
    code = given.get(named_by)
    if code is None and not nearest(named_by, [str(name) for name in given if name not in known]):
        faults.append(Fault(f"{path}.{named_by}", "is missing; give 'module:name', such as word_count:Count"))
    if given.get(_ARGS) is not None and operator.get(_ARGS) is not None:
        faults.append(Fault(f"{path}.{_ARGS}", f"stands beside {field} too; keep one"))
    if not faults and runtime == "cluster":
        faults.append(
            Fault(path, f"the API server takes a text here; give {field}: {code} and args: {{...}} beside it")
        )
    return faults


def _spread(
    operator: Mapping[str, Any], field: str, named_by: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """`operator` with the arguments behind the code that they are for."""
    spread: dict[str, Any] = {}
    for name, value in operator.items():
        spread[name] = given[named_by] if name == field else value
        if name == field and given.get(_ARGS) is not None:
            spread[_ARGS] = given[_ARGS]
    return spread
