"""What is wrong with a manifest: where, and what would be right.

`schema_faults` words pydantic's errors; `graph`, `code` and `load` add their own. One error carries
them all, since a user wants to mend a file once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from penstock.errors import PermanentError
from penstock.manifest.document import EXPECTED
from penstock.manifest.structural import Schema, structural_schema

_SHOWN_LENGTH_MAX = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """`path` is where in the document ("spec.operators[2] (count).keyBy[0]"), `message` what is wrong
    there and what would be right."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidManifest(PermanentError):
    """A manifest cannot be used. Its text is the list of all faults, one a line."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


def schema_faults(error: ValidationError, model: type[BaseModel], document: object) -> tuple[Fault, ...]:
    """The faults behind pydantic's `error` over `document`, in its order.

    A field that is missing because its name is misspelt is named once, as an unknown field.
    """
    schema = structural_schema(model)
    details = error.errors(include_url=False)
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    faults: list[Fault] = []
    for detail in details:
        *parent, name = detail["loc"] or ("",)
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # it is its entries that are wrong, and they are named
        beside = [str(place[-1]) for place in unknown if list(place[:-1]) == parent]
        if detail["type"] != "missing" or not nearest(str(name), beside):
            faults.append(_fault(detail, schema, document))
    return tuple(faults)


def shown(value: object) -> str:
    """A value as a message shows it: short, as YAML has it, and text in quotes."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "null" if value is None else repr(value)
    return text if len(text) <= _SHOWN_LENGTH_MAX else text[: _SHOWN_LENGTH_MAX - 3] + "..."


def nearest(name: str, known: Sequence[str]) -> str:
    """ " (did you mean X?)" for the closest of `known`, or nothing when none is close."""
    plain = {_plain(candidate): candidate for candidate in known}
    matches = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.6)
    return f" (did you mean {plain[matches[0]]}?)" if matches else ""


def listed(names: Iterable[str]) -> str:
    """Names as a message lists them, at most 20."""
    all_names = list(names)
    rest = len(all_names) - 20
    return (", ".join(all_names[:20]) + (f" and {rest} more" if rest > 0 else "")) or "none"


def joined(names: Iterable[str]) -> str:
    """Some names in a sentence: files, zipf and console."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def path_text(location: Sequence[int | str], document: object) -> str:
    """A path in `document` as text; entries of lists carry their name where they have one."""
    text = ""
    node = document
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
            node = node[part] if isinstance(node, list | tuple) and part < len(node) else None
            if isinstance(node, dict) and isinstance(node.get("name"), str):
                text += f" ({node['name']})"
        else:
            text += f".{part}" if text else part
            node = node.get(part) if isinstance(node, dict) else None
    return text


def expectation(schema: Schema) -> str:
    """In words, what a value of `schema` is: "a whole number from 1 to 4096"."""
    if EXPECTED in schema:
        return str(schema[EXPECTED])
    if "enum" in schema:
        values = [str(value) for value in schema["enum"]]
        return repr(values[0]) if len(values) == 1 else f"one of {', '.join(values)}"
    match schema.get("type"):
        case "integer":
            return "a whole number" + _bounds(schema)
        case "number":
            return "a number" + _bounds(schema)
        case "boolean":
            return "true or false"
        case "string":
            return "text" + _size(schema, "minLength", "maxLength", "characters")
        case "array":
            return "a list" + _size(schema, "minItems", "maxItems", "entries")
        case _:
            fields = listed(schema.get("properties", ()))
            return "an object" + (f" with the fields {fields}" if fields != "none" else "")


def _fault(detail: ErrorDetails, schema: Schema, document: object) -> Fault:
    location = detail["loc"]
    value = detail["input"]
    if location and location[-1] == "[key]":
        return Fault(
            path_text(location[:-2], document),
            f"{shown(value)} cannot be a key here; a key is of letters, digits, '-', '_' and '.', "
            "and may have a prefix such as example.org/",
        )
    path = path_text(location, document)
    if detail["type"] == "extra_forbidden":
        known = list(_node(schema, location[:-1]).get("properties", ()))
        hint = nearest(str(location[-1]), known) or f"; known here: {listed(known)}"
        return Fault(path, f"unknown field{hint}")
    expected = expectation(_node(schema, location))
    if detail["type"] == "missing":
        return Fault(path, f"is missing; give {expected}")
    if detail["type"] == "value_error":
        return Fault(path, str(detail.get("ctx", {}).get("error", detail["msg"])))
    return Fault(path, f"{shown(value)} is not {expected}")


def _node(schema: Schema, location: Sequence[int | str]) -> Schema:
    """The schema at `location`; an empty one where it leads nowhere."""
    node: Any = schema
    for part in location:
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            node = node.get("properties", {}).get(part, node.get("additionalProperties", {}))
    return dict(node)


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    parts: list[str] = []
    if low is not None:
        parts.append(f"{'above' if schema.get('exclusiveMinimum') else 'from'} {_number(low)}")
    if high is not None:
        parts.append(f"{'below' if schema.get('exclusiveMaximum') else 'to'} {_number(high)}")
    return f" {' '.join(parts)}" if parts else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _size(schema: Schema, least: str, most: str, unit: str) -> str:
    low, high = schema.get(least, 0), schema.get(most)
    if high is None:
        return f" of at least {low} {unit}" if low else ""
    return f" of {low} to {high} {unit}" if low else f" of at most {high} {unit}"


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def one_of_faults(path: str, body: Mapping[str, Any], kinds: Sequence[str]) -> list[Fault]:
    """The fault of an object that has none or several of `kinds`, where it may have one."""
    given = [kind for kind in kinds if body.get(kind) is not None]
    if len(given) < 2 and body:
        return []
    has = f"has {joined(given)}" if given else "is empty"
    return [Fault(path, f"{has}; give exactly one of {joined(kinds)}")]
