"""Canonical names of types (`Column.type`) taken apart, without Spark.

Neighbours: `ddl` writes these names, `json_rows` and `routing` read them.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"`((?:[^`]|``)*)`:")


def nested(type_: str) -> tuple[str, str]:
    """The kind of a nested type and what stands in its brackets: "map", "string,int". ("", "") for others."""
    kind, bracket, inner = type_.partition("<")
    return (kind, inner.removesuffix(">")) if bracket else ("", "")


def struct_fields(inner: str) -> list[tuple[str, str]]:
    """Names and types of a struct's fields; `inner` stands in its brackets."""
    return [_field(text) for text in split(inner)]


def split(inner: str) -> list[str]:
    """Cut at the commas that stand in no brackets and in no quotes."""
    parts = [""]
    depth = 0
    quoted = False
    for character in inner:
        if character == "`":
            quoted = not quoted
        elif not quoted:
            depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _field(text: str) -> tuple[str, str]:
    """ "name:type", the name quoted with backticks where it is no plain one."""
    if quoted := _QUOTED.match(text):
        return quoted[1].replace("``", "`"), text[quoted.end() :]
    name, _, type_ = text.partition(":")
    return name, type_
