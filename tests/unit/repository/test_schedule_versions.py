"""Schedules are numbered in one place, the schedule book, and written into the cluster by one function."""

from __future__ import annotations

import ast

import pytest

from house import ROOT, tracked_files

BOOK = "core/penstock/schedule/book.py"
READER = "core/penstock/api/schedule_object.py"
"""It makes a schedule of what the book has written."""
WRITER = "operator/penstock_operator/cluster/decisions/schedule_writing.py"
OTHERS = (
    "core/penstock/simulation/",
    "core/penstock/dataflow/routing_table.py",
    "worker/penstock_worker/stages/",
)
"""Versions of stations, and of routing tables: no schedule is written there."""


def numbering(source: str, *, may_make: bool = False) -> list[str]:
    """What in `source` gives a schedule a version of its own; `may_make`: whole ones are made there."""
    if "version" not in source and "OperatorSchedule" not in source:
        return []
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if _is_sum(node) or _is_replaced(node) or (not may_make and _is_made(node))
    ]


def _is_sum(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):
        return _is_version(node.target)
    return isinstance(node, ast.BinOp) and any(_is_version(part) for part in ast.walk(node))


def _is_version(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == "version") or (
        isinstance(node, ast.Attribute) and node.attr == "version"
    )


def _is_replaced(node: ast.AST) -> bool:
    return _calls(node, "replace") and any(one.arg == "version" for one in node.keywords)


def _is_made(node: ast.AST) -> bool:
    return _calls(node, "OperatorSchedule")


def _calls(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return name == (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", ""))


def product() -> dict[str, str]:
    """File -> its text."""
    files = {str(path.relative_to(ROOT)): path for path in tracked_files() if path.suffix == ".py"}
    rooms = ("core/", "operator/", "worker/")
    return {name: path.read_text(encoding="utf-8") for name, path in files.items() if name.startswith(rooms)}


def test_only_the_schedule_book_gives_versions() -> None:
    found = {
        name: numbering(text, may_make=name == READER)
        for name, text in product().items()
        if not name.startswith(OTHERS)
    }
    assert [name for name, given in found.items() if given] == [BOOK]


def test_a_schedules_object_is_written_by_one_function() -> None:
    made = [
        name
        for name, text in product().items()
        if "WriteSchedule" in text
        for node in ast.walk(ast.parse(text))
        if _calls(node, "WriteSchedule")
    ]
    assert made == [WRITER]


@pytest.mark.parametrize(
    "planted",
    [
        "new = replace(old, version=old.version + 1)",
        "new = replace(old, version=number)",
        "new = dataclasses.replace(old, term=term, version=number)",
        "version = 1 + max(answer.version for answer in seen)",
        "version += 1",
        "old.version += 1",
        "new = OperatorSchedule('count', 7, 0, (), (), {})",
    ],
)
def test_a_version_that_is_made_elsewhere_is_found(planted: str) -> None:
    assert len(numbering(planted)) >= 1


@pytest.mark.parametrize(
    "harmless",
    ["Publish(version=schedule.version)", "if place.version >= old.version: pass", "replace(old, term=2)"],
)
def test_reading_a_version_is_no_making(harmless: str) -> None:
    assert numbering(harmless) == []
