"""The OpenAPI schema of a manifest model, in the one form that both its readers can walk.

pydantic's JSON schema with every reference put in its place, optional fields without their null, and
OpenAPI 3.0's spelling of exclusive bounds. `crds` writes it out, `faults` finds in it what a field expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

# OpenAPI 3.0 has no patterns of keys: the API server does not check those of maps.
_LEFT_OUT = frozenset({"title", "$defs", "additionalProperties", "patternProperties", "propertyNames"})


@cache
def structural_schema(model: type[BaseModel]) -> Schema:
    """Schema of `model` by its outside names, without $ref and null. Not to be changed: it is shared."""
    schema = model.model_json_schema(by_alias=True)
    return _inlined(schema, schema.get("$defs", {}))


def _inlined(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    node = dict(node)
    if "$ref" in node:
        target = definitions[node.pop("$ref").rsplit("/", 1)[1]]
        return _inlined({**target, **node}, definitions)
    if "anyOf" in node:
        kinds = [kind for kind in node["anyOf"] if kind.get("type") != "null"]
        if len(kinds) == 1:
            del node["anyOf"]
            return _inlined({**kinds[0], **node}, definitions)
    extra = next(iter(node.get("patternProperties", {}).values()), node.get("additionalProperties"))
    out = {key: value for key, value in node.items() if key not in _LEFT_OUT}
    if isinstance(extra, dict):
        out["additionalProperties"] = _inlined(extra, definitions)
    if "properties" in node:
        out["properties"] = {name: _inlined(child, definitions) for name, child in node["properties"].items()}
    if "items" in node:
        out["items"] = _inlined(node["items"], definitions)
    if "const" in node:
        out["enum"] = [out.pop("const")]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in node:
            out[bound] = node[exclusive]
            out[exclusive] = True
    if "default" in out:
        out["default"] = _without_null(out["default"])
    if out.get("default", ...) in (None, [], {}):
        del out["default"]
    return out


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return value
