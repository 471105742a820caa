"""Whether an object has the form that the API server asks for, by the models of the Kubernetes client.

A strict reading: an unknown field, a missing one that is required, a value of another type are faults, each
with its path. What only a server knows (that a name is taken, that a label is too long) is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes.aio import client

_SCALARS: Mapping[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
    "datetime": str,
    "bytearray": str,
    "bytes": str,
}


def faults_of(thing: Mapping[str, Any]) -> list[str] | None:
    """The faults of an object; None when the client has no model of its kind."""
    model = _model_of(str(thing["apiVersion"]), str(thing["kind"]))
    return None if model is None else sorted(_faults(model.__name__, thing, str(thing["kind"])))


def _model_of(api_version: str, kind: str) -> Any:
    group, _, version = api_version.rpartition("/")
    known = "." not in group or group.endswith(".k8s.io")
    name = f"{version[0].upper()}{version[1:]}{kind}"
    return getattr(client, name, None) if known else None


def _faults(type_name: str, value: Any, path: str) -> Iterator[str]:
    if match := re.fullmatch(r"List\[(.*)\]", type_name):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
            return
        for index, item in enumerate(value):
            yield from _faults(match[1], item, f"{path}[{index}]")
    elif match := re.fullmatch(r"Dict\[str, (.*)\]", type_name):
        if not isinstance(value, dict):
            yield f"{path}: {value!r} is no mapping"
            return
        for key, item in value.items():
            yield from _faults(match[1], item, f"{path}.{key}")
    elif type_name in _SCALARS:
        wanted = _SCALARS[type_name]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            yield f"{path}: {value!r} is no {type_name}"
    elif hasattr(getattr(client, type_name, None), "openapi_types"):
        yield from _object_faults(getattr(client, type_name), value, path)


def _object_faults(model: Any, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is no object"
        return
    fields = {model.attribute_map[name]: name for name in model.openapi_types}
    for key, item in value.items():
        if key not in fields:
            yield f"{path}.{key}: there is no such field"
        else:
            yield from _faults(model.openapi_types[fields[key]], item, f"{path}.{key}")
    for key, name in fields.items():
        # A field whose name is a word of Python is called var_NAME; none of those is required.
        if name in model.model_fields and model.model_fields[name].is_required() and key not in value:
            yield f"{path}.{key}: is required"
