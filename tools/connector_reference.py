"""Writes the fields of each kind of source and sink into its page in docs/connectors, from the models that
check manifests.

`make reference` writes the tables anew between their marks; a test holds that they are current, and that
every kind has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.connectors.registry.kinds import SINKS, SOURCES

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "connectors"
MARKED = re.compile(
    r"(<!-- written by make reference: (source|sink) (\w+) -->\n).*?"
    r"(<!-- end of what make reference wrote -->\n)",
    re.DOTALL,
)
KINDS = {"source": SOURCES, "sink": SINKS}

Node = Mapping[str, Any]


def written(page: str) -> str:
    """The page with its tables as they should be. Raises KeyError for a kind that there is not."""
    return MARKED.sub(lambda mark: mark[1] + reference(mark[2], mark[3]) + mark[4], page)


def marked(page: str) -> list[tuple[str, str]]:
    """(source or sink, kind) of each table in the page."""
    return [(mark[2], mark[3]) for mark in MARKED.finditer(page)]


def reference(side: str, kind: str) -> str:
    """The table of one kind, then the rules that the API server holds to."""
    model = KINDS[side][kind]
    schema = model.model_json_schema(by_alias=True)
    rows = [
        f"| `{path}` | {type_of(node, schema)} | {default} | {words_of(node, schema)} |"
        for path, node, required in fields(schema, schema, "")
        for default in [default_of(node, required=required)]
    ]
    head = ["| field | type | default | |", "|---|---|---|---|"]
    rules = [f"- {cell(rule)}" for rule in rules_of(schema, schema, "")]
    told = ["", "Rules, in the words in which a manifest is refused:", "", *rules] if rules else []
    return "\n".join([*(head if rows else []), *(rows or ["It has no fields."]), *told]) + "\n"


def fields(node: Node, root: Node, path: str) -> Iterator[tuple[str, Node, bool]]:
    """(path, schema, whether it is required) of all fields, those of an object behind the object's own."""
    for name, child in node.get("properties", {}).items():
        here = f"{path}{name}"
        yield here, child, name in node.get("required", ())
        yield from fields(resolved(child, root), root, f"{here}.")


def rules_of(node: Node, root: Node, path: str) -> Iterator[str]:
    for rule in node.get("x-kubernetes-validations", ()):
        yield f"`{path.rstrip('.')}`: {rule['message']}" if path else str(rule["message"])
    for name, child in node.get("properties", {}).items():
        yield from rules_of(resolved(child, root), root, f"{path}{name}.")


def resolved(node: Node, root: Node) -> Node:
    """What a reference names, and the one form beside null of an optional field."""
    if "$ref" in node:
        found: Node = root["$defs"][node["$ref"].rpartition("/")[2]]
        return found
    for form in node.get("anyOf", ()):
        if form.get("type") != "null":
            return resolved(form, root)
    return node


def type_of(node: Node, root: Node) -> str:
    form = resolved(node, root)
    if "enum" in form:
        return ", ".join(f"`{value}`" for value in form["enum"])
    if "const" in form:
        return f"`{form['const']}`"
    if form.get("type") == "array":
        return f"list of {type_of(form['items'], root)}"
    if form.get("type") == "object" and isinstance(form.get("additionalProperties"), Mapping):
        return f"map to {type_of(form['additionalProperties'], root)}"
    low, high = form.get("minimum"), form.get("maximum")
    bounds = f", {low} to {high}" if low is not None and high is not None else ""
    return f"{form.get('type', 'value')}{bounds}"


def default_of(node: Node, *, required: bool) -> str:
    if required:
        return "required"
    default = node.get("default")
    return (
        "" if default in (None, [], {}) else f"`{default}`".replace("True", "true").replace("False", "false")
    )


def words_of(node: Node, root: Node) -> str:
    """The field's own words; those of what it holds where it has none."""
    return cell(str(node.get("description") or resolved(node, root).get("description", "")))


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    for page in sorted(PAGES.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        page.write_text(written(before), encoding="utf-8")


if __name__ == "__main__":
    main()
