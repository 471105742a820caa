"""YAML text -> plain documents, read as kubectl reads them, and with what YAML lets through unseen made
a fault: a key given twice, a key that is no text, a value inside of itself. Dates stay text.

Neighbour: `load`, which makes models of the documents.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from penstock.manifest.faults import Fault, InvalidManifest

_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_FLOAT = "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """SafeLoader without dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# PyYAML takes 1e4 for text; kubectl takes it for a number.
_Loader.add_implicit_resolver(
    _FLOAT, re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_documents(text: str) -> tuple[list[Any], list[Fault]]:
    """The documents of `text`, empty ones left out, and the faults that they can be read in spite of.

    Raises InvalidManifest, with line and column, when there is nothing to read on from.
    """
    documents: list[Any] = []
    faults: list[Fault] = []
    try:
        loader = _Loader(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                if node is None:
                    break
                _check_keys(node, "", faults, set(), set())
                document = loader.construct_document(node)
                if document is not None:
                    documents.append(document)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidManifest([*faults, Fault(_where(mark), f"not YAML: {what}")]) from error
    except yaml.reader.ReaderError as error:
        what = f"not YAML: {error.reason} at character {error.position + 1}"
        raise InvalidManifest([Fault("", what)]) from error
    except (RecursionError, ValueError) as error:
        raise InvalidManifest([*faults, Fault("", f"not YAML that can be used: {error}")]) from error
    return documents, faults


def read_value(text: str) -> Any:
    """One value, as it stands behind `--set a.b=`. Raises InvalidManifest."""
    documents, faults = read_documents(text)
    if faults or len(documents) > 1:
        raise InvalidManifest(faults or [Fault("", "more than one YAML document")])
    return documents[0] if documents else None


def _check_keys(node: yaml.Node, path: str, faults: list[Fault], seen: set[int], above: set[int]) -> None:
    """Walk each node once; make odd keys text, so that reading can go on."""
    if id(node) in above:
        raise yaml.MarkedYAMLError(problem="a value that holds itself", problem_mark=node.start_mark)
    if id(node) in seen:
        return
    seen.add(id(node))
    above.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _check_keys(child, f"{path}[{index}]", faults, seen, above)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, child in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key that is no text", problem_mark=key.start_mark)
            name = key.value
            child_path = f"{path}.{name}" if path else name
            if key.tag not in (_TEXT, _MERGE):
                faults.append(Fault(child_path, f"line {line}: this key is not text; put it in quotes"))
                key.tag = _TEXT
            if key.tag != _MERGE and name in lines:
                faults.append(Fault(child_path, f"given twice, in lines {lines[name]} and {line}; keep one"))
            lines.setdefault(name, line)
            _check_keys(child, child_path, faults, seen, above)
    above.discard(id(node))


def _where(mark: yaml.Mark | None) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
