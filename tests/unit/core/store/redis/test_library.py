"""The function library as it is joined: every part once, in one order, and each line is found again."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

from penstock.store.keys import Keys
from penstock.store.port import Bounds
from penstock.store.redis.calls import RedisCalls
from penstock.store.redis.library import (
    PROTOCOL_VERSION,
    ROLES,
    SHARED,
    function_library,
    part_and_line,
    with_parts,
)

FOLDER = files("penstock.store.redis") / "functions"
LOCALS_MAX = 200
"""Of one function, by Lua's own limit; the library's text is one."""


def stems(folder: Traversable) -> list[str]:
    return sorted(one.name.removesuffix(".lua") for one in folder.iterdir() if one.name.endswith(".lua"))


def test_the_package_holds_every_part_and_no_other() -> None:
    assert stems(FOLDER) == sorted([*ROLES, "previous"])
    assert stems(FOLDER / "shared") == sorted(SHARED)


def test_the_joined_text_is_always_the_same_and_names_library_and_version() -> None:
    text = function_library()
    assert text == function_library()
    assert text.startswith(b"#!lua name=penstock_%d\n" % PROTOCOL_VERSION)
    assert text.count(b"local VERSION = %d\n" % PROTOCOL_VERSION) == 1


def test_each_part_begins_with_what_it_is_for() -> None:
    parts = [
        *(FOLDER / "shared" / f"{name}.lua" for name in SHARED),
        *(FOLDER / f"{name}.lua" for name in ROLES),
    ]
    for part in parts:
        text = part.read_text().removeprefix(f"#!lua name=penstock_{PROTOCOL_VERSION}\n\n")
        assert re.match(r"-- \w[^\n]{15,}\n", text), part
        assert text.endswith("\n")


def test_the_names_of_the_shared_parts_leave_room_for_more() -> None:
    names: list[str] = []
    for part in SHARED:
        text = (FOLDER / "shared" / f"{part}.lua").read_text()
        names += re.findall(r"^local function (\w+)", text, re.MULTILINE)
        for found in re.findall(r"^local (?!function)([\w, ]+)", text, re.MULTILINE):
            names += re.findall(r"\w+", found)
    assert len(names) == len(set(names))
    assert len(names) < LOCALS_MAX - 30


def test_every_function_is_registered_once_and_called_by_its_name() -> None:
    registered = re.findall(r"^register\('(\w+)'", function_library().decode(), re.MULTILINE)
    assert len(registered) == len(set(registered))
    called = RedisCalls(Keys("t1"), Bounds()).functions
    assert sorted(registered) == sorted({*called, "open_store"})


def test_a_line_of_the_library_is_told_as_the_line_of_its_part() -> None:
    lines = function_library().decode().split("\n")
    for name, own in (
        ("shared/library.lua", "local VERSION"),
        ("shared/queues.lua", "local function drain"),
        ("administration.lua", "local function open_store"),
        ("commits.lua", "local function commit_one"),
        ("moves_install.lua", "register('install'"),
    ):
        at = next(at for at, line in enumerate(lines) if line.startswith(own))
        part, line = part_and_line(at + 1).split(":")
        assert part == name
        assert (FOLDER / part).read_text().split("\n")[int(line) - 1].startswith(own)


def test_a_servers_error_is_told_with_the_part_that_it_comes_from() -> None:
    lines = function_library().decode().split("\n")
    at = next(at for at, line in enumerate(lines) if line.startswith("local function commit_one")) + 1
    told = with_parts(f"ERR user_function:{at}: attempt to index a nil value, on @user_function:{at}.")
    assert re.fullmatch(r"ERR (commits\.lua:\d+): attempt to index a nil value, on @\1\.", told)


def test_a_line_that_the_library_does_not_have_stays_as_it_was() -> None:
    assert with_parts("ERR user_function:999999: oh") == "ERR user_function:999999: oh"
