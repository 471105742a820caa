"""The picture of the floors in docs/architecture.md is drawn from the code as it is."""

from __future__ import annotations

import pytest
from tools.floors import (
    DOCUMENT,
    both_ways,
    module_imports,
    picture,
    room_imports,
    with_picture,
    without_detours,
)


def test_the_picture_of_the_floors_is_current() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == with_picture(text, picture()), "make floors"


def test_no_two_folders_import_from_each_other() -> None:
    assert both_ways(module_imports()) == []


def test_of_two_folders_that_import_from_each_other_those_of_the_fewer_are_named() -> None:
    down = {"p.high.x": {"p.low.z"}, "p.high.y": {"p.low", "p.low.z"}, "p.high": set(), "p.low": set()}
    assert both_ways({**down, "p.low.z": set()}) == []
    assert both_ways({**down, "p.low.z": {"p.high.x"}}) == ["p.low.z -> p.high.x"]


def test_a_registry_stands_above_the_rooms_of_kinds_that_stand_on_its_folder() -> None:
    imports = {"p.all": {"p.kind.x"}, "p.kind": set(), "p.kind.x": {"p.port"}, "p.port": set(), "p": set()}
    assert both_ways(imports, registries=()) != []
    assert both_ways(imports, registries=("p.all",)) == []


def test_an_arrow_that_others_lead_around_is_left_out() -> None:
    assert without_detours({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_a_circle_of_rooms_is_no_picture() -> None:
    with pytest.raises(ValueError, match="a -> b -> a"):
        without_detours({"a": {"b"}, "b": {"a"}})


def test_a_module_by_itself_is_a_part_of_whoever_imports_it() -> None:
    imports = {"p.a.x": {"p.lone"}, "p.a": set(), "p.lone": {"p.b.y"}, "p.b": set(), "p.b.y": set()}
    assert room_imports(imports) == (["p.a", "p.b"], {"p.a": {"p.b"}, "p.b": set()})


def test_a_module_that_nobody_imports_is_an_entrance() -> None:
    rooms, edges = room_imports({"p.cli": {"p.a.x"}, "p.a": set(), "p.a.x": set()})
    assert rooms == ["p.cli", "p.a"]
    assert edges["p.cli"] == {"p.a"}
